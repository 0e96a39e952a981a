"""Calls of a user's function, and what would make them worthless: a state, another shape, another number of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from ...defenses.progress import Progress
from ...defenses.randomness import stream
from ..tensors import real_numbers

REPEATED = 10  # calls that are made again, to see that the function keeps no state
PAIRED = 5  # seeds that both worlds get at least, to compare how many steps they take
FAR = 1e100  # what is further from 0 counts as infinite: squares and their sums stay finite
SEEDS = 2**32  # np.random.seed takes no larger ones


@dataclass(eq=False)
class Calls:
    """A user's function in two worlds. The first calls and their results are kept, to be made again.

    update: (world, seed) → a vector, or (a vector, how many steps it took). worlds: what the function is told in world
    0 and in world 1. same_steps: whether worlds that never take equally many steps are refused. planned: calls there
    will be, for `progress`.
    """

    update: Callable[[Any, int], Any]
    worlds: tuple[Any, Any] = (False, True)
    same_steps: bool = True
    progress: Progress | None = None
    planned: int = 0
    made: int = 0
    not_finite: int = 0  # results with a NaN or an infinity
    kept: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    steps: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    used: set[int] = field(default_factory=set)

    def __call__(self, world: int, seed: int) -> Tensor:
        """The vector (d,) of one call, in float64. Raises ValueError where it is none, or has another length."""
        vector, steps = self._called(world, seed)
        known = next(iter(self.kept.values()), vector)
        if len(vector) != len(known):
            raise ValueError(
                f"update_fn gave a vector of {len(vector)} numbers after one of {len(known)}; all must be as long"
            )
        self.not_finite += not bool(torch.isfinite(vector).all())
        self.steps[world].append(steps)
        if len(self.kept) < REPEATED:
            self.kept[world, seed] = vector
            if len(self.kept) == REPEATED:
                self.repeat()
        return vector

    def _called(self, world: int, seed: int) -> tuple[Tensor, int]:
        self.made += 1
        if self.progress is not None:
            self.progress(
                self.made, max(self.planned, self.made), "telling the two worlds apart, calls of the function"
            )
        with counted_steps() as counter:
            given = self.update(self.worlds[world], seed)
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int):
            return as_vector(given[0]), given[1]
        return as_vector(given), counter[0]

    def seed(self, seed: int, *purpose: object) -> int:
        """A seed below 2³² that no other call has."""
        fresh = stream(seed, *purpose) % SEEDS
        while fresh in self.used:
            fresh = (fresh + 1) % SEEDS
        self.used.add(fresh)
        return fresh

    def repeat(self) -> None:
        """Makes the kept calls again, the last one first. Raises ValueError where a result is another one now.

        A state that earlier calls leave behind depends on when a call is made, which tells worlds apart and says
        nothing about the mechanism.
        """
        for (world, seed), before in reversed(self.kept.items()):
            if not same_numbers(self._called(world, seed)[0], before):
                raise ValueError(
                    f"update_fn({self.worlds[world]!r:.60}, {seed}) gave another result when it was called again; it"
                    " must follow from world and seed alone, without a state kept between calls or randomness of its"
                    " own"
                )

    def forget(self) -> None:
        """Before other worlds are looked at. Raises ValueError as `repeat` does."""
        self.repeat()
        self.kept.clear()
        for steps in self.steps:
            steps.clear()

    def differ(self, count: int, seed: int) -> None:
        """Raises ValueError where the canary changes nothing for any of `count` seeds that both worlds get, or the
        number of steps for all.
        """
        different = False
        for i in range(max(count, PAIRED)):
            both = self.seed(seed, "either world", i)
            different |= not same_numbers(self(0, both), self(1, both))
            if different and i + 1 >= PAIRED:
                return self.check_steps()
        if not bool(self(0, both).isfinite().any()):
            raise ValueError("update_fn gave no finite number in either world; expected a vector of real numbers")
        raise ValueError(
            f"update_fn gave the same with the canary as without it for each of {count} seeds, so there is nothing to"
            " audit; plant a canary that changes what is sent (or ask for more calibration, if it rarely does)"
        )

    def check_steps(self) -> None:
        """Raises ValueError where one world always takes more steps than the other: then whoever counts them tells the
        worlds apart, though the claim is about neighbours of the same size.
        """
        without, present = self.steps
        if not self.same_steps or not without or not present:
            return
        if max(without) < min(present) or max(present) < min(without):
            raise ValueError(
                f"update_fn took {_range(without)} optimiser steps without the canary and {_range(present)} with it, so"
                " the number of steps alone tells the worlds apart; keep the number of records, and with it the number"
                " of steps, the same (leave the canary's weight out, not its place), or pass same_steps=False if the"
                " steps are meant to follow the data"
            )


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    if low == high:
        return str(low)
    return f"{low} to {high}"


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """How many steps torch optimisers take in the block: the one number of the list."""
    counter = [0]

    def step(*_: object) -> None:
        counter[0] += 1

    handle = register_optimizer_step_post_hook(step)
    try:
        yield counter
    finally:
        handle.remove()


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two vectors are the same, NaN being the same as NaN."""
    return first.shape == second.shape and bool(((first == second) | (first.isnan() & second.isnan())).all())


def as_vector(values: Any) -> Tensor:
    """Values as float64 (d,), in a copy: a function may hand out the same buffer again.

    Raises:
        ValueError: they are no vector, or not to be read (`tensors.real_numbers`).
    """
    vector = real_numbers(values, "the vector of the mechanism", torch.float64)
    if vector.ndim != 1:
        raise ValueError(f"the mechanism must give a vector, got shape {tuple(vector.shape)}")
    return torch.where(vector.abs() > FAR, vector.sign() * float("inf"), vector)
