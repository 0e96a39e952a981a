"""`audit demo`: one training three times, bare, with a published scheme's claim, and as recommended, attacked each
time; on one page. Of texts it is trained twice: bare, and as recommended.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..defenses.progress import Progress
from .lock import writing
from .report.render import render
from .results.format import Results
from .run import RunOptions, carry_out, opened
from .run.times import OF_RUNS
from .say.demo import answer
from .setup.capture import train
from .setup.config import Config, parse_config
from .setup.description import digest_of
from .setup.experiment import Experiment, build
from .setup.reading import plain_json
from .timetable import Timetable, WorkKind

QUICK = 0.5  # of the people, in a quick demo
ROUNDS = 16
DELTA = 8e-4  # below one in 800
ITERATIONS = 25  # enough for what comes back exactly
ATTACKED = (0, 1, 2, 3)  # whose messages are looked at


@dataclass(frozen=True)
class DemoData:
    """Of so many people, so many records each; the network, and its step."""

    name: str
    people: int
    records: int
    model: dict[str, Any]
    lr: float


# 800 of the 1,797 that scikit-learn brings; notes with fewer words in a message than the network is wide
DIGITS = DemoData("digits", 200, 4, {"name": "mlp", "options": {"widths": [32]}}, 0.4)
NOTES = DemoData("notes", 400, 3, {"name": "transformer", "options": {"width": 80, "layers": 1}}, 0.5)


@dataclass(frozen=True)
class DemoSetting:
    """One of the three trainings.

    name: of its folder, and on the page. scheme: as in a config. observer: who attacks. attacks: with what. captured:
    whose updates are kept; None: everybody's, of a sum, as without its originals nobody could say what came back.
    rounds: how many rounds of them. seconds: of two cores, to attack and score.
    """

    name: str
    scheme: dict[str, Any]
    observer: str
    attacks: tuple[str, ...]
    captured: tuple[int, ...] | None = ATTACKED
    rounds: int = 1
    claim: str | None = None
    seconds: float = 10.0
    data: DemoData = DIGITS


SETTINGS = (
    DemoSetting("bare", {"name": "fedavg"}, "server", ("inversion", "membership-sequence")),
    DemoSetting(
        "published",
        {"name": "ldp", "clip": 1.0, "sigma": 6.0},
        "server",
        ("canary",),
        rounds=ROUNDS,  # the claim is about all of them
        claim="paper",
        seconds=14.0,
    ),
    DemoSetting(
        "recommended",
        # ε = 7.6 or less for a person and for an image, whether removed or replaced
        {"name": "distributed-gaussian", "clip": 1.0, "noise_multiplier": 4.2},
        "aggregate",
        ("inversion", "membership-loss-trajectory"),
        captured=None,
        seconds=50.0,
    ),
)
TEXTS = (
    DemoSetting("bare", {"name": "fedavg"}, "server", ("inversion-text", "membership-sequence"), data=NOTES),
    DemoSetting(
        "recommended",
        {
            "name": "distributed-gaussian",
            "clip": 1.0,
            "noise_multiplier": 8.0,
        },  # ε below 8 for a person and for a note, removed or replaced
        "aggregate",
        ("inversion-text", "membership-loss-trajectory"),
        captured=None,
        data=NOTES,
    ),
)


def config(setting: DemoSetting, quick: bool = False) -> Config:
    """The same people, records and network for all; which has learned after 16 rounds. quick: of fewer people."""
    data = setting.data
    people = int(QUICK * data.people) if quick else data.people
    raw = {
        "name": setting.name,
        "seed": 0,
        "data": {"name": data.name, "clients": people, "samples_per_client": data.records},
        "model": data.model,
        "local": {"optimiser": "sgd", "lr": data.lr, "batch_size": data.records, "epochs": 1},
        "scheme": {**setting.scheme, "rounds": ROUNDS},
        "capture": {"clients": list(setting.captured or range(people)), "rounds": setting.rounds, "candidates": 600},
        "audit": {"delta": DELTA, "unit": "client", "adjacency": "zero_out", "observer": setting.observer},
        # 1,500 draws can show ε = 5 by counting; the claim is below 3
        "attack": {"inversion": {"iterations": ITERATIONS, "labels": "inferred"}, "canary": {"draws": 1500}},
        "claim": setting.claim,
    }
    return parse_config(raw, f"demo {setting.name}")


@dataclass(frozen=True, eq=False)
class Demo:
    """page: of all settings. answers: a sentence of each."""

    page: Path
    answers: tuple[str, ...]


def demo(output: Path, *, quick: bool = False, text: bool = False, progress: Progress | None = None) -> Demo:
    """Train, attack and report every setting. A killed demo goes on where it was, and what another demo left in the
    folder (of other options) is made anew.

    Args:
        output: the folder. quick: fewer people and iterations. text: notes in place of digits.
        progress: called with what is done.
    """
    with writing(output):
        return _demo(output, trainings_of(text), quick, progress)


def trainings_of(text: bool) -> tuple[DemoSetting, ...]:
    """The trainings of a demo. text: of notes."""
    if text:
        return TEXTS
    return SETTINGS


def folders(output: Path, text: bool = False) -> list[Path]:
    """Where the settings are, each with setup/ and results/."""
    return [output / setting.name for setting in trainings_of(text)]


def _demo(output: Path, settings: tuple[DemoSetting, ...], quick: bool, progress: Progress | None) -> Demo:
    kinds = {setting.name: WorkKind(setting.seconds, OF_RUNS) for setting in settings}
    kinds["training"] = WorkKind(5.0, ("training",))
    table = Timetable(progress, kinds)
    stages = [
        (setting, table.plan({"training": 1}, setting.name), table.plan({setting.name: 1}, setting.name))
        for setting in settings
    ]
    results = []
    for setting, training, attack in stages:
        folder = output / setting.name
        _train(config(setting, quick), output, folder / "setup", training)
        training.end()
        shorter = quick and setting.claim is None  # a claim falls sooner by all rounds than by a quick audit's few
        options = RunOptions(attacks=setting.attacks, quick=shorter, pixels_only=True)  # eight pixels to a side
        # What is of this run is kept.
        carry_out(opened(folder / "setup", options), folder / "results", force=True, progress=attack)
        attack.end()
        results.append(folder / "results")
    page = output / "report.html"
    render(results, page, "html")
    return Demo(page, tuple(answer(Results.read(folder)) for folder in results))


def _train(trained: Config, output: Path, folder: Path, progress: Progress | None) -> None:
    """The setup in `folder`, kept where it is whole, made anew where it is of something else."""
    experiment = build(trained, output)
    train(experiment, folder, key=None, force=_holds_another(folder, experiment), progress=progress)


def _holds_another(folder: Path, experiment: Experiment) -> bool:
    """Whether a setup of something else, or one that cannot be read, is in the way."""
    manifest = folder / "setup.json"
    if not manifest.exists():
        return False
    try:
        return bool(plain_json(manifest.read_text())["digest"] != digest_of(experiment))
    except (ValueError, KeyError, TypeError):
        return True
