"""Which images were in a batch together, by what BatchNorm makes of it; and training simulated in that order.

In training a BatchNorm normalises each image by its batch. So what several local steps send depends on how the records
were put into batches, which nobody tells; but a first guess of the images, read as one batch, tells it: among all
orders of its images the client's own makes one of the nearest updates to the one that was sent (of the 70 of eight
photographs in two batches it was among the four nearest in each of nine trainings, and the nearest in four). So the
guess's images and batches are swapped as long as that brings its update nearer, and then images are sought whose
simulated training in the order found makes the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ....defenses.layout import Layout
from ....defenses.randomness import generator
from ..match.evaluate import tv_weight
from ..match.objective import Matching
from ..match.optimise import Objective, adam, with_prior
from ..match.softened import Softly, annealed, run_softly, softens
from ..match.solution import Solution
from ..read.local_training import Recipe
from ..read.statistics import ToldBySteps, batchnorms
from ..read.target import Target
from .simulated import Simulated, can_simulate, orders, update_of
from .simulating import tried

if TYPE_CHECKING:
    from ..attack import Inversion

SEARCHES = 2  # from orders drawn by lot
EVALUATIONS = 500  # of the objective, in one of them at most
ORDERS = 12  # of the best met, images are sought in each for a quarter of the iterations, and then in the nearest one
ORDER_FOUND = (
    "which images were in a batch together found by what BatchNorm makes of it on a first guess, read as one batch;"
    " local training simulated in that order"
)


def seeks_order(network: nn.Module, target: Target, settings: Inversion) -> bool:
    """Whether the order of a target's batches is sought, in a network `as_run`: where it normalises by batches."""
    by_batch = any(not layer.track_running_stats for layer in batchnorms(network).values())
    possible = settings.optimiser != "lbfgs" and not settings.learned and can_simulate(target)
    return settings.ordered and by_batch and possible


def as_begun(network: nn.Module, target: Target, settings: Inversion) -> Inversion:
    """The settings by which a target is read first: where its order is sought, once and before local training."""
    if not seeks_order(network, target, settings):
        return settings
    return replace(settings, along=0.0, along_rate=0.0, simulated=0, reorder=False)


def in_found_order(
    network: nn.Module,
    layout: Layout,
    target: Target,
    guess: Solution,
    settings: Inversion,
    seed: int,
    tick: Callable[[], None],
) -> Solution:
    """What the simulation of training makes of a guess, in the order of several in which it comes nearest to what was
    sent, prior included.

    Args:
        network: `as_run`. layout: of its parameters. target: of which `seeks_order` holds, as it is read.
        guess: the images to begin with. settings: the attack's. seed: of the search. tick: called after each iteration.
    """
    target = update_of(target, settings.device)
    recipe, labels = target.recipe, guess.labels
    assert recipe is not None and recipe.epochs
    matching, told = Matching.of(settings.objective, [target]), ToldBySteps.of(network, target, settings)
    images, tv = guess.images.to(target.weights), target.weights.new_tensor([tv_weight(target, settings)])

    def simulated(of: nn.Module, order: Tensor) -> Simulated:
        return Simulated(of, layout, target, labels[order].to(settings.device), matching, told)

    def value(order: Tensor) -> float:
        return simulated(network, order).value(images[order.flatten().to(images.device)])

    def shared(of: nn.Module, order: Tensor) -> Objective:
        every, place = simulated(of, order), order.flatten().to(images.device)

        def total(candidates: Tensor) -> tuple[Tensor, Tensor]:
            (own,) = candidates
            values, slope = every(own[place][None])
            return values, torch.zeros_like(own).index_add_(0, place, slope[0])[None]

        return total

    soft = bool(settings.softened) and softens(network, tuple(images.shape[1:]))

    def sought(order: Tensor, iterations: int) -> tuple[float, Tensor]:
        """The loss of the nearer one of the guess and what comes of it, and that."""
        hard, signed = with_prior(shared(network, order), tv), settings.optimiser != "adam"
        if soft:

            def softly(mode: Softly, weight: Tensor) -> Objective:
                return with_prior(shared(run_softly(network, mode), order), weight)

            steps = settings.softened * iterations
            found = annealed(softly, images[None], tv, steps, settings.lr, signed, tick)
        else:
            found, _ = adam(hard, images[None], iterations, settings.lr, signed, tick)
        each = [(hard(of)[0].nan_to_num(torch.inf, torch.inf).item(), of[0]) for of in (images[None], found)]
        return min(each, key=lambda one: one[0])

    candidates = found_orders(value, recipe, target.count, seed, target.key)
    losses = [sought(order, tried(settings.iterations))[0] for order in candidates]
    loss, best = sought(candidates[losses.index(min(losses))], settings.iterations)
    return replace(guess, images=best.float().cpu(), loss=loss)


def found_orders(value: Callable[[Tensor], float], recipe: Recipe, count: int, seed: int, key: str) -> list[Tensor]:
    """The `ORDERS` orders (E, n) of the lowest values met, the lowest first: from several drawn by lot, each swap that
    lowers it is made, until none does. Orders within batches count for nothing.

    Args:
        value: of an order (E, n). recipe: of E whole epochs. count: n. seed: of the search. key: names the target.
    """
    assert recipe.epochs
    met: dict[tuple, tuple[float, Tensor]] = {}

    def at(order: Tensor) -> float:
        own = tuple(tuple(sorted(batch.tolist())) for batch in order.flatten().split(list(recipe.sizes)))
        if own not in met:
            met[own] = value(order), order
        return met[own][0]

    for search in range(SEARCHES):
        own = f"{key} search {search}"
        order, draw = orders(seed, own, recipe.epochs, count), generator(seed, "inversion batch order", own)
        every = list(_swaps(recipe, count))
        now, since, left = at(order), 0, EVALUATIONS
        while since < len(every) and left:
            for k in torch.randperm(len(every), generator=draw).tolist():
                epoch, swap = every[k]
                other = order.clone()
                other[epoch] = order[epoch, swap]
                found = at(other)
                order, now, since = (other, found, 0) if found < now else (order, now, since + 1)
                left -= 1
                if since == len(every) or not left:
                    break
    return [order for _, order in sorted(met.values(), key=lambda one: one[0])[:ORDERS]]


def in_orders(settings: Inversion) -> int:
    """Iterations, in all orders."""
    return max(1, settings.softened) * (ORDERS * tried(settings.iterations) + settings.iterations)


def orders_tried(recipe: Recipe, count: int) -> int:
    """At most so many evaluations of an order of this recipe of `count` images, but for what ends a search earlier."""
    return SEARCHES * min(EVALUATIONS, 4 * sum(1 for _ in _swaps(recipe, count)))


def _swaps(recipe: Recipe, count: int) -> Iterator[tuple[int, Tensor]]:
    """Every swap of two images of different batches, and of two batches of equal size: the epoch, and the places."""
    assert recipe.epochs
    sizes = recipe.sizes[: len(recipe.sizes) // recipe.epochs]
    batches = torch.arange(count).split(list(sizes))
    for epoch in range(recipe.epochs):
        for first, second in combinations(batches, 2):
            pairs = [(a[None], b[None]) for a in first for b in second]
            for here, there in pairs + [(first, second)] * (len(first) == len(second) > 1):
                places = torch.arange(count)
                places[here], places[there] = there, here
                yield epoch, places
