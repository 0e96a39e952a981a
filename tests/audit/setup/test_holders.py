"""Rows of holders: a lot deals each holder's rows to training and test, so members are compared with its own others."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.base import Reconstruction
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.scoring.answers import Lots, of_margins
from dpfl_audit.audit.scoring.line_ups import LineUps
from dpfl_audit.audit.scoring.membership_entries import judges_of, lot_behind
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.worlds.federation.case import experiment_of
from safetensors.torch import load_file, save_file

HOLDERS = {"north": 240, "south": 160, "west": 100}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that tell their holder: of every one `a` lies elsewhere, and the classes' shares differ."""
    home, rows = tmp_path_factory.mktemp("holders"), ["a,b,y,h"]
    for number, (name, count) in enumerate(HOLDERS.items()):
        rows += [f"{10 * number + i % 3},{i * i % 17},{int(i % (number + 2) == 0)},{name}" for i in range(count)]
    (home / "table.csv").write_text("\n".join(rows))
    data = {"name": "csv", "root": "../table.csv", "target": "y", "options": {"holder": "h"}, "partition": "writer"}
    raw = {
        "data": {**data, "clients": 3},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": {"name": "ldp", "rounds": 1, "clip": 1.0, "sigma": 1.0},
        "capture": {"clients": [0, 1, 2], "candidates": 160, "auxiliary": 90},
    }
    return train(build(parse_config(raw), home / "configs"), home / "setup")


def test_outsiders_are_judged_in_the_members_shares_of_every_holder_and_class(setup: Path) -> None:
    """Whatever tells a holder, or a class, tells nothing of membership then."""
    opened, auditor = open_setup(setup), Auditor(open_setup(setup))
    truth, knowledge = auditor.truth, opened.knowledge()
    assert truth is not None and truth.candidate_holders is not None and lot_behind(auditor).comparable
    dealt = judges_of(auditor, knowledge, [f"client-{c}" for c in range(3)], seed=0)
    assert not isinstance(dealt, str)
    kinds = list(zip(truth.candidate_holders[dealt.rows].tolist(), knowledge.candidate_targets[dealt.rows].tolist()))
    member = dealt.member.tolist()
    inside, outside = (Counter(k for k, is_member in zip(kinds, member) if is_member is side) for side in (True, False))
    factor = sum(outside.values()) / sum(inside.values())
    assert len(inside) == 6 and all(abs(outside[kind] - factor * count) < 1 for kind, count in inside.items())
    assert dealt.judge[dealt.rows].tolist() == truth.candidate_holders[dealt.rows].tolist()
    owners, holders = truth.candidate_owners, truth.candidate_holders
    assert owners is not None and torch.equal(owners[owners >= 0], holders[owners >= 0])


def test_beside_a_row_stand_others_of_its_holder(setup: Path) -> None:
    opened, auditor = open_setup(setup), Auditor(open_setup(setup))
    truth = auditor.truth
    assert truth is not None and truth.holders is not None
    assert list(experiment_of(auditor).data.group_names) == auditor.source.holders == sorted(HOLDERS)
    for holder in range(3):
        rows = (truth.holders == holder).nonzero().flatten().tolist()
        others, _ = LineUps(opened, truth, opened.knowledge()).others(rows)
        assert len(others) > 3
        assert ((others.flatten(1)[:, 0] - truth.inputs[rows[0]].flatten()[0]).abs() < 5).all()  # `a` tells the holder


def test_pictures_that_tell_the_holder_alone_are_of_no_record(setup: Path) -> None:
    """Messages of all holders are one question; dealt across holders, every such guess was called a leak (p = 3e-4)."""
    opened, truth = open_setup(setup), Auditor(open_setup(setup)).truth
    assert truth is not None and truth.by_holder is not None
    sent: list[tuple[list[int], Reconstruction]] = []
    for rows in truth.messages.values():
        own, name = truth.by_holder[1] == truth.by_holder[0][rows[0]], f"client-{len(sent)}"
        noise = 0.1 * torch.randn(3, *truth.inputs.shape[1:], generator=torch.Generator().manual_seed(len(sent)))
        images = truth.gallery_inputs[own].mean(0) + noise
        made = Reconstruction("guess", "server", "one-round", 0, name, (), images, images, torch.zeros(3), 0.0, ())
        sent.append((list(rows), made))
    answer = of_margins(sent, LineUps(opened, truth, opened.knowledge()), Lots(checks=4, seed=0, runs=1))
    assert answer is not None and answer.least < 0.001 and answer.p_value > 0.05


@pytest.mark.parametrize("name", ["records", "gallery"])
def test_holders_of_another_number_of_records_are_refused(setup: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(setup, tmp_path / "setup"))
    path = copy / "truth" / f"{name}.safetensors"
    held = load_file(path)
    save_file({**held, "holders": held["holders"][1:].clone()}, path)
    with pytest.raises(BadInput, match=f"{name}.safetensors: tensor 'holders'"):
        _ = Auditor(open_setup(copy)).truth
