"""BatchNorm tells which images were in a batch together; and what several local steps did to its running statistics."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.mode import as_run
from dpfl_audit.attacks.inversion.read.statistics import ToldBySteps, batchnorms
from dpfl_audit.attacks.inversion.read.target import Target, one_round
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.batch_order import (
    as_begun,
    found_orders,
    in_found_order,
    orders_tried,
    seeks_order,
)
from dpfl_audit.attacks.inversion.strategies.simulated import Simulated, update_of
from dpfl_audit.defenses.layout import Layout
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N, SIZE = (1, 6, 6), 6, 3
ON = Inversion(batch_statistics=1.0, ordered=True, iterations=8, tv=0.0)
OPTIMISERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def network(momentum: float | None = 0.1) -> nn.Module:
    """Both kinds of BatchNorm, after two batches of noise."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6)]
    module = nn.Sequential(*parts, nn.BatchNorm1d(6, momentum=momentum), nn.ReLU(), nn.Linear(6, 3)).train()
    for _ in range(2):
        module(torch.rand(7, *SHAPE))
    return module


def pictures() -> Tensor:
    return torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(1))


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_buffers()}


def seen(module: nn.Module, optimiser: str = "sgd", lr: float = 0.1, epochs: int = 2) -> tuple[View, Tensor]:
    """What a client trained by torch in training mode sends, seen by a server; and its order (epochs, N)."""
    layout, client = Layout.of(module), copy.deepcopy(module)
    draw = torch.Generator().manual_seed(3)
    order = torch.stack([torch.randperm(N, generator=draw) for _ in range(epochs)])
    steps = OPTIMISERS[optimiser](client.parameters(), lr=lr)
    for rows in order.flatten().split(SIZE):
        steps.zero_grad()
        F.cross_entropy(client(pictures()[rows]), LABELS[rows]).backward()
        steps.step()
    before, after = (layout.join({n: p.detach() for n, p in m.named_parameters()}) for m in (module, client))
    facts = PublicFacts("recorded", "weights", optimiser, lr, SIZE, epochs, None, noise_std=0.0)
    down = Seen("w", 0, "server", ("a",), "weights", 0, lambda: before, True, lambda: state(module))
    up = Seen("u", 0, "a", ("server",), "weights", N, lambda: after, False, lambda: state(client))
    return View("server", (down, up), module, layout, facts, SHAPE, 3), order


KNOWN = Knowledge({"u": LABELS}, torch.zeros(0), torch.zeros(0))


def target_of(view: View) -> Target:
    (aim,) = one_round(view, KNOWN)
    return aim.target


def simulated(view: View, module: nn.Module, order: Tensor, weight: float = 1.0) -> Simulated:
    """With the statistics that the view tells, by a network whose momentum may not be the client's."""
    run = as_run(module, "train")
    target = update_of(target_of(replace(view, module=module)), "cpu")
    told = ToldBySteps.of(run, target, replace(ON, batch_statistics=weight))
    return Simulated(run, view.layout, target, LABELS[order], Matching.of("cosine", [target]), told)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_the_true_images_in_the_true_order_leave_nothing_of_the_statistics(
    optimiser: str, momentum: float | None
) -> None:
    """Torch's own layers mixed the running statistics, at each step's own weights."""
    module = network(momentum)
    view, order = seen(module, optimiser, 0.1 if optimiser == "sgd" else 1e-3)
    images = pictures()[order.flatten()]
    far = {weight: simulated(view, module, order, weight).value(images) for weight in (0.0, 1.0)}
    rounded = 1e-3 if optimiser == "sgd" else 5e-3  # Adam makes whole steps of what rounding leaves of a bias's 0
    assert far[0.0] < rounded and far[1.0] - far[0.0] < 4 * rounded
    moved = images[torch.arange(2 * N).roll(1)]
    assert simulated(view, module, order).value(moved) - simulated(view, module, order, 0.0).value(moved) > 0.02


def test_a_wrong_momentum_is_noticed() -> None:
    view, order = seen(network(0.1))
    images = pictures()[order.flatten()]
    assert simulated(view, network(0.1), order).value(images) < 1e-3
    assert simulated(view, network(0.2), order).value(images) > 0.05


def test_counters_of_other_steps_than_the_facts_tell_nothing() -> None:
    module = network()
    target = target_of(seen(module)[0])
    run = as_run(module, "train")
    assert target.statistics is not None and target.statistics.steps == 4
    assert ToldBySteps.of(run, target, ON) is not None
    other = replace(target, statistics=replace(target.statistics, steps=3))
    for none in (other, replace(target, statistics=None)):
        assert ToldBySteps.of(run, none, ON) is None
    assert ToldBySteps.of(run, target, replace(ON, batch_statistics=0.0)) is None


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_slope_is_that_of_finite_differences(optimiser: str) -> None:
    module = network().double()
    for layer in batchnorms(module).values():
        layer.double()
    view, order = seen(network(), optimiser)
    target = update_of(target_of(view), "cpu")
    run = as_run(module, "train")
    told = ToldBySteps.of(run, target, ON)
    assert told is not None
    told = replace(told, shares={name: share.double() for name, share in told.shares.items()}, weight=3.0)
    precise = replace(target, weights=target.weights.double(), gradient=target.gradient.double())
    made = Simulated(run, view.layout, precise, LABELS[order], Matching.of("euclidean", [precise]), told)
    rng = torch.Generator().manual_seed(5)
    images = torch.rand(1, 2 * N, *SHAPE, generator=rng).double()
    way, step = torch.randn(images.shape, generator=rng).double(), 1e-6
    value, slope = made(images)
    assert value.item() == pytest.approx(made.value(images[0]))
    ahead, behind = (made.value((images + sign * step * way)[0]) for sign in (1, -1))
    assert float((slope * way).sum()) == pytest.approx((ahead - behind) / (2 * step), rel=1e-3)


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_true_images_give_their_order_away(epochs: int) -> None:
    """From the update alone, and the records of each batch, as their order within it changes nothing."""
    module = network()
    view, order = seen(module, epochs=epochs)
    target = target_of(view)
    assert target.recipe is not None

    def value(other: Tensor) -> float:
        return simulated(view, module, other, 0.0).value(pictures()[other.flatten()])

    found, *others = found_orders(value, target.recipe, N, 0, "t")
    assert value(found) < 1e-4 < 1e-3 < min(value(other) for other in others)
    for own, true in zip(found.flatten().split(SIZE), order.flatten().split(SIZE)):
        assert set(own.tolist()) == set(true.tolist())


def test_a_search_stops_and_takes_swaps_of_batches_of_equal_size_alone() -> None:
    recipe, calls = Recipe("sgd", 0.1, (2, 2, 1), 1), []

    def value(order: Tensor) -> float:
        calls.append(sorted(order.flatten().tolist()))
        return -len(calls)  # every swap seems better

    found_orders(value, recipe, 5, 0, "t")
    assert all(own == list(range(5)) for own in calls) and len(calls) <= 30  # partitions, each once
    assert orders_tried(recipe, 5) == 2 * 4 * (4 + 2 + 2 + 1)


def test_where_it_is_sought() -> None:
    module = network()
    target, run = target_of(seen(module)[0]), as_run(module, "train")
    assert seeks_order(run, target, ON)
    assert not seeks_order(as_run(module, "eval"), target, ON)
    assert not seeks_order(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)), target, ON)
    assert target.recipe is not None
    one = replace(target, recipe=replace(target.recipe, sizes=(N,), epochs=1))
    assert not seeks_order(run, one, ON)
    assert not seeks_order(run, target, replace(ON, ordered=False))
    assert not seeks_order(run, target, replace(ON, optimiser="lbfgs"))
    full = replace(ON, along=0.5, simulated=6, reorder=True)
    assert as_begun(run, target, full) == ON and as_begun(run, one, full) is full
    with pytest.raises(ValueError, match="ordered does nothing beside a learned prior"):
        Inversion(objective="euclidean", learned=True, ordered=True)


def test_what_is_nearer_is_kept_and_said() -> None:
    module = network()
    view, _ = seen(module, epochs=1)
    target, run = target_of(view), as_run(module, "train")
    start = torch.full((N, *SHAPE), 0.5) + 0.1 * (pictures() - 0.5)
    guess = Solution(start, start, LABELS, float("inf"))
    found = in_found_order(run, view.layout, target, guess, replace(ON, softened=1, iterations=8), 0, lambda: None)
    again = in_found_order(run, view.layout, target, found, replace(ON, softened=0, iterations=1), 0, lambda: None)
    assert again.loss <= found.loss * 1.001 < 1
    attack = replace(ON, along=0.5, simulated=2, iterations=2)
    (part,) = attack.parts(view, KNOWN)
    said = attack.run_part(part, view, KNOWN, 0).assumed
    assert any("which images were in a batch together found" in words for words in said)
    assert any("for that of the simulated steps after it" in words for words in said)
    assert not any("read at 0.5 of the way" in words for words in said)
    assert part.work > replace(attack, ordered=False).parts(view, KNOWN)[0].work


def test_targets_of_one_step_and_of_several_go_each_its_way() -> None:
    module = network()
    several = target_of(seen(module)[0])
    one = replace(several, key="one", recipe=None, update=None, statistics=None)
    settings = replace(ON, iterations=2)
    together = solve(module, [one, several], SHAPE, settings, 0)
    for found, target in zip(together, (one, several)):
        assert torch.equal(found.images, solve(module, [target], SHAPE, settings, 0)[0].images)
