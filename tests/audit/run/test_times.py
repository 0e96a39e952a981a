"""A run has one time left for all of its work, and its minutes hold all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpfl_audit
import numpy as np
import pytest
from dpfl_audit.attacks.cost import minutes
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run import RunOptions, carry_out, opened
from dpfl_audit.audit.run.planning import planned_cells
from dpfl_audit.audit.run.times import classifier_operations
from dpfl_audit.audit.timetable import WHOLE
from dpfl_audit.defenses.workers import HERE


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A setup of 120 images of 28 × 28 pixels, for which no classifiers come with the package."""
    folder = tmp_path_factory.mktemp("times")
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (120, 1, 28, 28), dtype=np.uint8)
    np.savez(folder / "images.npz", inputs=images, targets=np.arange(120) % 3)
    config: dict[str, Any] = {
        "data": {"name": "npz", "root": str(folder / "images.npz"), "clients": 2, "samples_per_client": 10},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": {"name": "ldp", "clip": 1.0, "sigma": 1.0, "rounds": 1},
        "capture": {"clients": [0], "auxiliary": 40},
        "attack": {"inversion": {"iterations": 30}},
    }
    return dpfl_audit.train(config, folder / "setup", noise_key="published", quiet=True).folder


def test_the_time_of_a_run_is_one_and_never_goes_back(pictures: Path, tmp_path: Path) -> None:
    """Attacks, scores and prices were three times, of which the second began anew without a time left."""
    heard: list[tuple[int, int, str]] = []
    planned: list[float] = []
    job = opened(pictures, RunOptions(attacks=("inversion",), pixels_only=True))
    progress = lambda done, total, /, words="": heard.append((done, total, words))  # noqa: E731
    carry_out(job, tmp_path / "results", progress=progress, announce=planned.append)
    shares = [done for done, _, _ in heard]
    assert {total for _, total, _ in heard} == {WHOLE} and shares == sorted(shares)
    words = list(dict.fromkeys(words for _, _, words in heard))
    assert words[:2] == ["attacking", "scoring"]
    cells = planned_cells(job, HERE).cells
    assert sum(cell.part.records for cell in cells) == 10 * len(cells)
    assert planned[0] > minutes(sum(cell.part.work for cell in cells)) > 0
    carry_out(job, tmp_path / "results", announce=planned.append)
    assert len(planned) == 1  # what is there already takes no time


def test_the_minutes_hold_the_classifiers_too(pictures: Path, tmp_path: Path) -> None:
    """Four in five of a first run's seconds went to them, and no minute of --minutes."""
    whole = opened(pictures, RunOptions())
    cost = minutes(classifier_operations(whole.setup, whole.options))
    assert 0.05 < cost < 10 / 3 and not whole.options.pixels_only
    assert whole.choice is not None and cost + sum(ran.minutes for ran in whole.choice.ran) <= 10
    few = opened(pictures, RunOptions(minutes=2 * cost))
    assert few.options.pixels_only and not opened(pictures, RunOptions(minutes=4 * cost)).options.pixels_only
    assert classifier_operations(few.setup, few.options) == 0
    carry_out(few, tmp_path / "few")
    entry = next(entry for entry in Results.read(tmp_path / "few").attacks if entry.attack == "inversion")
    assert "minutes" in entry.not_measured["feature_cosine"] and "psnr" in entry.numbers
