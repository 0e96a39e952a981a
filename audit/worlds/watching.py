"""Trainings of somebody's own code with one canary after the other: which moves steps most, where it points, and how
each step scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...defenses.progress import Progress
from ...defenses.randomness import generator
from ..two_worlds.levels import Levels
from ..two_worlds.likelihood import Deviations, Expected, LikelihoodRatio, deviations
from ..two_worlds.rounds import RoundShape
from .calls import Calls
from .planted import PlantedDataset
from .search import SearchedCanary
from .transcript import Private, Trainings

PAIRS = 40  # of trainings with the same seed, to learn where the canary points
SEARCHED = 6  # pairs for each candidate
ZERO = torch.zeros(1, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class StepScores:
    """Trainings of one world each: steps (runs, steps) of log-likelihood ratios of one step, and where the record was
    drawn.
    """

    steps: tuple[NDArray[np.float64], NDArray[np.float64]]
    drawn: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    @property
    def apart(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Single steps with the canary in them and without, both of trainings that have it: what earlier draws did to
        the weights, and by them to other records' gradients, is the same whether or not this step's coin draws it.
        Where fewer steps are without it than there are trainings, the first steps of both worlds, before which it did
        nothing.
        """
        without, present = self.steps
        drawn = self.drawn[1]
        if (~drawn).sum() < len(without):
            return present[drawn[:, 0], 0], without[:, 0]
        return present[drawn], present[~drawn]

    def whole(self, world: int, rate: float) -> NDArray[np.float64]:
        """Of whole trainings: the log-likelihood ratio, the draws being nobody's to see."""
        if rate == 1:
            return self.steps[world].sum(1)
        return np.logaddexp(np.log1p(-rate), np.log(rate) + self.steps[world]).sum(1)


@dataclass(eq=False)
class Watching:
    """Calls of a user's training with one canary after the other."""

    train: Callable[[Any], Any]
    dataset: Any
    place: int
    canaries: Mapping[str, Any]
    seed: int
    progress: Progress | None
    private: Private | None = None
    planned: int = 0
    made: int = 0

    def calls(self, canary: str) -> tuple[Calls, Trainings]:
        def world(present: bool) -> PlantedDataset:
            return PlantedDataset(self.dataset, self.place, self.canaries[canary], present)

        watch = Trainings(self.train, world, self.private)

        def step(done: int, total: int, /, words: str = "") -> None:
            self.made += 1
            if self.progress is not None:
                self.progress(self.made, max(self.made, self.planned), "telling the two worlds apart, trainings")

        return Calls(watch, progress=step), watch

    def search(self) -> tuple[str, tuple[SearchedCanary, ...]]:
        if len(self.canaries) == 1:
            return next(iter(self.canaries)), ()
        found = []
        for name in self.canaries:
            calls, watch = self.calls(name)
            pairs = _pairs(calls, watch, SEARCHED, self.seed, "search", name)
            found.append(SearchedCanary(name, pairs.strength))
        return max(found, key=lambda one: one.shift).name, tuple(found)

    def learn(self, canary: str) -> LearnedSteps:
        calls, watch = self.calls(canary)
        pairs = _pairs(calls, watch, PAIRS, self.seed, "pairs")
        if pairs.strength == 0:
            raise ValueError(
                f"the canary {canary!r} changes no step of {PAIRS} pairs of trainings, so there is nothing to"
                " audit; plant one that does"
            )
        calls.check_steps()
        levels = Levels.of([pairs.variance], pairs.shape.sizes)
        shape, order = RoundShape(levels.sizes, pairs.shape.rounds), pairs.shape.each_round(levels.order)
        expected = Expected(pairs.centre[order]), Expected((pairs.centre + pairs.direction)[order])
        return LearnedSteps(calls, watch, shape, order, expected, self.seed)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """What pairs of trainings with the same seed tell.

    centre: (steps · d,) the mean without the canary; direction: what it adds to each step it is drawn into. variance:
    (d,) of a step's numbers, the mean over steps.
    """

    shape: RoundShape
    centre: Tensor
    direction: Tensor
    variance: Tensor

    @property
    def strength(self) -> float:
        """How far the canary moves a step that it is in, in standard deviations of each tensor's noise: the mean of the
        steps. A tensor without noise counts for what it shows.
        """
        moved = self.direction.reshape(self.shape.rounds, -1).square()
        sizes = list(self.shape.sizes)
        parts = zip(moved.split(sizes, 1), self.variance.split(sizes))
        total = torch.stack([part.sum(1) / float(variance.mean()) for part, variance in parts if part.any()] or [ZERO])
        return float(total.sum(0).sqrt().mean())


def _pairs(calls: Calls, watch: Trainings, count: int, seed: int, *purpose: object) -> _Pairs:
    """Raises ValueError where the training does not follow the seed it is given."""
    total = squares = changes = times = torch.zeros(())
    first: Tensor | None = None
    for i in range(count):
        both = calls.seed(seed, *purpose, i)
        absent, present = calls(0, both), calls(1, both)
        if first is not None and torch.equal(first, absent):
            raise ValueError(
                "train does the same with another seed, so it seeds its noise itself; leave seeding (torch.manual_seed,"
                " generators of its own) out of it, as a noise that is always the same hides nothing"
            )
        first = absent if first is None else first
        drawn = torch.from_numpy(watch.drawn[True, both]).double()
        change = (present - absent).reshape(len(drawn), -1) * drawn[:, None]
        total, squares = total + absent, squares + absent.square()
        changes, times = changes + change, times + drawn
    assert watch.first is not None
    rounds = len(watch.first.drawn)
    if rounds == 0 or float(times.sum()) == 0:
        raise ValueError(f"the canary's record was never drawn in {count} pairs of trainings, so nothing is to be seen")
    mean = changes.sum(0) / times.sum()
    # A step of its own direction, where it was drawn often enough; else that of all steps.
    own = torch.where(times[:, None] >= 3, changes / times.clamp_min(1)[:, None], mean)
    spread = (squares / count - (total / count).square()) * count / max(count - 1, 1)
    variance = spread.clamp_min(0).reshape(rounds, -1).mean(0)
    shape = RoundShape(watch.first.sizes, rounds)
    return _Pairs(shape, total / count, own.reshape(-1), variance)


@dataclass(eq=False)
class LearnedSteps:
    """What the attacker knows before the trainings that count. order: of the numbers, those of one level together."""

    calls: Calls
    watch: Trainings
    shape: RoundShape
    order: Tensor
    expected: tuple[Expected, Expected]
    seed: int
    ratio: LikelihoodRatio | None = None

    def scored(self, purpose: str, count: int) -> StepScores:
        """Fresh trainings of both worlds, in random order; the first ones fit how large the noise of each tensor is."""
        apart: list[list[tuple[Deviations, Deviations]]] = [[], []]
        drawn: list[list[NDArray[np.bool_]]] = [[], []]
        for k in torch.randperm(2 * count, generator=generator(self.seed, purpose, "order")).tolist():
            world, i = divmod(k, count)
            seed = self.calls.seed(self.seed, purpose, world, i)
            vector = self.calls(world, seed)[None, self.order]
            from_0, from_1 = (deviations(vector, self.expected[w], self.shape.parts) for w in (0, 1))
            apart[world].append((from_0, from_1))
            drawn[world].append(self.watch.drawn[bool(world), seed])
        if self.ratio is None:
            self.ratio = self._fitted(np.concatenate([from_0 for from_0, _ in apart[0]]))
        steps = [
            np.stack([self._ratios(*(np.concatenate(side) for side in zip(*apart[world])))], 0)[0] for world in (0, 1)
        ]
        return StepScores((steps[0], steps[1]), (np.stack(drawn[0]), np.stack(drawn[1])))

    def _fitted(self, without: Deviations) -> LikelihoodRatio:
        """The noise's size in each tensor's levels, all steps alike."""
        each = [self.shape.of_round(without, columns) for columns in self.shape.columns]
        pooled = np.concatenate(each)
        return LikelihoodRatio.fitted(pooled, pooled, self.shape.sizes)

    def _ratios(self, from_0: Deviations, from_1: Deviations) -> NDArray[np.float64]:
        """(runs, steps)."""
        assert self.ratio is not None
        sides = [[self.shape.of_round(d, columns) for columns in self.shape.columns] for d in (from_0, from_1)]
        return np.stack([self.ratio(*pair) for pair in zip(*sides)], 1)
