"""One step of Adam or RMSprop: the first layer's gradient completed by its rank, and the images behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.read.local_training import Recipe, moved, noise_undone, undone
from dpfl_audit.attacks.inversion.read.one_step import arithmetic, one_step_factors
from dpfl_audit.attacks.inversion.read.step_factors import StepFactors
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies import by_step
from dpfl_audit.attacks.inversion.strategies.by_step import first_update, readable
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from messages import decibels
from tiers import quick
from torch import Tensor
from torch.nn import functional as F

SHAPE, N, LR = (3, 16, 16), 4, 1e-3
ADAPTIVE = pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])


def client(optimiser: str):
    """The network, what torch's one step on 4 small photographs makes of it, the photographs, and [G_W | G_b]."""
    data = photos.load(classes=10, samples=20, seed=0)
    module = models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=0, widths=[384, 384]
    ).eval()
    images = F.avg_pool2d(data.inputs[:N], 2)
    layout, named = Layout.of(module), dict(module.named_parameters())
    before = layout.join({name: p.detach().clone() for name, p in named.items()})
    kind = torch.optim.Adam if optimiser == "adam" else torch.optim.RMSprop
    step = kind(module.parameters(), lr=LR)
    F.cross_entropy(module(images), data.targets[:N]).backward()
    weight, bias = (named[name].grad for name in layout.names[:2])
    assert weight is not None and bias is not None
    gradient = torch.cat([weight, bias[:, None]], 1).double()
    step.step()
    update = layout.join({name: p.detach().clone() for name, p in named.items()}) - before
    for name, p in named.items():
        p.data.copy_(layout.split(before)[name])
    recipe = Recipe(optimiser, LR, (N,), 1)
    read = undone(recipe, update, before, 0.0, scale_known=True)
    labels = data.targets[:N].sort()[0]
    target = Target("t", before, read, labels, N, scale_known=False, recipe=recipe, update=update)
    return module, target, images, gradient


def off(found: Tensor, true: Tensor) -> float:
    return float((found.double() - true).norm() / true.norm())


def fitted(optimiser: str) -> tuple[StepFactors, Tensor, Tensor]:
    """The gradient's factors, the gradient with each weight read by itself, and the true one."""
    module, target, _, true = client(optimiser)
    assert target.labels is not None and target.recipe is not None
    update, precision, _ = first_update(module, target, target.labels, SHAPE)
    weight, bias, *_ = Layout.of(module).split(target.gradient).values()
    alone = torch.cat([weight, bias[:, None]], 1)
    return one_step_factors(update, target.recipe, alone, precision), alone, true


@pytest.mark.parametrize("optimiser", quick(["adam", "rmsprop"], 1))
def test_the_rank_tells_the_gradients_that_epsilon_does_not(optimiser: str) -> None:
    """And how far a neuron's gradient is off is known, by which neurons are weighed where errors' zeros are sought:
    within a factor of 3 in the middle, of 10 for most.
    """
    factors, alone, true = fitted(optimiser)
    (completed,) = factors.gradients()
    assert off(completed, true) < min(0.05, 0.1 * off(alone, true)) and factors.unsure is not None
    live = true.square().sum(1) > 0
    ratio = ((completed.double() - true)[live].square().mean(1).sqrt() / factors.unsure[live]).log()
    assert ratio.median().abs() < torch.tensor(3.0).log() and ratio.quantile(0.9) < torch.tensor(10.0).log()


@pytest.mark.few(1)
@pytest.mark.parametrize("optimiser", quick(["adam", "rmsprop"], 1))
def test_one_step_gives_the_images_before_anything_is_optimised(optimiser: str) -> None:
    module, target, images, _ = client(optimiser)
    assert readable(module, target)
    settings = Inversion(iterations=2, exact=True, manners=("one-round",))
    ticks: list[tuple[int, int]] = []
    (found,) = solve(module, [target], SHAPE, settings, 0, lambda done, total, /, words="": ticks.append((done, total)))
    assert found.by_step and decibels(found.images, images).min() > 60
    shares = [done / total for done, total in ticks]
    assert len(shares) >= 6 and shares == sorted(shares) and shares[-1] == 1


def test_images_whose_step_is_not_the_one_sent_are_not_taken(monkeypatch) -> None:
    module, target, images, _ = client("adam")
    settings = Inversion(iterations=5, exact=True, manners=("one-round",))
    wrong = torch.rand(images.shape, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(by_step, "images_by_step", lambda *_: iter([(wrong, target.labels)]))
    monkeypatch.setattr(by_step, "_RECENT", {})
    (kept,) = solve(module, [target], SHAPE, settings, 0)
    assert not kept.by_step and not torch.equal(kept.images, wrong)


def test_noise_that_hides_epsilon_and_too_many_images_leave_nothing_to_read() -> None:
    module, target, *_ = client("adam")
    many = replace(target, count=60, labels=torch.zeros(60).long(), recipe=Recipe("adam", LR, (60,), 1))
    assert not readable(module, many) and readable(module, replace(many, recipe=Recipe("adam", LR, (30, 30), 1)))
    assert readable(module, replace(target, noise_std=1e-6 * LR))
    assert not readable(module, replace(target, noise_std=1e-4 * LR))


@ADAPTIVE
def test_how_much_longer_torch_s_steps_are_than_its_formulas(optimiser: str) -> None:
    recipe = Recipe(optimiser, LR, (N,), 1)
    longer, spread = arithmetic(recipe, 1e-3)
    assert 1e-8 < abs(longer) < 3e-7 and spread < 2e-7
    weights = torch.zeros(10_000)
    weights.grad = 1e-3 * torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    before = weights.grad.double()
    kind = torch.optim.Adam if optimiser == "adam" else torch.optim.RMSprop
    kind([weights], lr=LR).step()
    found = weights.double() / moved(recipe, [before]) - 1
    assert abs(float(found.mean()) - longer) < 0.3 * abs(longer)


@ADAPTIVE
@pytest.mark.parametrize("noise", [1e-4, 1e-2, 0.5, 2.0])
def test_what_is_wrong_with_a_step_undone_under_noise_is_known(optimiser: str, noise: float) -> None:
    """Noise in whole steps. Where a gradient is wrong by sin² of the angle to the true one, an attacker who counts more
    of it as noise than that only leans on its prior; less is what a noise of 10⁻⁴ steps would make believe, as it
    hides what ε tells. And no unit decides: ten times the learning rate, step and noise is the same gradient.
    """
    module, target, _, _ = client(optimiser)
    assert target.recipe is not None and target.update is not None
    (step,) = {round(float(abs(target.update).max()), 6)}
    std = noise * step
    drawn = std * torch.randn(len(target.update), generator=torch.Generator().manual_seed(3))
    sent, named = target.update + drawn, dict(module.named_parameters())
    true = torch.cat([p.grad.flatten() for p in named.values() if p.grad is not None])
    for scale_known in (True, False):
        asked = (sent, target.weights, std, scale_known)
        found = undone(target.recipe, *asked)
        wrong = 1 - float(torch.cosine_similarity(found.double(), true.double(), dim=0)) ** 2
        share = noise_undone(target.recipe, *asked)
        assert 0.95 * wrong <= share <= 1 and 1 - share >= 0.2 * (1 - wrong)
        tenfold = noise_undone(
            replace(target.recipe, lr=10 * LR), 10 * sent, torch.zeros_like(sent), 10 * std, scale_known
        )
        assert share == pytest.approx(tenfold, abs=0.01)
    assert noise_undone(target.recipe, target.update, target.weights, 0.0, True) == 0.0
