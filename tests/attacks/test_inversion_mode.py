"""The network as clients ran it: BatchNorm by the batch's own statistics, and recordings of such networks."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dpfl_audit import Recorder
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.evaluate import loss_at
from dpfl_audit.attacks.inversion.read.mode import as_run, mode_assumed
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.folder import Setup
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.terms import Observer
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N = (1, 6, 6), 4

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.drop(torch.sigmoid(self.norm(self.conv(x))).flatten(1)))
"""


def network() -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    layers = [nn.Conv2d(1, 4, 3), norm, nn.Sigmoid(), nn.Dropout(0.0), nn.Flatten(), nn.Linear(64, 3)]
    module = nn.Sequential(*layers)
    module(torch.rand(20, *SHAPE))  # running statistics that are no batch's
    return module.train()


def trained_on(module: nn.Module) -> tuple[Target, Tensor]:
    images = torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(N) % 3
    own = copy.deepcopy(module)
    gradient = torch.autograd.grad(F.cross_entropy(own(images), labels), list(own.parameters()))
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    return Target("t", weights, torch.cat([g.flatten() for g in gradient]), labels, N), images


def test_the_batchs_statistics_explain_a_gradient_of_training_and_running_ones_do_not() -> None:
    module = network()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    target, images = trained_on(module)
    settings, losses = Inversion(tv=0.0, objective="euclidean"), {}
    for mode in ("train", "eval"):
        own = as_run(module, mode)
        losses[mode] = loss_at(Case(own, Layout.of(own), target, target.labels, SHAPE, settings, 0), images)
    assert losses["train"] < 1e-5 and losses["eval"] > 1e-3
    found = solve(module, [target], SHAPE, replace(settings, iterations=20), 0)[0]
    assert found.loss < 1
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_what_is_assumed_depends_on_the_network() -> None:
    assert mode_assumed(nn.Linear(2, 2), "train", False) == []
    assert "images' statistics" in mode_assumed(network(), "train", False)[0]
    assert "fixed statistics" in mode_assumed(network(), "eval", False)[0]
    assert "masks" in mode_assumed(nn.Dropout(0.1), "train", True)[0]
    (assumed,) = mode_assumed(nn.Linear(2, 2), "train", True)
    assert "Dropout" in assumed and "masks" not in assumed
    with pytest.raises(ValueError, match="mode"):
        Inversion(mode="test")


@pytest.mark.parametrize("beside", (False, True))
def test_a_recorded_network_with_batchnorm_and_dropout_is_attacked(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its running statistics may go over the wire too (beside): what is trained is read without them."""
    (tmp_path / "my_normed_net.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    net = __import__("my_normed_net").Net()
    images, labels = torch.rand(N, *SHAPE), torch.arange(N) % 3
    with Recorder("s", net, share="weights", data={"input_shape": SHAPE, "classes": 3}) as rec:
        rec.broadcast(0, net if beside else [p.detach().clone() for p in net.parameters()])
        torch.optim.SGD(net.parameters(), lr=0.1).zero_grad()
        F.cross_entropy(net(images), labels).backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        sent = net if beside else [p.detach() for p in net.parameters()]
        rec.upload(0, 0, sent, N, records=(images, labels))
    setup, _ = check_setup(Path("s"))
    assert isinstance(setup, Setup)
    view = setup.view(Observer.parse("server"), "my_normed_net:Net")
    assert view.layout == Layout.of(view.module) and all(len(m.load()) == view.layout.dim for m in view.messages)
    attack = Inversion(iterations=5)
    part = attack.parts(view, setup.knowledge())[0]
    found = attack.run_part(part, view, setup.knowledge(), 0)
    assert found.images.shape == (N, *SHAPE)
    assert any("images' statistics" in words for words in found.assumed)
    assert any("masks" in words for words in found.assumed)
