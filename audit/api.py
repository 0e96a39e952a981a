"""`audit train`, `audit run` and `audit choose` from Python: `dpfl_audit.train`, `run` and `choose`."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from . import run as runner
from .choose.carry_out import carry_out_study
from .choose.opening import options_of_study
from .choose.study import Study
from .errors import BadInput
from .options.attack import AttackOptions
from .options.option import Option, called_with, part, texts
from .options.shared import Force, Quiet
from .options.study import GoalLimits, SearchOptions, StudyFolderOptions
from .options.train import TrainOptions
from .progress import Reporter
from .proven.target import build
from .report.saved import SavedResults
from .setup import capture
from .setup.config import CANARY, Config, parse_config, read_config
from .setup.experiment import Experiment
from .setup.folder import Setup, open_setup
from .setup.key import given_key
from .setup.remarks import ending, remarks
from .worlds.federation.plan import canary_settings

Folder = str | Path | None
Tables = str | Path | Mapping[str, Any]


@dataclass(frozen=True)
class TrainRequest(TrainOptions):
    """What `train` is called with."""

    config: Annotated[
        Tables | Config,
        Option(
            "The path of a TOML file; or its tables as a mapping; or a `Config`. Relative paths in it start at the"
            " file's folder, else at the working folder."
        ),
    ]
    folder: Annotated[
        Folder, Option("Of the setup. None: a temporary one, which goes when this process ends, its noise key with it.")
    ] = None
    _: KW_ONLY
    quiet: Quiet = False


@called_with(TrainRequest)
def train(request: TrainRequest) -> Setup:
    """Train the federation of a config and capture its messages; as `audit train`, and killed work goes on likewise.

    >>> setup = train(
    ...     {
    ...         "data": {"name": "digits", "clients": 2, "samples_per_client": 10},
    ...         "model": {"name": "logistic"},
    ...         "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 2, "share": "gradient"},
    ...     },
    ...     quiet=True,
    ... )
    >>> setup.manifest.rounds, setup.manifest.noise_key, len(setup.messages)
    (2, 'secret', 5)

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right.
    """
    key = given_key(None if request.noise_key is None else str(request.noise_key))
    parsed, base = _config(request.config, seeded(request))
    engine = request.engine or "batched"
    with Reporter(request.quiet) as progress:
        experiment = experiment_of(parsed, base, request.allow_model)
        for remark in () if request.quiet else remarks(experiment):
            progress.note(remark)
        place, _ = _place(request.folder)
        capture.train(experiment, place, key=key, force=request.force, engine=engine, progress=progress)
        if (ended := ending(place, experiment)) is not None and not request.quiet:
            progress.note(ended)
    return open_setup(place)


def seeded(options: TrainOptions) -> list[str]:
    """The overrides, the seed among them."""
    return [*options.overrides, *([] if options.seed is None else [f"seed={options.seed}"])]


def experiment_of(config: Config, base: Path, allow_model: str | None) -> Experiment:
    """What is to be trained; what its canary audit asks for is looked at now, and not after a long training.

    Args:
        config: parsed. base: where its relative paths start. allow_model: a model that may be imported.

    Raises:
        BadInput: the config or the model is wrong.
    """
    canary_settings(config.attack.get(CANARY, {}))
    return build(config, base, allow_model)


@dataclass(frozen=True)
class RunRequest(AttackOptions):
    """What `run` is called with."""

    setup: Annotated[Setup | str | Path, Option("What `train` returned, or a setup's folder.")]
    folder: Annotated[
        Folder,
        Option("Of the results. None: a temporary one, which goes when this process ends; `.save(folder)` keeps it."),
    ] = None
    _: KW_ONLY
    force: Force = False
    quiet: Quiet = False


@called_with(RunRequest)
def run(request: RunRequest) -> SavedResults:
    """Attack what a setup captured and score the evidence; as `audit run`, and killed work goes on likewise. `.choice`
    of the results says what ran and what did not, `.ablated` what a piece of knowledge is worth.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right.
    """
    setup, seed, weights = request.setup, request.seed, request.lpips_weights
    if not isinstance(setup, Setup | str | Path):
        raise BadInput(f"setup is a {type(setup).__name__}; expected what dpfl_audit.train returned, or a folder")
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadInput(f"seed = {seed!r}: expected a whole number from 0 to 2⁶³ − 1")
    asked = part(request, AttackOptions) | {"lpips_weights": None if weights is None else Path(weights)}
    source = setup.folder if isinstance(setup, Setup) else Path(setup)
    place, temporary = _place(request.folder)
    with Reporter(request.quiet) as progress:
        runner.run(source, place, runner.RunOptions(**asked), force=request.force, progress=progress)
    return SavedResults.read(place, temporary=temporary)


@dataclass(frozen=True)
class ChooseRequest(StudyFolderOptions, SearchOptions, GoalLimits):
    """What `choose` is called with. vary: by key its values, or "LOW..HIGH"; or texts as after --vary."""

    config: Annotated[Tables, Option("The path of a TOML file; or its tables as a mapping.")]
    folder: Annotated[Folder, Option("Of the study. None: a temporary one, which goes when this process ends.")] = None
    _: KW_ONLY
    vary: Annotated[
        Mapping[str, Sequence[Any] | str] | Sequence[str],
        Option('What may change: by key its values, or "LOW..HIGH"; or texts as after --vary of the command.'),
    ]
    quiet: Quiet = False


@called_with(ChooseRequest)
def choose(request: ChooseRequest) -> Study:
    """Choose noise and clipping: train, attack and price many settings, and attack the best one again; as `audit
    choose`, and killed work goes on likewise. `.chosen`, `.sentence`, `.trials` and `.folder` of what comes back.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right.
    """
    config, vary = request.config, request.vary
    if not isinstance(config, str | Path | Mapping):
        raise BadInput(f"config is a {type(config).__name__}; expected a TOML file's path, or a mapping of its tables")
    if isinstance(vary, Mapping):
        varied = tuple(f"{key}={v if isinstance(v, str) else json.dumps(list(v))}" for key, v in vary.items())
    else:
        varied = texts("vary", vary)
    options = options_of_study(request, varied)
    place, _ = _place(request.folder)
    source = dict(config) if isinstance(config, Mapping) else Path(config)
    with Reporter(request.quiet) as progress:
        return carry_out_study(source, place, options, force=request.force, progress=progress)


def _config(config: object, overrides: Sequence[str]) -> tuple[Config, Path]:
    """The config, and where its relative paths start."""
    if isinstance(config, str | Path):
        return read_config(Path(config), overrides), Path(config).parent
    if isinstance(config, Config):
        return parse_config(config.model_dump(), "config", overrides), Path()
    if isinstance(config, Mapping):
        return parse_config(config, "config", overrides), Path()
    raise BadInput(
        f"config is a {type(config).__name__}; expected a TOML file's path, a mapping of its tables, or a Config"
    )


def _place(folder: str | Path | None) -> tuple[Path, bool]:
    """The folder to write, and whether it goes when this process ends: then nobody else may read it either."""
    if folder is not None:
        return Path(folder), False
    made = Path(tempfile.mkdtemp(prefix="dpfl-audit-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made, True
