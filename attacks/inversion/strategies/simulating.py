"""The search for images whose simulated training makes the update that was sent (`simulated.py`), from a first guess.

Several targets are simulated together where their training has the same recipe (`grouped_steps.py`); what each comes to
is its own. In the end images of several epochs are matched with the first's and averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ....defenses.progress import part_of
from ....defenses.randomness import generator
from ...cost import CALL
from ..engines.grouped_steps import alike, grouped_steps
from ..match.case import PASSES, Case
from ..match.evaluate import tv_weight
from ..match.objective import Matching
from ..match.optimise import Descent, Objective, Tick, adam, with_prior
from ..match.solution import Solution
from ..match.span import InputSpan, with_span
from .simulated import Simulated, can_simulate, cut_short, lengthened, orders, read_twice, update_of, with_disorder
from .strategy import LEFT_NOTHING, Found, Strategy, StrategyWork, counted, solved_together

INVARIANCE = 1000.0  # weight of `disorder`, Dimitrov et al.'s
AGAIN = 4  # times as long as once, about: all before it a second time, and three simulations
JUDGES = 2  # orders in which the outcome is simulated once more
# labels (T, n), orders (T, E, n), weight of `disorder`
LossByOrder = Callable[[Tensor, Tensor, float], Objective]
REORDERED = 0.3  # of the first step size; ours, on one network and 50 images of Fashion-MNIST


def tried(iterations: int) -> int:
    """Of so many iterations, those that each of several readings is simulated for before one of them is kept."""
    return -(-iterations // 4)


class Simulation(Strategy):
    """Local training simulated, from the guess on.

    Where the gradient may be read on the way through training, too, that is better where training is slow and worse
    where it is not. So training is simulated from both readings for a while, and to the end from what then makes the
    update nearer to the one sent. (By the readings' own updates, which nothing was done to yet, the worse one was kept
    of long trainings.) Where a clip hides how long the way was, training on the first reading says it (`lengthened`).
    """

    name = "simulated training"
    phase = "simulate"

    def applies(self, case: Case) -> str:
        if not case.settings.simulated:
            return "simulated = 0"
        return "" if can_simulate(case.target) else "it is not several steps of whole epochs"

    def needless(self, case: Case, found: Found) -> str:
        solution = found.best
        if solution.determined or (solution.by_step and not read_twice(case)):
            return LEFT_NOTHING
        return super().needless(case, found)

    def cost(self, case: Case) -> int:
        recipe, image = case.target.recipe, case.image_operations
        assert recipe is not None
        trainings = case.settings.simulated + (2 * tried(case.settings.simulated) if read_twice(case) else 0)
        parameters = len(recipe.sizes) * (CALL + PASSES * len(case.target.gradient))
        return trainings * (parameters + sum(recipe.sizes) * image)

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        made = [each.best for each in found]
        both = [read_twice(case) for case in cases]
        groups = [[i for i in group if both[i] == twice] for group in solved_together(cases) for twice in (False, True)]
        total, done = sum(AGAIN if twice else 1 for twice in both), 0
        for places in filter(None, groups):
            here, begun = [cases[i] for i in places], [made[i] for i in places]
            weight = len(places) * (AGAIN if both[places[0]] else 1)
            part = part_of(work.progress, done / total, (done + weight) / total)
            done += weight
            if both[places[0]]:
                ended = _from_both(here, begun, replace(work, progress=part))
            else:
                ended = simulate(here, begun, counted(part, sum(case.settings.simulated for case in here)))
            made = _placed(made, places, ended)
        return [replace(each, solution=solution) for each, solution in zip(found, made)]

    def assumed(self, case: Case, solution: Solution) -> tuple[str, ...]:
        words = []
        if solution.longer is not None:
            words.append(
                f"the update taken to have been {solution.longer:.2g} times as long before its clip, as training on a"
                " first guess of its images makes it"
            )
        if not case.settings.simulated:
            return tuple(words)
        if not can_simulate(case.target):
            return (*words, "local training not simulated: not several steps of whole epochs")
        order = "a new order at every iteration" if case.settings.reorder else "an order of the attack's own"
        return (*words, f"local training simulated, batches in {order}")


def first_reading(case: Case) -> Case:
    """The case as it is read first: before local training, where it is read twice."""
    return case.asked(along=0.0, along_rate=0.0, simulated=0, reorder=False) if read_twice(case) else case


def second_reading(case: Case) -> Case:
    """A case that is read twice, on the way through local training."""
    return case.asked(simulated=0, reorder=False)


def _placed(every: Sequence[Solution], places: Sequence[int], ended: Sequence[Solution]) -> list[Solution]:
    """All solutions, those at some places put anew."""
    new = dict(zip(places, ended))
    return [new.get(i, solution) for i, solution in enumerate(every)]


def _from_both(cases: Sequence[Case], first: Sequence[Solution], work: StrategyWork) -> list[Solution]:
    """What simulated training makes of cases that are read twice, of the first reading and a second one."""
    longer, times = list[Case](), list[float | None]()
    for case, guess in zip(cases, first):
        target, more = lengthened(case, guess) if cut_short(case.target) else (case.target, None)
        longer.append(replace(second_reading(case), target=target))
        times.append(more)
    again = work.solve(longer, part_of(work.progress, 0.0, 0.5))
    second = [replace(one.best, longer=more) for one, more in zip(again, times)]
    both = [i for i, one in enumerate(second) if not one.determined]
    if not both:
        return second
    here = [cases[i] for i in both]
    trial = [case.asked(simulated=tried(case.settings.simulated)) for case in here]
    begun = [replace(first[i], longer=times[i]) for i in both] + [second[i] for i in both]
    progress = part_of(work.progress, 0.5, 1.0)
    total = 2 * sum(case.settings.simulated for case in trial) + sum(case.settings.simulated for case in here)
    tick = counted(progress, total)
    tries = simulate([*trial, *trial], begun, tick)
    kept = [nearest_update(case, pair) for case, *pair in zip(here, tries, tries[len(here) :])]
    return _placed(second, both, simulate(here, kept, tick))


def simulate(cases: Sequence[Case], guesses: Sequence[Solution], tick: Tick) -> list[Solution]:
    """What the simulation of its training makes of each case's guess, or the guess: whose update, simulated once more
    in other orders (`JUDGES`), is nearer to the one sent on average, prior included. Its loss is that one's.

    Args:
        cases: of one network and the same settings, each one that `can_simulate`; `simulated` iterations.
        guesses: where the images of each begin. tick: called after each iteration of a case.
    """
    ready = [replace(case, target=update_of(case.target, case.settings.device)) for case in cases]
    found: dict[int, Solution] = {}
    targets = [case.target for case in ready]
    for members in alike(cases[0].network, targets, guesses[0].images.shape[1:]):
        here = [ready[i] for i in members]
        found.update(zip(members, _simulate(here, [guesses[i] for i in members], tick)))
    return [nearest_update(case, [guess, found[i]]) for i, (case, guess) in enumerate(zip(cases, guesses))]


def _simulate(cases: Sequence[Case], guesses: Sequence[Solution], tick: Tick) -> list[Solution]:
    """What the simulation makes of guesses, of cases whose targets are `update_of` and `alike`."""
    first, settings = cases[0].target, cases[0].settings
    assert first.recipe is not None and first.recipe.epochs
    loss = _losses(cases, guesses[0].images.shape[1:])

    def each() -> None:
        for _ in cases:
            tick()

    if settings.reorder:
        images = reordered(loss, cases, guesses, each)
        every = [(own, guess.labels) for own, guess in zip(images, guesses)]
    else:
        labels = torch.stack([guess.labels for guess in guesses])
        order = torch.stack([orders(case.seed, case.target.key, first.recipe.epochs, first.count) for case in cases])
        started = torch.stack([guess.images[own] for guess, own in zip(guesses, order)]).to(first.weights)
        found, _ = adam(
            loss(labels, order, INVARIANCE),
            started.flatten(1, 2),
            settings.simulated,
            settings.lr / 10,
            settings.optimiser != "adam",
            each,
        )
        every = [averaged_epochs(*one) for one in zip(found.view_as(started), _ordered(labels, order))]
    return [
        replace(guess, images=images.float().cpu(), labels=of, copies=0) for guess, (images, of) in zip(guesses, every)
    ]


def averaged_epochs(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One image for every image of the first epoch: its mean with the images that it is matched with, of the same
    label and at the least total square distance. images: (E, n, *shape). labels: (E, n). Returns (n, *shape), (n,).
    """
    total = images[0].clone()
    for epoch, own in zip(images[1:], labels[1:]):
        for label in own.unique():
            here, there = (labels[0] == label).nonzero()[:, 0], (own == label).nonzero()[:, 0]
            distance = torch.cdist(images[0][here].flatten(1), epoch[there].flatten(1)).square()
            rows, columns = linear_sum_assignment(np.asarray(distance.cpu()))
            total[here[rows]] += epoch[there[columns]]
    return total / len(images), labels[0]


def nearest_update(case: Case, guesses: Sequence[Solution]) -> Solution:
    """Of several guesses the one, the first of equals, whose update is nearest to the one sent: by the mean loss over
    `JUDGES` orders of batches, prior included, which it gets for its own. A training that diverges is infinitely far.
    """
    case = replace(case, target=update_of(case.target, case.settings.device))
    target, recipe = case.target, case.target.recipe
    assert recipe is not None and recipe.epochs
    others = [orders(case.seed, f"{target.key} judged {k}", recipe.epochs, target.count) for k in range(JUDGES)]
    images = torch.cat([guess.images[other].flatten(0, 1)[None] for guess in guesses for other in others])
    labels = torch.stack([guess.labels for guess in guesses for _ in others])
    loss = _losses([case] * len(images), images.shape[2:])
    values, _ = loss(labels, torch.stack(others * len(guesses)), 0.0)(images.to(target.weights))
    means = values.view(len(guesses), JUDGES).mean(1).nan_to_num(torch.inf, torch.inf).tolist()
    best = min(range(len(guesses)), key=means.__getitem__)
    return replace(guesses[best], loss=means[best])


def _losses(cases: Sequence[Case], shape: Sequence[int]) -> LossByOrder:
    """The distance with its prior, of cases whose targets are `update_of` and `alike`. shape: of an image."""
    network, layout, settings = cases[0].network, cases[0].layout, cases[0].settings
    targets = [case.target for case in cases]
    tv = targets[0].weights.new_tensor([tv_weight(target, settings) for target in targets])
    each = {id(target): InputSpan.of(network, layout, target) if settings.span else None for target in targets}
    spans = [each[id(target)] for target in targets]
    groups = grouped_steps(network, layout, targets, settings.objective, shape)

    def loss(labels: Tensor, order: Tensor, invariance: float) -> Objective:
        inside = _ordered(labels, order).to(settings.device)
        pieces: list[tuple[int, Objective]] = []
        if groups:
            counts = [len(group.start) for group in groups]
            parts = zip(groups, inside.flatten(1).split(counts))
            pieces = [(len(y), partial(group, labels=y)) for group, y in parts]
        else:
            pieces = [
                (1, Simulated(network, layout, target, y, Matching.of(settings.objective, [target])))
                for target, y in zip(targets, inside)
            ]
        made = with_disorder(_beside(pieces), order.shape[1], invariance)
        return with_span(with_prior(made, tv), spans, settings.span)

    return loss


def _beside(pieces: Sequence[tuple[int, Objective]]) -> Objective:
    """The objective of candidates one after the other, so many of each."""

    def every(images: Tensor) -> tuple[Tensor, Tensor]:
        parts = [own(x) for (_, own), x in zip(pieces, images.split([count for count, _ in pieces]))]
        return torch.cat([value for value, _ in parts]), torch.cat([slope for _, slope in parts])

    return every


def _ordered(labels: Tensor, order: Tensor) -> Tensor:
    """Labels (T, E, n) of images in orders (T, E, n), of labels (T, n)."""
    return labels[:, None].expand(order.shape).gather(2, order)


def reordered(loss: LossByOrder, cases: Sequence[Case], guesses: Sequence[Solution], tick: Tick) -> Tensor:
    """Images (T, n, *shape) whose update is near the one sent in *any* order: one set, in a new order each iteration.

    What is descended is the mean distance over orders, by one draw at a time, so that no order is fitted to, as images
    of every epoch's own fit theirs. Ours; of 50 images in batches of 5 it gives what the true order gives
    (benchmarks/known_order.py). The last images are taken, as the values of two iterations are of two orders.

    Args:
        loss: the objective by labels, orders, and weight of `disorder`. cases: whose images; `simulated` iterations.
        guesses: where the images begin. tick: called after each iteration.
    """
    first, settings = cases[0].target, cases[0].settings
    recipe, n, where = first.recipe, first.count, first.weights
    assert recipe is not None and recipe.epochs
    epochs, labels = recipe.epochs, torch.stack([guess.labels for guess in guesses])
    draws = [generator(case.seed, "inversion reordered", case.target.key) for case in cases]

    def any_order(images: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.stack([torch.stack([torch.randperm(n, generator=draw) for _ in range(epochs)]) for draw in draws])
        places = order.flatten(1).to(images.device)
        moved = torch.stack([own[place] for own, place in zip(images, places)])
        value, slope = loss(labels, order, 0.0)(moved)
        whole = torch.zeros_like(images)
        for own, place, part in zip(whole, places, slope):
            own.index_add_(0, place, part)
        return value, whole

    descent = Descent.begin(torch.stack([guess.images for guess in guesses]).to(where))
    descent.go(any_order, settings.simulated, REORDERED * settings.lr, settings.optimiser != "adam", tick)
    return descent.images
