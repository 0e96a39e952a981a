"""`audit demo`: the thesis's client on bundled photographs, attacked under several noises and clips, on one page; and a
small study that answers which noise and clip to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..defenses.progress import Progress
from ..metrics.perceptual import Net
from .choose.carry_out import carry_out_study
from .choose.goals import Goals
from .choose.opening import StudyOptions
from .choose.study import Study
from .errors import BadInput
from .lock import writing
from .report.render import render
from .run import RunOptions, carry_out_together, opened, run
from .setup.capture import train
from .setup.config import Config, parse_config
from .setup.description import digest_of
from .setup.experiment import Experiment, build
from .setup.key import PUBLISHED
from .setup.reading import plain_json
from .timetable import Timetable, WorkKind
from .weights import fetch


@dataclass(frozen=True)
class DemoSetting:
    """A folder name, a name for people, and the scheme."""

    folder: str
    name: str
    scheme: dict[str, Any]


SETTINGS = (
    DemoSetting("no-noise", "no noise, no clip", {"name": "fedavg"}),
    DemoSetting("clip-only", "clip C = 0.5, no noise", {"name": "ldp", "clip": 0.5, "sigma": 0.0}),
    DemoSetting("noise-0.01", "clip C = 1, σ = 0.01", {"name": "ldp", "clip": 1.0, "sigma": 0.01}),
    DemoSetting("noise-0.1", "clip C = 1, σ = 0.1", {"name": "ldp", "clip": 1.0, "sigma": 0.1}),
    DemoSetting("noise-1", "clip C = 1, σ = 1", {"name": "ldp", "clip": 1.0, "sigma": 1.0}),
    DemoSetting("noise-10", "clip C = 1, σ = 10", {"name": "ldp", "clip": 1.0, "sigma": 10.0}),
)
ROUNDS = 2
ITERATIONS = 120  # 300 fit the noise: at σ = .01 and .1 they are 2 dB worse


def configs() -> list[tuple[DemoSetting, Config]]:
    """The planned work: THESIS 4's single-end client, one round's gradient a message.

    The client has 100 classes with one image each, batches of 25 and an MLP 3×1024.
    """
    work = []
    for setting in SETTINGS:
        raw = {
            "name": setting.name,
            "seed": 0,
            "data": {"name": "photos", "classes": 100, "clients": 1, "samples_per_client": 100},
            "model": {"name": "mlp"},
            "local": {"optimiser": "adam", "lr": 1e-3, "batch_size": 25},
            "scheme": {**setting.scheme, "rounds": ROUNDS, "share": "gradient"},
            "capture": {"clients": [0], "rounds": 1},
            "audit": {"delta": 1e-5, "unit": "client", "adjacency": "zero_out", "observer": "server"},
            "attack": {"inversion": {"iterations": ITERATIONS, "lr": 0.1, "labels": "known"}},
        }
        work.append((setting, parse_config(raw, f"demo {setting.folder}")))
    return work


CANARY_SETTING = DemoSetting(
    "canary",
    "canary on a small model, C = 1, σ = 1",
    {"name": "ldp", "clip": 1.0, "sigma": 1.0, "rounds": 1, "share": "update"},
)


def canary_config() -> Config:
    """The three ε side by side: the thesis's claim for one release of σ = 1, tested on a small network in seconds."""
    raw = {
        "name": CANARY_SETTING.name,
        "seed": 0,
        "data": {"name": "photos", "classes": 10, "clients": 1, "samples_per_client": 100},
        "model": {"name": "mlp", "options": {"widths": [4]}},
        "local": {"optimiser": "adam", "lr": 1e-3, "batch_size": 25, "epochs": 1},
        "scheme": CANARY_SETTING.scheme,
        "capture": {"clients": [0]},
        "audit": {"delta": 1e-5, "unit": "record", "adjacency": "zero_out", "observer": "server"},
        "attack": {"canary": {"draws": 1700}},  # 8·e^5.3 = 1,600 refute the claim
        "claim": "paper",
    }
    return parse_config(raw, "demo canary")


def study_options() -> StudyOptions:
    """Which noise, which clip? On a federation whose accuracy says something."""
    return StudyOptions(
        vary=("scheme.noise_multiplier=0.1,0.2,0.4,1", "scheme.clip=0.3,1"),
        goals=Goals(accuracy_at_least=0.6, leakage_at_most=0.2),
        trials=8,
        minutes=0.4,
        baseline=True,
        key=PUBLISHED,
    )


def study_config() -> dict[str, Any]:
    """Ten clients with 60 digits each, ten rounds of two epochs: 91 % without noise, where guessing has 14 %."""
    return {
        "name": "demo study",
        "seed": 0,
        "data": {"name": "digits", "clients": 10, "samples_per_client": 60},
        "model": {"name": "mlp", "options": {"widths": [64]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20, "epochs": 2},
        "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 0.1, "rounds": 10},
        "capture": {"candidates": 300},  # by fifty outsiders no limit on membership can be shown
        "attack": {"inversion": {"iterations": 120}},
    }


STUDY_FOLDER = "study"

# Seconds of two cores, by how each kind of work begins to tell of itself.
KINDS = {
    "training": WorkKind(2.0, ("training",)),
    "attacks": WorkKind(38.0, ("attacking",)),
    "scoring": WorkKind(10.0, ("scoring", "pricing rows")),
    "canary": WorkKind(14.0, ("canary", "pricing rows")),
    "study": WorkKind(46.0, ("settings", "again", "one step")),
}


@dataclass(frozen=True, eq=False)
class Demo:
    """page: of all settings. study: which noise and clip to take."""

    page: Path
    study: Study


def demo(output: Path, *, quick: bool = False, weights: Net | None = None, progress: Progress | None = None) -> Demo:
    """Train, attack and report every setting, then choose one of several on another federation. A killed demo goes on
    where it was, and what another demo left in the folder (of other options, or before there were weights
    for LPIPS) is made anew.

    weights: the backbone of LPIPS to fetch first, where torch's cache lacks it. None: nothing is fetched.
    """
    with writing(output):
        if weights is not None:
            fetch(weights, progress)
        return _demo(output, quick, progress)


def folders(output: Path) -> list[Path]:
    """Where the settings are, each with setup/ and results/."""
    return [output / setting.folder for setting in (*SETTINGS, CANARY_SETTING)]


def _demo(output: Path, quick: bool, progress: Progress | None) -> Demo:
    planned = configs()
    table = Timetable(progress, KINDS)
    trainings = [table.plan({"training": 1}, setting.name) for setting, _ in planned]
    attacks = table.plan({"attacks": 1, "scoring": 1}, f"{len(planned)} settings")
    canary = table.plan({"canary": 1}, CANARY_SETTING.name)
    choosing = table.plan({"study": 1}, "which noise")
    for (setting, config), stage in zip(planned, trainings):
        _train(config, output, output / setting.folder / "setup", stage)
        stage.end()
    options = RunOptions(attacks=("inversion",), quick=quick)
    jobs = [opened(output / setting.folder / "setup", options) for setting, _ in planned]
    results = [output / setting.folder / "results" for setting, _ in planned]
    # They share their first weights, so their attacks are one computation. What is of this run is kept.
    carry_out_together(jobs, results, force=True, progress=attacks)
    attacks.end()

    folder = output / CANARY_SETTING.folder
    _train(canary_config(), output, folder / "setup", None)
    options = RunOptions(attacks=("canary",), quick=True)
    run(folder / "setup", folder / "results", options, force=True, progress=canary)
    canary.end()
    page = output / "report.html"
    render([*results, folder / "results"], page, "html")

    folder = output / STUDY_FOLDER
    try:
        study = carry_out_study(study_config(), folder, study_options(), progress=choosing)
    except BadInput:  # a study of other options is there
        study = carry_out_study(study_config(), folder, study_options(), force=True, progress=choosing)
    return Demo(page, study)


def _train(config: Config, output: Path, folder: Path, progress: Progress | None) -> None:
    """The setup in `folder`, kept where it is whole, made anew where it is of something else."""
    experiment = build(config, output)
    train(experiment, folder, key=PUBLISHED, force=_holds_another(folder, experiment), progress=progress)


def _holds_another(folder: Path, experiment: Experiment) -> bool:
    """Whether a setup of something else, or one that cannot be read, is in the way."""
    manifest = folder / "setup.json"
    if not manifest.exists():
        return False
    try:
        return bool(plain_json(manifest.read_text())["digest"] != digest_of(experiment))
    except (ValueError, KeyError, TypeError):
        return True
