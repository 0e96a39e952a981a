"""The mean and std in front of a model are everybody's: of private rows, they are a release that every observer sees;
of anything else, no private row moves them.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.report.facts import facts
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.federation import STATISTICS
from dpfl_audit.defenses.terms import Observer

DELTA = 1e-5
STAR = ("server", "downlink", "model", "uplink(1)", "uplink(2)")
SCHEMES = {
    "dpsgd": ({"sigma": 4.0}, STAR),
    "cdp": ({"sigma": 1.0, "participants": 2}, STAR),
    "anonymous-gossip": ({"neighbours": 2, "train_share": 1.0, "epsilon": 8}, ("peer", "uplink(1)")),
    "anonymous-leader": ({"train_share": 1.0, "epsilon": 8}, ("peer", "leader", "uplink(1)")),
}


def table(path: Path, first: float = 0.0, test: bool = False) -> Path:
    """400 rows of two features, or 300 and 40 to test with; the first value of row 0 is `first`."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(400, 2)).astype(np.float32), np.arange(400) % 2
    inputs[0, 0] = first
    split = {"test_inputs": inputs[300:340], "test_targets": targets[300:340]} if test else {}
    np.savez(path, inputs=inputs[:300] if test else inputs, targets=targets[:300] if test else targets, **split)
    return path


def made(folder: Path, scheme: str = "dpsgd", data: dict | None = None, rounds: int = 2, **written) -> Experiment:
    table(folder / "t.npz", **written)
    raw = {
        "data": {"name": "npz", "root": "t.npz", "clients": 4, **(data or {})},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 20, "steps": 2},
        "scheme": {"name": scheme, "rounds": rounds, **SCHEMES[scheme][0]},
        "capture": {"auxiliary": 10, "candidates": 20},
    }
    return build(parse_config(raw), folder)


def proven(ledger, observers) -> list:
    return rows(ledger, None, DELTA, tuple(Observer.parse(o) for o in observers))


# --- what no private row moves


@pytest.mark.parametrize("test", [False, True])
def test_either_the_mean_and_std_do_not_know_a_row_or_nothing_is_proven(test, tmp_path):
    """The hostile review's case: one row of a million moves both (proven .497, counting 5.38)."""
    without, present = (made(tmp_path, first=first, test=test) for first in (0.0, 1e5))
    row = {float(e.data.inputs[:, 0].max()) for e in (without, present)}
    assert max(row) == 1e5  # row 0 is trained on
    same = (without.data.mean, without.data.std) == (present.data.mean, present.data.std)
    table_of = [proven(planned_ledger(e), STAR) for e in (without, present)]
    if test:  # nothing but training rows to take them from
        assert not same and all(r.proven == inf for table in table_of for r in table)
        assert all("private data" in r.notes[0] for table in table_of for r in table)
    else:
        assert (
            same
            and table_of[0] == table_of[1]
            and all(r.proven is not None and isfinite(r.proven) for r in table_of[0])
        )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "data", [{"mean": [0.0, 0.0], "std": [1.0, 1.0]}, {"statistics": "auxiliary"}, {"statistics": "none"}]
)
def test_who_is_told_how_can_avoid_it(data, tmp_path):
    one, other = (made(tmp_path, data=data, test=True, first=first) for first in (0.0, 1e5))
    assert (one.data.mean, one.data.std) == (other.data.mean, other.data.std)
    assert all(isfinite(row.proven or 0) for row in proven(planned_ledger(one), STAR))
    held = 30 if data.get("statistics") == "auxiliary" else 0
    assert one.data.description["sizes"] == {"training": 300 - held, "test": 40, "auxiliary": held}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"mean": [0.0, 0.0]}, "given together"),
        ({"mean": [0.0, 0.0], "std": [1.0, 1.0], "statistics": "none"}, "without statistics"),
        ({"mean": [0.0], "std": [1.0]}, "2 finite numbers each, one a feature"),
        ({"mean": [0.0, 0.0], "std": [1.0, 0.0]}, "data.std.1 = 0.0: expected a number above 0"),
        ({"statistics": "published"}, "nothing is published of npz"),
        ({"statistics": "all"}, "'published', 'auxiliary', 'none' or 'training'"),
        ({"options": {"statistics": "training"}}, "'statistics' is no option"),
    ],
)
def test_what_cannot_be_is_one_sentence(data, words, tmp_path):
    with pytest.raises(BadInput, match=words) as error:
        made(tmp_path, data=data)
    assert "\n" not in str(error.value)


def test_the_number_of_classes_is_not_counted_from_training_rows(tmp_path):
    """A model has an output a class, and everybody sees how many: one private label must not decide it."""
    path = table(tmp_path / "c.npz")
    arrays = dict(np.load(path))
    arrays["targets"][0] = 7
    np.savez(path, **arrays)
    raw = {"data": {"name": "npz", "root": "c.npz"}, "model": {"name": "logistic"}}
    with pytest.raises(BadInput, match="say how many by classes"):
        build(parse_config(raw), tmp_path)
    raw["data"]["classes"] = 8  # type: ignore[assignment]
    assert build(parse_config(raw), tmp_path).data.classes == 8


# --- what a private row moves


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_observer_is_told_planned_and_trained_alike(scheme, tmp_path):
    """Whatever an observer sees, it sees the model's mean and std: its ε is infinite for that reason, in every row,
    and what is told is nobody's upload.
    """
    observers = SCHEMES[scheme][1]
    experiment = made(tmp_path, scheme, {"statistics": "training"})
    finite = made(tmp_path, scheme, {"statistics": "auxiliary"})
    _, auditor = check_setup(capture.train(experiment, tmp_path / "s"))
    for ledger in (planned_ledger(experiment), auditor.ledger):
        assert ledger is not None
        for row in proven(ledger, observers):
            assert row.proven == inf and any(STATISTICS in note for note in row.notes)
        (told,) = [r for r in ledger.releases.values() if r.problem == STATISTICS]
        assert all(told.id in message.releases for message in ledger.messages.values())
        assert ledger.participations() == planned_ledger(finite).participations()
    assert not any(STATISTICS in note for row in proven(planned_ledger(finite), observers) for note in row.notes)


def test_a_resumed_training_tells_it_too(tmp_path):
    class Stop(Exception):
        pass

    def stop(done: int, total: int, words: str) -> None:
        raise Stop

    experiment = made(tmp_path, data={"statistics": "training"}, rounds=3)
    whole, _ = check_setup(capture.train(experiment, tmp_path / "whole"))
    with pytest.raises(Stop):
        capture.train(experiment, tmp_path / "s", progress=stop)
    resumed, auditor = check_setup(capture.train(experiment, tmp_path / "s"))
    assert resumed.manifest.files == whole.manifest.files
    assert auditor.ledger is not None and all(row.proven == inf for row in proven(auditor.ledger, STAR))


def test_auxiliary_rows_that_changed_are_another_setup(tmp_path):
    """They decide the mean and std, so the digest covers them."""
    experiment = made(tmp_path)
    folder = capture.train(experiment, tmp_path / "s")
    data = experiment.data
    moved = replace(data, description={**data.description, "auxiliary_sha256": "0"})
    with pytest.raises(BadInput, match="another setup"):
        capture.train(replace(experiment, data=moved), folder)


@pytest.mark.parametrize(
    ("data", "words"), [({"statistics": "training"}, "private"), ({}, "auxiliary"), ({"statistics": "none"}, "none")]
)
def test_the_page_says_where_they_come_from(data, words, tmp_path):
    setup, _ = check_setup(capture.train(made(tmp_path, data=data, rounds=1), tmp_path / "s"))
    assert setup.manifest.data.description["statistics_of"] == {**{"statistics": "auxiliary"}, **data}["statistics"]
    results = run(tmp_path / "s", tmp_path / "r", RunOptions(attacks=("membership-cosine",), quick=True))
    (fact,) = [fact for fact in facts(results) if fact["name"] == "mean and std"]
    assert words in f"{fact['value']} {fact['note']}"
