"""`audit demo`: the thesis's client on bundled photographs, attacked under several noises and clips, on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..defenses.progress import Progress
from .report.render import render
from .run import RunOptions, run
from .setup.capture import train
from .setup.config import Config, parse_config
from .setup.experiment import build
from .setup.key import PUBLISHED


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
ITERATIONS = 300


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
        "model": {"name": "mlp", "options": {"widths": [32]}},
        "local": {"optimiser": "adam", "lr": 1e-3, "batch_size": 25, "epochs": 1},
        "scheme": CANARY_SETTING.scheme,
        "capture": {"clients": [0]},
        "audit": {"delta": 1e-5, "unit": "record", "adjacency": "zero_out", "observer": "server"},
        "claim": "paper",
    }
    return parse_config(raw, "demo canary")


def demo(output: Path, *, quick: bool = False, progress: Progress | None = None) -> Path:
    """Train, attack and report every setting; returns the page. A killed demo goes on where it was."""
    results = []
    work = [(setting, config, RunOptions(quick=quick)) for setting, config in configs()]
    work.append((CANARY_SETTING, canary_config(), RunOptions(attacks=("canary",), quick=True)))
    for setting, config, options in work:
        folder = output / setting.folder

        def step(done: int, total: int, words: str = "", *, name: str = setting.name) -> None:
            if progress is not None:
                progress(done, total, f"{name}: {words}")

        train(build(config, output), folder / "setup", key=PUBLISHED, progress=step)
        run(folder / "setup", folder / "results", options, progress=step)
        results.append(folder / "results")
    page = output / "report.html"
    render(results, page, "html")
    return page
