"""Membership behind a BatchNorm: candidates are asked with the running statistics that were sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import Attack, Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.membership import SequenceMembership
from dpfl_audit.attacks.membership.captured_attack import CapturedMembership
from dpfl_audit.attacks.membership.loss_attack import LossThreshold
from dpfl_audit.attacks.membership.network import network_sent
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.metrics.membership import auc
from torch import Tensor, nn
from torch.nn import functional as F

MEMBERS = 40
State = dict[str, Tensor]


def network() -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm1d(20), nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)).train()


def state(net: nn.Module) -> tuple[Tensor, State]:
    flat = Layout.of(net).join({name: p.detach().clone() for name, p in net.named_parameters()})
    return flat, {name: value.float().clone() for name, value in net.named_buffers()}


def seen(kind: str, round: int, sent: tuple[Tensor, State]) -> Seen:
    broadcast = kind == "model"
    sender, kind = ("server", "weights") if broadcast else ("client", kind)
    return Seen(f"{sender} {round}", round, sender, (), kind, MEMBERS, lambda: sent[0], broadcast, lambda: sent[1])


def trained(seed: int, share: str = "weights", steps: int = 30) -> tuple[View, Knowledge]:
    """Records of unlike means and scales; a client trains on the first 40 of 80 candidates, after others' rounds."""
    torch.manual_seed(seed)
    x = torch.randn(120, 20) * (3 * torch.rand(20) + 0.2) + 4 * torch.randn(20)
    y = torch.randint(3, (120,))
    net = network()
    rate = torch.optim.SGD(net.parameters(), lr=0.1)

    def train(rows: slice, times: int) -> tuple[Tensor, State]:
        for _ in range(times):
            rate.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            rate.step()
        return state(net)

    before, after = train(slice(80, 120), 30), train(slice(MEMBERS), steps)
    sent = after
    if share == "update":
        sent = after[0] - before[0], {name: value - before[1][name] for name, value in after[1].items()}
    messages = (seen("model", 0, before), seen(share, 0, sent), seen("model", 1, after))
    facts = PublicFacts("recorded", share, "sgd", 0.1, MEMBERS, steps, None, noise_std=0.0)
    view = View("server", messages, network(), Layout.of(net), facts, (20,), 3)
    return view, Knowledge({}, x[:0], y[:0], x[:80], y[:80], torch.arange(80))


def area(attack: Attack, steps: int, share: str) -> float:
    found = []
    for seed in range(4):
        view, known = trained(seed, share, steps)
        scores = attack.run_part(attack.parts(view, known)[0], view, known, 0).scores  # type: ignore[union-attr]
        found.append(auc(scores[:MEMBERS], scores[MEMBERS:])[0])
    return sum(found) / len(found)


@pytest.mark.few(4)
@pytest.mark.parametrize("share", ("weights", "update"))
@pytest.mark.parametrize(
    ("attack", "steps", "least"),
    [
        (LossThreshold(), 30, 0.8),  # .66 with a fresh network's statistics
        (CapturedMembership("local-loss"), 30, 0.8),  # .66
        (CapturedMembership("cosine"), 30, 0.72),  # .58
        (CapturedMembership("gradient-difference"), 30, 0.68),  # .57
        (SequenceMembership(), 1, 0.85),  # ended in an error
    ],
)
def test_records_behind_a_batchnorm_are_found(attack: Attack, steps: int, least: float, share: str) -> None:
    assert area(attack, steps, share) > least


def test_the_statistics_are_those_that_were_sent_and_of_noised_uploads_the_models() -> None:
    for share in ("weights", "update"):
        view, _ = trained(0, share)
        start, upload, end = view.messages
        for message, other in ((start, start), (upload, end), (end, end)):
            mean = network_sent(view, message)[0].running_mean  # type: ignore[index]
            assert torch.allclose(mean, other.beside()["0.running_mean"], atol=1e-5)
        noised = replace(view, facts=replace(view.facts, noise_std=0.1))
        assert torch.equal(network_sent(noised, upload)[0].running_mean, start.beside()["0.running_mean"])  # type: ignore[index]
        plain = replace(view, module=nn.Linear(20, 3))
        assert network_sent(plain, upload) is plain.module
