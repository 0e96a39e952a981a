"""`audit run`: the pieces of work, which of them run as one, and what a kill between them costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import content
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.audit.results.format import SCORING
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build

RAW = {
    "seed": 4,
    "data": {"name": "digits", "clients": 3, "samples_per_client": 20},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "adam", "lr": 0.01, "batch_size": 5},
    "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 2, "share": "gradient"},
    "capture": {"clients": [0, 1, 2], "truth": False},
    "attack": {"inversion": {"iterations": 10, "objective": "cosine"}},
}
PIXELS = RunOptions(pixels_only=True)


def test_what_other_rules_scored_is_scored_anew_from_its_evidence(tmp_path: Path, monkeypatch) -> None:
    """A gate passed on "none found" of other rules, though the same evidence failed it in a new folder."""
    setup = train(build(parse_config(RAW), tmp_path), tmp_path / "setup")
    run(setup, tmp_path / "a", PIXELS)
    before = content(tmp_path / "a", but=())
    path = tmp_path / "a" / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "scoring": SCORING - 1}))

    def never(*_: object) -> None:
        raise AssertionError("the evidence is there")

    monkeypatch.setattr(Inversion, "run_group", never)
    assert run(setup, tmp_path / "a", PIXELS).scoring == SCORING
    assert content(tmp_path / "a", but=()) == before


@pytest.mark.full
def test_a_round_is_attacked_as_one_and_a_kill_inside_it_changes_no_byte(tmp_path: Path, monkeypatch) -> None:
    calls: list[int] = []
    whole = Inversion.run_group

    def counted(self, parts, *rest):
        calls.append(len(parts))
        return whole(self, parts, *rest)

    monkeypatch.setattr(Inversion, "run_group", counted)
    setup = train(build(parse_config(RAW), tmp_path), tmp_path / "setup")
    run(setup, tmp_path / "a", PIXELS)
    # Three clients' messages of each of two rounds, and each sender's two rounds together; with a fixed prior again.
    assert sorted(calls) == [3, 3, 3] * 2
    calls.clear()
    run(setup, tmp_path / "b", PIXELS)
    before = content(tmp_path / "b", but=())
    lost = sorted(tmp_path.glob("b/evidence/*"))[4]
    lost.unlink()
    digest = tmp_path / "b" / "results.json"
    mark = tmp_path / "b" / ".work" / "digest"  # as a kill between two writes leaves it
    mark.parent.mkdir()
    mark.write_text(json.loads(digest.read_text())["digest"])
    digest.unlink()
    calls.clear()
    run(setup, tmp_path / "b", PIXELS)
    assert calls == [3] and content(tmp_path / "b", but=()) == before == content(tmp_path / "a", but=())
