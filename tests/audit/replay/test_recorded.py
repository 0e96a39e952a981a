"""A loop replayed by the calls of its recorder: right ones pass, wrong ones are named, and the setup says which."""

from __future__ import annotations

import json
from math import inf

import numpy as np
import pytest
import torch
from command import called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup

CLIP, STD, ROUNDS = 1.0, 0.5, 3


def clients(seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    return [(torch.randn(8, 40, generator=draw), torch.randn(8, generator=draw)) for _ in range(4)]


def clipped(update: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(update).all():
        return torch.zeros_like(update)
    return update * min(1.0, CLIP / max(float(update.norm()), 1e-30))


def loop(clip=clipped, count=lambda x: 8, figure=None):
    """FedAvg of a linear regression; what is given takes the place of one of its parts."""

    def rounds(data, rec):
        weights = {"w": torch.zeros(40)}
        for t in range(ROUNDS):
            rec.broadcast(t, weights)
            sent = []
            for c in range(len(data)):
                x, y = data[c]
                raw = clip(-0.1 * x.T @ (x @ weights["w"] - y))
                update = {"w": raw + STD * torch.randn(40)}
                rec.upload(t, c, update, count(x))
                rec.raw(t, c, {"w": raw})
                sent.append(update["w"])
            if figure is not None:
                rec.figures(t, loss=figure(data))
            weights = {"w": weights["w"] + torch.stack(sent).mean(0)}
        return weights

    return rounds


def opened(folder):
    return Recorder(folder, {"w": torch.zeros(40)}, mechanism=Gaussian(clip=CLIP, noise_std=STD), strict=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_loop_is_not_accused_and_stays_declared(seed, tmp_path):
    """With clients of NaN, of infinity and of 1e30 among the neighbours."""
    with opened(tmp_path / "s") as rec:
        found = rec.replay(loop(), clients(seed))
        assert found.violations == () and found.unit == "client" and 0.2 < found.longest <= 1 + 1e-5
        loop()(clients(seed), rec)
    (row,) = [d for d in check_setup(tmp_path / "s")[1].declared if d.what == "replay"]
    assert row.status == "declared" and "No violation" in row.why
    assert all(r.proven < inf for r in table(tmp_path / "s").rows if r.unit == "client" and r.observer == "server")


WRONG = {
    "not clipped": (loop(clip=lambda u: u), "sensitivity", "raw value of client"),
    "NaN passes": (loop(clip=lambda u: u * min(1.0, CLIP / float(u.norm()))), "sensitivity", "raw value of client"),
    "clipped twice as long": (loop(clip=lambda u: 2 * clipped(u)), "sensitivity", "raw value of client"),
    "counts follow data": (loop(count=lambda x: int((x[:, 0] > 0).sum()) + 1), "invariance", "num_examples of client"),
    "a loss in the open": (
        loop(figure=lambda data: float(np.nanmean([float(x[0, 0]) for x, _ in data]))),
        "invariance",
        "figures",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_loop_is_named_and_nothing_is_proven(case, tmp_path, capsys):
    wrong, kind, name = WRONG[case]
    with opened(tmp_path / "s") as rec:
        found = rec.replay(wrong, clients(), folder=tmp_path / "replayed")
        assert any(v.kind == kind and v.name.startswith(name) for v in found.violations)
        loop()(clients(), rec)
    assert json.loads((tmp_path / "replayed" / "replay.json").read_text())["unit"] == "client"
    (row,) = [d for d in check_setup(tmp_path / "s")[1].declared if d.what == "replay"]
    assert row.status == "contradicted" and f"Violated: {kind}" in row.why
    assert row.why.count("Violated") == 1  # the first; how many more there are is a number
    assert all(pair.split()[-2] == "client" or pair.startswith("'") for pair in found.pairs)  # what an entry is
    assert {r.proven for r in table(tmp_path / "s").rows if r.unit == "client"} == {inf}
    assert (
        called(capsys, "check", tmp_path / "s")[0] == 0 and called(capsys, "check", tmp_path / "s", "--strict")[0] == 2
    )


def test_it_is_for_loops_before_their_first_round(tmp_path):
    with opened(tmp_path / "s") as rec:
        with pytest.raises(BadInput, match="told the tap of nothing"):
            rec.replay(lambda data, rec: None, clients())
        loop()(clients(), rec)
        with pytest.raises(BadInput, match="before its first round"):
            rec.replay(loop(), clients())
