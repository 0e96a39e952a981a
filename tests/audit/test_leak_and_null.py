"""Inversion of messages that few tests send: each setting leaks with next to no noise, and shows nothing with so much
that its messages are noise alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpfl_audit
import pytest
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run import RunOptions, run
from tiers import quick

SGD = {"optimiser": "sgd", "lr": 0.1, "batch_size": 4}
LITTLE, MUCH = 0, 1
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, tuple[float, float]], str]] = {
    # local training; scheme; its noise, little and much; the observer
    "every tensor clipped by itself, a sum": (
        SGD,
        {"name": "fed-sdp", "clip": 0.5},
        {"sigma": (1e-4, 1e4)},
        "downlink",
    ),
    "clipped in the L1 norm": (SGD, {"name": "laplace", "clip": 60.0, "tau": 1}, {"noise_std": (1e-6, 1e3)}, "server"),
    "the largest components": (
        SGD,
        {"name": "lcdp", "top": 0.3},
        {"sigma_ldp": (1e-4, 1e4), "sigma_cdp": (1e-4, 1e4)},
        "server",
    ),
    "momentum": (
        {**SGD, "optimiser": "momentum"},
        {"name": "local-gaussian", "clip": 1.0},
        {"noise_multiplier": (1e-4, 1e3)},
        "server",
    ),
    "adam": (
        {**SGD, "optimiser": "adam", "lr": 1e-3},
        {"name": "local-gaussian", "clip": 10.0},
        {"noise_multiplier": (1e-7, 1e3)},
        "server",
    ),
}


def results_of(folder: Path, case: str, noise: int) -> Results:
    local, scheme, noises, observer = CASES[case]
    config = {
        "seed": 11,
        "claim": "none",
        "data": {"name": "digits", "clients": 2, "samples_per_client": 4},
        "model": {"name": "mlp", "options": {"widths": [64]}},
        "local": local,
        "scheme": {"rounds": 3, **scheme, **{name: values[noise] for name, values in noises.items()}},
        "capture": {"clients": [0, 1], "auxiliary": 60},
        "audit": {"observer": observer},
        "attack": {"inversion": {"iterations": 40, "objective": "euclidean"}},
    }
    setup = dpfl_audit.train(config, folder / "setup", noise_key="published", quiet=True)
    return run(setup.folder, folder / "results", RunOptions(attacks=("inversion",), pixels_only=True))


@pytest.mark.parametrize("case", quick(CASES, 1))
def test_it_leaks_without_noise_and_shows_nothing_of_noise_alone(case: str, tmp_path: Path) -> None:
    leak, null = (results_of(tmp_path / str(noise), case, noise) for noise in (LITTLE, MUCH))
    assert leak.verdict.level != "none found", leak.verdict.sentences[0]
    assert null.verdict.level == "none found" and null.verdict.measured, null.verdict.sentences[0]
    manners = {"one-round", "all-rounds"}
    assert {attack.manner for attack in leak.attacks} == {attack.manner for attack in null.attacks} == manners
