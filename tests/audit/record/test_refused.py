"""A recorder that is open ends no training: what it refuses is warned of once, and the setup is called incomplete."""

from __future__ import annotations

import json
import warnings
from math import inf, nan, sqrt

import pytest
import torch
from command import called
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.format import RECORDED_CALLS

START = {"w": torch.zeros(2000)}
NOISE = Gaussian(clip=1.0, noise_std=0.5)
TWO_ROUNDS = get_epsilon_gaussian(0.5 / sqrt(2), 1e-5)


def value(seed: int) -> dict[str, torch.Tensor]:
    return {"w": 0.5 * torch.randn(2000, generator=torch.Generator().manual_seed(seed))}


def proven(folder) -> dict[str, float]:
    rows = table(folder).rows
    return {r.observer: r.proven for r in rows if (r.unit, r.adjacency) == ("client", "zero_out")}


def recorded(folder, wrong, strict=False, rounds=2):
    """Rounds of two clients; `wrong(rec)` is called in the first, after its uploads."""
    with Recorder(folder, START, mechanism=NOISE, strict=strict) as rec:
        for t in range(rounds):
            rec.broadcast(t, START)
            for client in range(2):
                rec.upload(t, client, value(2 * t + client), 5)
            if t == 0:
                wrong(rec)
    return folder


def not_finite(rec) -> None:
    rec.upload(0, 2, {"w": torch.full((2000,), nan)}, 5)


HARMLESS = {
    "figures": lambda rec: rec.figures(0, test_accuracy=2.0),
    "raw": lambda rec: rec.raw(0, 0, {"v": torch.zeros(2)}),
    "candidates": lambda rec: rec.candidates(torch.zeros(3, 4), torch.zeros(2), [0]),
    "a round that is no more": lambda rec: rec.again(1, 0, value(0)),
}
UNCOUNTED = {
    "broadcast": lambda rec: rec.broadcast(1, {"w": torch.full((2000,), nan)}),
    "out of turn": lambda rec: rec.upload(3, 0, value(9), 5),
    "no client": lambda rec: rec.upload(0, -1, value(9), 5),
}


def test_a_refused_upload_is_warned_of_once_and_priced_as_bare(tmp_path, capsys):
    def twice(rec) -> None:
        not_finite(rec)
        rec.upload(0, 3, {"other": torch.zeros(1)}, 5)

    with pytest.warns(UserWarning, match="^upload of client 2 in round 0: .*not finite; the training goes on") as seen:
        folder = recorded(tmp_path / "s", twice)
    assert len(seen) == 1 and seen[0].filename == __file__
    status, out, _ = called(capsys, "check", str(folder), "--json")
    assert status == 0 and json.loads(out)["incomplete"] is True
    (row,) = [d for d in check_setup(folder)[1].declared if d.what == RECORDED_CALLS]
    assert row.status == "defect" and "client 2" in row.why and row.why.endswith("call more")
    assert "is incomplete:" in called(capsys, "check", str(folder))[1]
    assert proven(folder)["server"] == inf
    with pytest.raises(BadInput, match="not finite"):
        recorded(tmp_path / "t", not_finite, strict=True)


@pytest.mark.parametrize("case", HARMLESS)
def test_what_was_not_sent_changes_no_price(case, tmp_path):
    with pytest.warns(UserWarning, match="the setup is marked as incomplete"):
        folder = recorded(tmp_path / "s", HARMLESS[case])
    (row,) = [d for d in check_setup(folder)[1].declared if d.what == RECORDED_CALLS]
    assert row.status == "defect" and proven(folder)["server"] == pytest.approx(TWO_ROUNDS)


@pytest.mark.parametrize(("case", "rounds"), [(case, n) for case in UNCOUNTED for n in (2, 1)])  # 1: the last model
def test_where_something_was_sent_that_nothing_counts_nothing_is_proven(case, rounds, tmp_path):
    with pytest.warns(UserWarning, match="marked as incomplete"):
        folder = recorded(tmp_path / "s", UNCOUNTED[case], rounds=rounds)
    (row,) = [d for d in check_setup(folder)[1].declared if d.what == RECORDED_CALLS]
    assert row.status == "contradicted" and set(proven(folder).values()) == {inf}


def test_a_recording_of_nothing_ends_no_loop_and_one_without_a_fault_is_whole(tmp_path, capsys):
    with pytest.warns(UserWarning, match="no client uploaded anything"), Recorder(tmp_path / "s", START):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = recorded(tmp_path / "t", lambda rec: None)
    assert "is whole:" in called(capsys, "check", str(folder))[1] and proven(folder)["server"] < inf


def test_a_kill_keeps_what_was_refused(tmp_path):
    rec = Recorder(tmp_path / "s", START, mechanism=NOISE)
    rec.broadcast(0, START)
    rec.upload(0, 0, value(0), 5)
    with pytest.warns(UserWarning):
        rec.figures(0, test_accuracy=2.0)
    rec.broadcast(1, START)
    rec.abandon()
    with Recorder(tmp_path / "s", START, mechanism=NOISE) as rec:
        assert rec.next_round == 1
        rec.broadcast(1, START)
        rec.upload(1, 0, value(1), 5)
    assert [d.status for d in check_setup(tmp_path / "s")[1].declared if d.what == RECORDED_CALLS] == ["defect"]


def test_a_closed_recorder_is_no_open_one(tmp_path):
    with Recorder(tmp_path / "s", START, mechanism=NOISE) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, value(0), 5)
    with pytest.raises(BadInput, match="closed"):
        rec.upload(0, 1, value(1), 5)
