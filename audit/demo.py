"""`audit demo`: the thesis's client on bundled photographs, attacked under several noises and clips, on one page; and a
small study that answers which noise and clip to take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..defenses.progress import Progress
from ..metrics.perceptual import Net
from .choose.goals import Goals
from .choose.study import Study, StudyOptions, carry_out_study
from .errors import BadInput
from .lock import writing
from .report.render import render
from .run import RunOptions, run
from .setup.capture import train
from .setup.config import Config, parse_config
from .setup.description import digest_of
from .setup.experiment import Experiment, build
from .setup.key import PUBLISHED
from .setup.reading import plain_json
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
        minutes=0.5,
        baseline=True,
        key=PUBLISHED,
    )


def study_config() -> dict[str, Any]:
    """Ten clients with 60 digits each, ten rounds of two epochs: 91 % without noise, where guessing has 10 %."""
    return {
        "name": "demo study",
        "seed": 0,
        "data": {"name": "digits", "clients": 10, "samples_per_client": 60},
        "model": {"name": "mlp", "options": {"widths": [64]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20, "epochs": 2},
        "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 0.1, "rounds": 10},
        "capture": {"candidates": 100},
        "attack": {"inversion": {"iterations": 120}},
    }


STUDY_FOLDER = "study"
CANARY_LASTS = 2  # settings
STUDY_LASTS = 2
STAGES = {"training rounds": (0.0, 0.1), "attacking": (0.1, 0.95), "scoring": (0.95, 1.0)}  # of a setting's time


@dataclass(frozen=True, eq=False)
class _Whole:
    """The progress of the whole demo, out of that of its setting `number` of `count`; the last is the canary, which
    goes through two rows of the table.
    """

    progress: Progress
    number: int
    count: int
    name: str
    rows: list[str] = field(default_factory=list)

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        if words.startswith("canary"):
            if words not in self.rows:
                self.rows.append(words)
            begin, end = ((len(self.rows) - back) / 2 for back in (1, 0))
            scale, words = CANARY_LASTS, "canary"
        elif words in STAGES and self.number + 1 < self.count:
            (begin, end), scale = STAGES[words], 1
        else:
            return
        share = self.number + scale * min(1.0, begin + (end - begin) * done / max(1, total))
        whole = self.count - 1 + CANARY_LASTS + STUDY_LASTS
        self.progress(int(1000 * share), 1000 * whole, f"{self.number + 1} of {self.count}, {self.name}: {words}")


STUDY_STAGES = {"settings": (0.0, 0.5), "again": (0.5, 0.9), "one step": (0.9, 1.0)}  # of a study's time


@dataclass(frozen=True, eq=False)
class _AtLast:
    """The progress of the whole demo, out of that of the study that comes after `count` settings. Its batches each run
    from nothing to all; the whole stays where it was.
    """

    progress: Progress
    count: int
    heard: list[int] = field(default_factory=lambda: [0])

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        before = self.count - 1 + CANARY_LASTS
        begin, end = next((part for name, part in STUDY_STAGES.items() if words.startswith(name)), (0.0, 0.0))
        share = begin + (end - begin) * min(1.0, done / max(1, total))
        self.heard.append(max(self.heard[-1], int(1000 * (before + STUDY_LASTS * share))))
        self.progress(self.heard[-1], 1000 * (before + STUDY_LASTS), f"which noise: {words}")


@dataclass(frozen=True, eq=False)
class Demo:
    """page: of all settings. study: which noise and clip to take."""

    page: Path
    study: Study


def demo(output: Path, *, quick: bool = False, weights: Net | None = None, progress: Progress | None = None) -> Demo:
    """Train, attack and report every setting, then choose one of several on another federation. A killed demo goes on
    where it was, and what another demo left in the folder (of other options, another version, or before there were
    weights for LPIPS) is made anew.

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
    results = []
    work = [(setting, config, RunOptions(attacks=("inversion",), quick=quick)) for setting, config in configs()]
    work.append((CANARY_SETTING, canary_config(), RunOptions(attacks=("canary",), quick=True)))
    for number, (setting, config, options) in enumerate(work):
        folder = output / setting.folder
        step = None if progress is None else _Whole(progress, number, len(work), setting.name)
        experiment = build(config, output)
        anew = _holds_another(folder / "setup", experiment)
        train(experiment, folder / "setup", key=PUBLISHED, force=anew, progress=step)
        run(folder / "setup", folder / "results", options, force=True, progress=step)  # keeps what is of this run
        results.append(folder / "results")
    page = output / "report.html"
    render(results, page, "html")

    at_last = None if progress is None else _AtLast(progress, len(work))
    folder = output / STUDY_FOLDER
    try:
        study = carry_out_study(study_config(), folder, study_options(), progress=at_last)
    except BadInput:  # a study of another version or other options is there
        study = carry_out_study(study_config(), folder, study_options(), force=True, progress=at_last)
    return Demo(page, study)


def _holds_another(folder: Path, experiment: Experiment) -> bool:
    """Whether a setup of something else, or one that cannot be read, is in the way."""
    manifest = folder / "setup.json"
    if not manifest.exists():
        return False
    try:
        return bool(plain_json(manifest.read_text())["digest"] != digest_of(experiment))
    except (ValueError, KeyError, TypeError):
        return True
