"""A hand-written loop with the recorder gives what the pipeline gives: the same messages, ε, evidence and verdict."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit import run as runner
from dpfl_audit.audit.judge.judgement import AuditEvidence, judge
from dpfl_audit.audit.record.declared import ADDED, SECRECY
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.say.verdict import verdict
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.key import PUBLISHED
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.randomness import Keystream, generator, secret_seed
from dpfl_audit.defenses.steps.perturb import draw
from dpfl_audit.defenses.wire import opaque_id
from torch import nn

ROUNDS, CLIP, STD, LR = 2, 0.05, 0.001, 0.1
RAW = {
    "seed": 3,
    "data": {"name": "digits", "clients": 3, "samples_per_client": 8},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": LR, "batch_size": 8},
    "scheme": {"name": "local-gaussian", "clip": CLIP, "noise_multiplier": STD / CLIP, "rounds": ROUNDS},
    "capture": {"clients": [0], "auxiliary": 60},
    "claim": {"epsilon": 5.0},
    "attack": {"inversion": {"iterations": 20}},
}


def loop(folder: Path, net: nn.Module, data: Dataset, clients: list[torch.Tensor]) -> None:
    """FedAvg with clipped and noised updates as somebody writes it; noise drawn as the pipeline draws it."""
    weights = {name: p.detach().clone() for name, p in net.named_parameters()}
    with Recorder(
        folder,
        net,
        claim=5.0,
        mechanism=Gaussian(clip=CLIP, noise_std=STD, by="client"),
        average="mean",
        data={"name": "digits", "classes": 10, "by_lot": True},
        tables={"local": RAW["local"], "attack": RAW["attack"]},
        keep=[0],
        seed=RAW["seed"],
        auxiliary=granted(data.auxiliary_inputs, data.auxiliary_targets),
        gallery=(data.test_inputs[:60], data.test_targets[:60]),
        pool=pool(data, clients),
    ) as rec:
        for t in range(ROUNDS):
            rec.broadcast(t, weights)
            merged = {name: torch.zeros_like(w, dtype=torch.float64) for name, w in weights.items()}
            for c, rows in enumerate(clients):
                x, y = data.inputs[rows], data.targets[rows]
                mine = copy.deepcopy(net)
                mine.load_state_dict(weights)
                nn.functional.cross_entropy(mine(x), y).backward()
                update = torch.cat([(-LR * p.grad).flatten() for p in mine.parameters()]).double()
                clipped = update * min(1.0, CLIP / float(update.norm()))
                noisy = clipped + noise(t, c, update.numel())
                order = rows.sort().values
                records = (data.inputs[order], data.targets[order])
                sent = unflat(noisy.float(), weights)
                rec.upload(t, c, sent, num_examples=len(rows), records=records)
                rec.raw(t, c, unflat(update.float(), weights))
                for name, value in unflat(noisy, weights).items():
                    merged[name] += value / len(clients)
            weights = {name: (w.double() + merged[name]).float() for name, w in weights.items()}
        rec.broadcast(ROUNDS, weights)


def noise(round: int, client: int, dim: int) -> torch.Tensor:
    secret = secret_seed(RAW["seed"], PUBLISHED)
    raw = opaque_id(secret, "raw", round, client)
    return draw("gaussian", STD, dim, Keystream(secret, "noise", "release", round, client, raw))


def unflat(vector: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    parts = vector.split([w.numel() for w in like.values()])
    return {name: part.reshape(w.shape) for (name, w), part in zip(like.items(), parts)}


def granted(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pick = torch.randperm(len(inputs), generator=generator(RAW["seed"], "auxiliary"))[:60]
    return inputs[pick], targets[pick]


def pool(data: Dataset, clients: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The images of the audited client's labels that the lot left over."""
    left = torch.ones(len(data.targets), dtype=torch.bool)
    left[torch.cat(clients)] = False
    rows = left.nonzero().flatten()
    rows = rows[torch.randperm(len(rows), generator=generator(RAW["seed"], "pool"))]
    labels = data.targets[clients[0]].unique()
    rows = torch.cat([rows[data.targets[rows] == label][:200] for label in labels])
    return (data.inputs[rows], data.targets[rows]) if len(rows) else None


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("replay")
    experiment = build(parse_config(RAW), root)
    capture.train(experiment, root / "pipeline")
    loop(root / "loop", experiment.module, experiment.data, experiment.clients)
    return root / "pipeline", root / "loop"


def test_the_messages_are_the_same_but_for_the_last_bits(both):
    (one, _), (other, _) = map(check_setup, both)
    assert [m.id for m in one.messages] == [m.id for m in other.messages]
    assert one.manifest.layout == other.manifest.layout and one.manifest.clients == other.manifest.clients
    for a, b in zip(one.messages, other.messages):
        assert torch.allclose(one.load(a), other.load(b), atol=2e-6)
        assert a == b


@pytest.mark.full
def test_epsilon_evidence_and_verdict_are_the_same(both, tmp_path):
    options = runner.RunOptions(attacks=("inversion",), pixels_only=True)
    one, other = (runner.run(folder, tmp_path / folder.name, options) for folder in both)
    assert len(one.epsilon) == len(other.epsilon)
    for a, b in zip(one.epsilon, other.epsilon):
        same = ("observer", "unit", "adjacency", "delta", "claimed", "claimed_by", "accountant", "releases", "asked")
        assert [getattr(a, name) for name in same] == [getattr(b, name) for name in same]
        assert b.proven == pytest.approx(a.proven, rel=1e-6) and b.multiplier == pytest.approx(a.multiplier, rel=1e-6)
        assert any(note.startswith("Priced as its owner declares") for note in b.notes)
    # The pipeline's key is the published one here, so that both have the same noise; what is proven holds for a secret
    # one, which is what the loop's owner declares. And that it is declared, the verdict says.
    assert other.verdict.declared
    # A recording does not state its loss either, and noisy uploads cannot show it.
    assert not any(a.doubt for a in one.attacks) and all(b.doubt for b in other.attacks)
    doubted = [a.having(doubt=b.doubt) for a, b in zip(one.attacks, other.attacks)]
    expected = verdict(judge(replace(AuditEvidence.of(other), attacks=tuple(doubted))))
    assert other.verdict.model_copy(update={"proven": None}) == expected.model_copy(update={"proven": None})
    assert other.verdict.proven == pytest.approx(expected.proven, rel=1e-6) and expected.proof == "weak"
    assert [a.key for a in one.attacks] == [b.key for b in other.attacks] and len(
        one.attacks
    ) == 9  # 3 attacks of 2 rounds, and of their sum
    for a, b in zip(one.attacks, other.attacks):
        for name in ("psnr", "reidentified", "ssim"):
            assert b.value(name) == pytest.approx(a.value(name), abs=0.05), name


def test_what_the_loop_declares_is_checked(both):
    _, auditor = check_setup(both[1])
    status = {d.what: d.status for d in auditor.declared}
    assert [what for what in status if status[what] == "checked"] == ["norm bound", "noise", ADDED, "independence"]
    assert [what for what in status if status[what] == "declared"] == [
        SECRECY,
        "average",
        "low bits",
        "first model",
        "public settings",
        "completeness",
    ]
