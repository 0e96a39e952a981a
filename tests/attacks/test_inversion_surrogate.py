"""A gradient read at a place that is learned with the images: its slope, what it gains, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import NOISE_KNOWN, PublicFacts
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.evaluate import evaluator, loss_at, placed
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.surrogate import Surrogate
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses.layout import Layout
from messages import flat, gradient, knowing, view_of
from torch import Tensor, nn

N, SHAPE, CLASSES, LR, STEPS = 6, (1, 6, 6), 4, 0.5, 40


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, CLASSES)).double()


def trained(module: nn.Module, seed: int) -> tuple[Target, Tensor]:
    """What full-batch SGD of many steps adds to the weights, and its images."""
    draw = torch.Generator().manual_seed(seed)
    images = torch.rand(N, *SHAPE, generator=draw, dtype=torch.float64)
    labels = torch.randint(CLASSES, (N,), generator=draw)
    before = flat(module)
    weights = before.clone()
    for _ in range(STEPS):
        weights = weights - LR * gradient(module, weights, images, labels)
    update = weights - before
    recipe = Recipe("sgd", LR, (N,) * STEPS, STEPS)
    return Target(f"m{seed}", before, -update / recipe.scale, labels, N, recipe=recipe, update=update), images


def surrogate(module: nn.Module, targets: list[Target], settings: Inversion, repeat: int = 1) -> Surrogate:
    ready = [placed(t, settings) for t in targets]
    labels = torch.stack([t.labels for t in targets if t.labels is not None])
    return Surrogate(module, Layout.of(module), ready, labels, repeat, settings)


@pytest.mark.parametrize("objective", ["cosine", "euclidean", "absolute"])
def test_a_place_moves_down_its_slope(objective) -> None:
    """The step of Adam's first iteration is the sign of central differences of the objective as it is elsewhere."""
    module = network()
    target, images = trained(module, 1)
    for along in (0.1, 0.5, 0.9):
        settings = Inversion(objective=objective, along=along, along_rate=0.01)
        values = []
        for at in (along - 1e-5, along, along + 1e-5):
            here = placed(target, replace(settings, along=at))
            values.append(evaluator(module, Layout.of(module), [here], target.labels[None], 1, objective, SHAPE))
        low, middle, high = (value(images[None])[0].item() for value in values)
        made = surrogate(module, [target], settings)
        value, slope = made(images[None])
        assert value.item() == pytest.approx(middle, rel=1e-9)
        assert torch.allclose(slope, values[1](images[None])[1], atol=1e-12)
        assert made.place.item() == pytest.approx(along - 0.01 * (1 if high > low else -1), abs=1e-6)


def test_a_place_stays_on_the_way_and_what_is_not_finite_moves_nothing() -> None:
    module = network()
    target, images = trained(module, 1)
    made = surrogate(module, [target], Inversion(along=1.0, along_rate=1.0))
    for _ in range(5):
        made(images[None])
        assert 0 <= made.place.item() <= 1
    held = surrogate(module, [target], Inversion(along=0.5, along_rate=1.0))
    held(torch.full_like(images, float("nan"))[None])
    assert held.place.item() == 0.5


@pytest.mark.full
def test_a_run_says_the_place_it_ended_at_and_gains_by_it() -> None:
    module = network()
    target, images = trained(module, 3)
    settings = Inversion(along=0.0, along_rate=0.01, tv=0.0, iterations=200, manners=("one-round",))
    moved, held = (
        solve(module.float(), [_single(target)], SHAPE, one, 0)[0]
        for one in (settings, replace(settings, along_rate=0))
    )
    assert held.place is None
    assert moved.place is not None and moved.place > 0.1 and moved.loss < held.loss
    again = solve(module, [_single(target)], SHAPE, settings, 0)[0]
    assert torch.equal(again.images, moved.images) and again.place == moved.place
    assert (moved.images - images).square().mean() < (held.images - images).square().mean()


def _single(target: Target) -> Target:
    assert target.update is not None
    return replace(
        target, weights=target.weights.float(), gradient=target.gradient.float(), update=target.update.float()
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"along_rate": -0.1},
        {"along_rate": 2.0},
        {"along_rate": 0.1, "optimiser": "lbfgs", "tv": 0.0},
        {"along_rate": 0.1, "objective": "euclidean", "learned": True},
    ],
)
def test_what_does_not_go_with_a_learned_place_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match="along_rate"):
        Inversion(**wrong)


def test_where_kinks_are_softened_the_place_is_held() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES))
    target, _ = trained(module.double(), 4)
    settings = Inversion(along=0.5, along_rate=0.1, iterations=2, softened=2)
    assert solve(module.float(), [_single(target)], SHAPE, settings, 0)[0].place is None
    other = solve(module.float(), [_single(target)], SHAPE, replace(settings, softened=0), 0)[0]
    assert other.place not in (None, 0.5)


def test_a_smooth_network_is_carried_on_at_the_place_that_was_learned() -> None:
    module = network().float()
    target, _ = trained(network(), 3)
    settings = Inversion(along=0.5, along_rate=0.02, iterations=30, tv=1e-4)
    rough, found = (
        solve(module, [_single(target)], SHAPE, replace(settings, features=weight), 0)[0] for weight in (0.0, 0.1)
    )
    assert found.place == rough.place and found.place is not None and abs(found.place - 0.5) > 0.02
    assert found.loss < 0.5 * rough.loss
    there = replace(settings, along=found.place)
    case = Case(module, Layout.of(module), _single(target), found.labels, SHAPE, there, 0)
    again = loss_at(case, found.images)
    assert again == pytest.approx(found.loss, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({}, False),
        ({"exact": True}, True),
        ({"span": 1.0}, True),
        ({"features": 1e-3}, True),
        ({"tv": "noise-aware"}, True),
    ],
)
def test_the_noise_s_size_is_among_what_is_assumed_wherever_it_is_read(settings, read) -> None:
    module = network().float()
    target, _ = trained(network(), 1)
    assert target.labels is not None
    facts = PublicFacts("t", "gradient", "sgd", LR, N, 1, None, noise_std=1e-3)
    view, told = view_of(module, target.gradient.float(), facts, N, SHAPE, CLASSES), knowing(u=target.labels)
    attack = Inversion(iterations=2, manners=("one-round",), **settings)
    (part,) = attack.parts(view, told)
    assert (NOISE_KNOWN in attack.run_part(part, view, told, 0).assumed) == read


def test_beside_a_message_without_an_update_a_place_is_learned_all_the_same() -> None:
    """As of a client of Adam whose update was cut: both begin at the same weights."""
    module = network().float()
    target = _single(trained(network(), 3)[0])
    other = replace(target, key="cut", update=None, recipe=None)
    settings = Inversion(along_rate=0.01, iterations=12, manners=("one-round",))
    alone = solve(module, [target], SHAPE, settings, 0)[0]
    beside, cut = solve(module, [target, other], SHAPE, settings, 0)
    assert alone.place == beside.place and torch.equal(alone.images, beside.images) and cut.place is None
    held = solve(module, [other], SHAPE, replace(settings, along_rate=0.0), 0)[0]
    assert torch.allclose(held.images, cut.images, atol=1e-5)
