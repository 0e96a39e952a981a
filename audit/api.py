"""`audit train`, `audit run` and `audit choose` from Python: `dpfl_audit.train`, `run` and `choose`."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..defenses.nearest import instead
from . import run as runner
from .choose.carry_out import carry_out_study
from .choose.goals import Goals
from .choose.opening import StudyOptions
from .choose.study import Study
from .errors import BadInput
from .options import BESTS, DEVICES, ENGINES, ROWS, SEARCHES, Best, DeviceName, EngineName, Rows, Search
from .progress import Reporter
from .proven.target import build
from .report.saved import SavedResults
from .setup import capture
from .setup.config import CANARY, Config, parse_config, read_config
from .setup.folder import Setup, open_setup
from .setup.key import given_key
from .setup.remarks import ending, remarks
from .worlds.federation.plan import canary_settings


def train(
    config: str | Path | Mapping[str, Any] | Config,
    folder: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    noise_key: str | Path | None = None,
    engine: EngineName = "batched",
    allow_model: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> Setup:
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

    Args:
        config: the path of a TOML file; or its tables as a mapping; or a `Config`. Relative paths in it start at the
            file's folder, else at the working folder.
        folder: of the setup. None: a temporary one, which goes when this process ends, its noise key with it.
        overrides: "table.key=value", as after `--set`.
        seed: in place of the config's.
        noise_key: "published", or a file of 64 hex digits. None: a fresh one, kept in `folder`/auditor/noise-key.
        engine: batched, looped or sliced (for large cohorts).
        allow_model: a model to import, "package.module:function"; it must repeat the config's name.
        force: replace a different setup in `folder`.
        quiet: no progress and no notes on stderr.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right.
    """
    _check_choice("engine", engine, ENGINES)
    key = given_key(None if noise_key is None else str(noise_key))
    seeded = [*_texts("overrides", overrides), *([] if seed is None else [f"seed={seed}"])]
    parsed, base = _config(config, seeded)
    canary_settings(parsed.attack.get(CANARY, {}))  # now, and not after a long training
    with Reporter(quiet) as progress:
        experiment = build(parsed, base, allow_model)
        for remark in () if quiet else remarks(experiment):
            progress.note(remark)
        place, _ = _place(folder)
        capture.train(experiment, place, key=key, force=force, engine=engine, progress=progress)
        if (ended := ending(place, experiment)) is not None and not quiet:
            progress.note(ended)
    return open_setup(place)


def run(
    setup: Setup | str | Path,
    folder: str | Path | None = None,
    *,
    attacks: Sequence[str] = (),
    minutes: float | None = None,
    observers: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seed: int = 0,
    device: DeviceName = "auto",
    lpips_weights: str | Path | None = None,
    quick: bool = False,
    ablate: bool = False,
    allow_model: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> SavedResults:
    """Attack what a setup captured and score the evidence; as `audit run`, and killed work goes on likewise.

    Args:
        setup: what `train` returned, or a setup's folder.
        folder: of the results. None: a temporary one, which goes when this process ends; `.save(folder)` keeps it.
        attacks: names of `audit list attacks`, "auto" among them; () for every one that applies within `minutes`.
        minutes: without `attacks`, how long all may take, counted from shapes for two cores; `.choice` of the results
            says what ran and what did not. None: 60, without canaries.
        observers: who attacks; () for the config's.
        overrides: "attack.key=value", as after `--set`.
        seed: of the attacks, 0 to 2⁶³ − 1.
        device: auto, cpu or cuda.
        lpips_weights: file or folder of LPIPS backbone weights; None for torch's cache.
        quick: a third of the iterations and one message; the report says so.
        ablate: also run the inversion without each piece of what it knows; `.ablated` of the results. Without
            `attacks` it is the inversion alone that runs.
        allow_model: a model to import, "package.module:function"; it must repeat the setup's name.
        force: replace different results in `folder`.
        quiet: no progress on stderr.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right.
    """
    if not isinstance(setup, Setup | str | Path):
        raise BadInput(f"setup is a {type(setup).__name__}; expected what dpfl_audit.train returned, or a folder")
    _check_choice("device", device, DEVICES)
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadInput(f"seed = {seed!r}: expected a whole number from 0 to 2⁶³ − 1")
    options = runner.RunOptions(
        attacks=_texts("attacks", attacks),
        minutes=minutes,
        observers=_texts("observers", observers),
        overrides=_texts("overrides", overrides),
        seed=seed,
        device=device,
        lpips_weights=None if lpips_weights is None else Path(lpips_weights),
        quick=quick,
        allow_model=allow_model,
        ablate=ablate,
    )
    source = setup.folder if isinstance(setup, Setup) else Path(setup)
    place, temporary = _place(folder)
    with Reporter(quiet) as progress:
        runner.run(source, place, options, force=force, progress=progress)
    return SavedResults.read(place, temporary=temporary)


def choose(
    config: str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    vary: Mapping[str, Sequence[Any] | str] | Sequence[str],
    accuracy_at_least: float | None = None,
    reidentified_at_most: float | None = None,
    leakage_at_most: float | None = None,
    epsilon_at_most: float | None = None,
    best: Best = "accuracy",
    trials: int = 24,
    rows: Rows | None = None,
    search: Search = "auto",
    seeds: int = 3,
    minutes: float = 6.0,
    baseline: bool | None = None,
    overrides: Sequence[str] = (),
    noise_key: str | Path | None = None,
    device: DeviceName = "auto",
    allow_model: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> Study:
    """Choose noise and clipping: train, attack and price many settings, and attack the best one again; as `audit
    choose`, and killed work goes on likewise. `.chosen`, `.sentence`, `.trials` and `.folder` of what comes back.

    Args:
        config: the path of a TOML file; or its tables as a mapping.
        folder: of the study. None: a temporary one, which goes when this process ends.
        vary: by key its values, or "LOW..HIGH"; or texts as after `--vary`.
        accuracy_at_least, reidentified_at_most, leakage_at_most, epsilon_at_most: what is to be kept (`Goals`).
        best: of what keeps it, by "accuracy" or "privacy".
        trials: how many settings to look at.
        rows: "auxiliary" or "training" records; None for auxiliary ones where there are enough.
        search: "auto" or "random".
        seeds: how often the best setting is trained again. minutes: for the attacks on it. baseline: also train it
            without clip and noise, to compare accuracy with; None: on auxiliary records.
        overrides: "table.key=value", as after `--set`.
        noise_key: "published", or a file of 64 hex digits. None: a fresh one, kept in `folder`/auditor/noise-key.
        device: where inversions compute: auto, cpu or cuda.
        allow_model: a model to import, "package.module:function"; it must repeat the config's name.
        force: replace a different study in `folder`.
        quiet: no progress on stderr.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right.
    """
    _check_choice("best", best, BESTS)
    _check_choice("search", search, SEARCHES)
    _check_choice("rows", rows or "auxiliary", ROWS)
    _check_choice("device", device, DEVICES)
    if not isinstance(config, str | Path | Mapping):
        raise BadInput(f"config is a {type(config).__name__}; expected a TOML file's path, or a mapping of its tables")
    goals = Goals(accuracy_at_least, reidentified_at_most, leakage_at_most, epsilon_at_most, best)
    if isinstance(vary, Mapping):
        texts = tuple(f"{key}={v if isinstance(v, str) else json.dumps(list(v))}" for key, v in vary.items())
    else:
        texts = _texts("vary", vary)
    options = StudyOptions(
        vary=texts,
        goals=goals,
        trials=trials,
        rows=rows,
        search=search,
        seeds=seeds,
        minutes=minutes,
        baseline=baseline,
        overrides=_texts("overrides", overrides),
        key=given_key(None if noise_key is None else str(noise_key)),
        allow_model=allow_model,
        device=device,
    )
    place, _ = _place(folder)
    source = dict(config) if isinstance(config, Mapping) else Path(config)
    with Reporter(quiet) as progress:
        return carry_out_study(source, place, options, force=force, progress=progress)


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


def _texts(name: str, given: object) -> tuple[str, ...]:
    """Several names. One alone would be taken letter by letter."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise BadInput(f"{name} = {given!r}: expected a list of texts, such as [{str(given)[:60]!r}]")
    return tuple(given)


def _check_choice(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise BadInput(f"{name} = {given!r} cannot be chosen{instead(str(given), known)}")


def _place(folder: str | Path | None) -> tuple[Path, bool]:
    """The folder to write, and whether it goes when this process ends: then nobody else may read it either."""
    if folder is not None:
        return Path(folder), False
    made = Path(tempfile.mkdtemp(prefix="dpfl-audit-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made, True
