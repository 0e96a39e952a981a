"""What no model gets stands beside an accuracy, and a model that is no better is said to be so wherever it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfl_audit.audit.choose.goals import Goals
from dpfl_audit.audit.choose.outcome import Performance, outcome_of
from dpfl_audit.audit.choose.trial import trained_outcome
from dpfl_audit.audit.commands.run import _sentences
from dpfl_audit.audit.report.card import card_markdown
from dpfl_audit.audit.report.points import make_card
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run.audited import audited_setup
from dpfl_audit.audit.say.accuracy import useless
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build

ADULT = {"name": "adult", "classes": 2, "sizes": {"test": 13025}}  # 76.1 % of its test records are of one class


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, of the test records three in four are of the second; under this noise nothing is learned."""
    home, g = tmp_path_factory.mktemp("trained"), np.random.default_rng(0)
    arrays = {"inputs": g.normal(size=(40, 4)).astype(np.float32), "targets": np.arange(40) % 2}
    for split in ("test", "auxiliary"):
        arrays |= {f"{split}_inputs": arrays["inputs"][:20], f"{split}_targets": (np.arange(20) % 4 > 0).astype(int)}
    np.savez(home / "a.npz", **arrays)
    raw = {
        "data": {"name": "npz", "root": "a.npz", "clients": 2, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1},
        "scheme": {"name": "ldp", "rounds": 2, "clip": 0.05, "sigma": 1e4},
    }
    return train(build(parse_config(raw), home), home / "setup")


def test_a_training_measures_what_its_most_frequent_class_gets_for_the_auditor_alone(trained: Path) -> None:
    found, auditor = check_setup(trained)
    assert [figures["majority_accuracy"] for figures in auditor.rounds] == [0.75, 0.75]
    hidden = {"majority_accuracy", "balanced_accuracy", "test_auc"}
    assert all(hidden <= {*kept} and not hidden & {*public} for kept, public in zip(auditor.rounds, found.rounds))
    assert audited_setup(auditor).guessing_accuracy == 0.75
    outcome = trained_outcome(trained)
    assert outcome is not None and outcome.guessing == 0.75


@pytest.mark.parametrize(("accuracy", "expected"), [(0.72, "worse than"), (0.762, "not shown to be better"), (0.8, "")])
def test_a_model_that_is_no_better_than_none_is_said_to_be_so_everywhere(
    accuracy: float, expected: str, make_results: Callable[..., Path], tmp_path: Path
) -> None:
    """72 % of Adult was said beside "guessing 50 %"."""
    setup: dict[str, Any] = {"test_accuracy": accuracy, "majority_accuracy": 0.761, "data": ADULT}
    folder = make_results(tmp_path / "r", n=2, noise_std=0.1, setup=setup)
    results = Results.read(folder)
    said = useless(results.setup)
    assert (expected in said) if expected else not said
    outcome = outcome_of([results])
    assert bool(outcome.useless) == bool(expected)
    (kept,) = Goals(accuracy_at_least=0.5).judged(outcome, None)
    assert "guessing 76.1" in kept.said
    card = card_markdown(make_card([folder]))
    for text in (render([folder]), card):
        assert "76.1" in text and ("no model" in text) == bool(expected)
    assert "76.1" in render([folder], None, "json")
    assert (said in _sentences(results)) == bool(expected)
    assert json.loads(results.model_dump_json())["setup"]["majority_accuracy"] == 0.761


def test_where_nobody_counted_the_classes_a_guess_gets_one_in_so_many_at_least(
    make_results: Callable[..., Path], tmp_path: Path
) -> None:
    results = Results.read(make_results(tmp_path / "r", n=2, setup={"data": ADULT}))
    assert results.setup.majority_accuracy is None and results.setup.guessing_accuracy == 0.5
    assert Performance(accuracies=(0.72,), test_records=13025).useless == ""
