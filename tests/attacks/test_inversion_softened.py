"""Softened kinks: what a softplus is, which networks get them, and images that the search among hard masks misses."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.softened import SOFTNESS, Softly, softens, softly_matched
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from messages import target_of
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (3, 8, 8)


class Residual(nn.Module):
    """Two convolutions around a shortcut; how its ReLUs are called is the test's."""

    def __init__(self, relu=F.relu) -> None:
        super().__init__()
        self.stem, self.inner, self.head = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1), nn.Linear(8, 3)
        self.norm, self.relu = nn.GroupNorm(2, 8), relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x - 0.5))
        return self.head(self.relu(self.norm(self.inner(x)) + x).mean((2, 3)))


def network(relu=F.relu) -> nn.Module:
    torch.manual_seed(0)
    return Residual(relu).eval()


def pictures(count: int) -> Tensor:
    """Smooth ones, in [0, 1]."""
    draw = torch.rand(count, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    return F.interpolate(draw, SHAPE[1:], mode="bilinear")


def in_place(x: Tensor) -> Tensor:
    x = 1 * x
    x.relu_()
    return x


RELUS = {
    "functional": F.relu,
    "torch": torch.relu,
    "method": lambda x: x.relu(),
    "module": nn.ReLU(),
    "module in place": nn.ReLU(inplace=True),
    "in place": in_place,
    "functional in place": lambda x: F.relu(x, inplace=True),
}


@pytest.mark.parametrize("relu", RELUS.values(), ids=RELUS)
def test_every_way_of_calling_a_relu_is_softened(relu) -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(0))
    wide = 0.5 * float(x.std(correction=0))
    with Softly(0.5) as softly:
        made = relu(x.clone())
    assert softly.met == 1
    assert torch.allclose(made, wide * torch.log1p(torch.exp(x / wide)), atol=1e-5)
    assert torch.equal(relu(x.clone()), x.clamp_min(0))  # outside it is as it was


@pytest.mark.parametrize("inplace", [False, True])
def test_a_leak_stays(inplace: bool) -> None:
    x = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    with Softly(1e-4):
        made = nn.LeakyReLU(0.2, inplace)(x.clone())
    assert torch.allclose(made, F.leaky_relu(x, 0.2), atol=1e-5)


class Fixed(Softly):
    """Of a temperature of its own: a ReLU's spread is taken for a constant, which it is not quite."""

    def _soft(self, z: Tensor) -> Tensor:
        return F.softplus(z / self.softness) * self.softness


def test_the_slope_is_that_of_the_soft_network() -> None:
    """Masks that move with the images included, which hard ReLUs leave out."""
    module = network().double()
    images, labels = pictures(2).double(), torch.tensor([0, 2])
    layout, aim, softly = Layout.of(module), target_of(module, images, labels), Fixed(0.3)
    objective = softly_matched(module, layout, [aim], labels[None], 1, "cosine", softly)
    at = torch.rand(1, 2, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    along = torch.randn(at.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    value, slope = objective(at)
    step = 1e-6
    rise = (objective(at + step * along)[0] - objective(at - step * along)[0]).item() / (2 * step)
    assert rise == pytest.approx(float((slope * along).sum()), rel=1e-5) and value.item() > 1e-3


def test_hardened_the_truth_is_the_minimum() -> None:
    """The same objective, whose softness falls from call to call."""
    module, images, labels = network(), pictures(2), torch.tensor([0, 2])
    aim, softly = target_of(module, images, labels), Softly(SOFTNESS[0])
    objective = softly_matched(module, Layout.of(module), [aim], labels[None], 1, "cosine", softly)
    soft = objective(images[None])[0].item()
    softly.softness = 1e-6
    assert objective(images[None])[0].item() < 1e-5 < 1e-3 < soft


def test_softened_are_networks_that_are_no_row_of_layers() -> None:
    assert softens(network(), SHAPE)
    assert not softens(network(torch.sigmoid), SHAPE)  # nothing to soften
    for name in ("mlp", "cnn6", "lenet"):
        shape = (3, 32, 32)
        row = models.build(name, input_shape=shape, classes=3, mean=[0.5] * 3, std=[0.25] * 3, seed=0).eval()
        assert not softens(row, shape)


@pytest.mark.full
def test_images_come_out_nearer_and_again_the_same() -> None:
    module, images = network(), pictures(1)
    aim, ticks = target_of(module, images, torch.tensor([1])), []
    hard = solve(module, [aim], SHAPE, Inversion(iterations=90), 0)[0]
    runs = [
        solve(module, [aim], SHAPE, Inversion(iterations=30, softened=3), 0, lambda *at: ticks.append(at))[0]
        for _ in range(2)
    ]
    assert torch.equal(runs[0].images, runs[1].images)
    once = [done for done, _ in ticks[: len(ticks) // 2]]
    assert once == sorted(set(once)) and len(once) == 90 and ticks[-1] == (1000, 1000)  # every iteration
    off = [-10 * math.log10(float((one.images - images).square().mean())) for one in (hard, runs[0])]
    assert off[1] > off[0]


def test_a_message_that_is_not_finite_has_an_infinite_loss() -> None:
    module = network()
    aim = target_of(module, pictures(1), torch.tensor([1]))
    broken = Target("t", aim.weights, torch.full_like(aim.gradient, float("nan")), aim.labels, 1)
    found = solve(module, [broken], SHAPE, Inversion(iterations=2, softened=2), 0)[0]
    assert found.loss == float("inf") and bool(found.images.isfinite().all())


def test_steps_too_large_for_numbers_leave_images() -> None:
    module = network()
    aim = target_of(module, pictures(1), torch.tensor([1]))
    found = solve(module, [aim], SHAPE, Inversion(iterations=2, softened=2, lr=1e30), 0)[0]
    assert bool(found.images.isfinite().all())


def test_several_messages_of_the_same_images_are_matched_together() -> None:
    module, images, labels = network(), pictures(2), torch.tensor([0, 2])
    first = target_of(module, images, labels)
    later = copy.deepcopy(module)
    with torch.no_grad():
        for p in later.parameters():
            p.mul_(1.1)
    both = replace(first, others=(target_of(later, images, labels),))
    softly = Softly(1e-6)
    objective = softly_matched(module, Layout.of(module), [both], labels[None], 1, "cosine", softly)
    assert objective(images[None])[0].item() < 1e-5
    assert objective(1 - images[None])[0].item() > 1e-3
