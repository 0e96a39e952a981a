"""What a method of inversion is: when it applies, what it costs, what it makes of cases, what it takes for granted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal, Protocol

from ....defenses.progress import Progress
from ..exact.first_layer import Reading
from ..match.case import Case
from ..match.features import SolvedFeatures
from ..match.optimise import Tick
from ..match.solution import Solution
from ..settings import Settings

Phase = Literal["read", "search", "refine", "simulate"]
PHASES: tuple[Phase, ...] = ("read", "search", "refine", "simulate")
LEFT_NOTHING = "another method found all images before"
UNCOUNTED = 1  # operation: of what is next to nothing beside a search


@dataclass(frozen=True, eq=False)
class Found:
    """What is known of a case.

    solution: the best images so far, None before a search. sure: all images are certain, so that nothing is searched.
    reading: what the first layer tells. features: those that the classifier tells.
    methods: by a method's name, why it did not run, "" where it did.
    """

    solution: Solution | None = None
    sure: bool = False
    reading: Reading | None = None
    features: SolvedFeatures | None = None
    methods: Mapping[str, str] = field(default_factory=dict)

    @property
    def best(self) -> Solution:
        """The solution, after a search."""
        assert self.solution is not None
        return self.solution

    def settled(self, labels_by: str) -> Found:
        """With how the solution's labels were inferred."""
        return replace(self, solution=replace(self.best, labels_by=labels_by))


@dataclass(frozen=True, eq=False)
class StrategyWork:
    """What a method gets beside its cases. progress: to be told of it. solve: solves further cases by all methods."""

    progress: Progress | None
    solve: Callable[[Sequence[Case], Progress | None], list[Found]]


class Strategy(Protocol):
    """A method of inversion: an entry of `plan.PLAN`. It holds no state, and all its randomness comes from the seed.

    name: of the method, as `audit run --explain` prints it. phase: read (before any guess), search (makes the guess),
    refine (carries it on), or simulate (local training on it).
    """

    name: str
    phase: Phase

    def applies(self, case: Case) -> str:
        """ "" where the method may run; else why not, in one clause. By public facts, the network and shapes alone."""
        ...

    def needless(self, case: Case, found: Found) -> str:
        """Why nothing is left for it after the methods before it, in one clause; "" where something is."""
        return LEFT_NOTHING if found.sure else ""

    def cost(self, case: Case) -> int:
        """About how many operations it takes, above 0, by a rule on shapes."""
        return UNCOUNTED

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        """What is known of each case after it; a solution is never worse than the one given, by the objective.

        Args:
            cases: to which it applies. found: what is known of each. work: progress, and all methods.
        """
        ...

    def assumed(self, case: Case, solution: Solution) -> tuple[str, ...]:
        """What it took for granted, in plain words. solution: the final one."""
        return ()


def solved_together(cases: Sequence[Case]) -> list[list[int]]:
    """Which cases, by their places, may be computed as one array: those of one network and the same settings."""
    groups: dict[tuple[int, Settings], list[int]] = {}
    for i, case in enumerate(cases):
        groups.setdefault((id(case.network), case.settings), []).append(i)
    return list(groups.values())


def methods_of(found: Sequence[Found]) -> tuple[tuple[str, str], ...]:
    """Of each method its name, and "" where it ran on any of several cases, else why it did not run on the first."""
    ran = {name for each in found for name, why in each.methods.items() if not why}
    return tuple((name, "" if name in ran else why) for name, why in found[0].methods.items())


def counted(progress: Progress | None, total: int) -> Tick:
    """Called once an iteration, of so many."""
    done = count(1)

    def tick() -> None:
        if progress is not None:
            progress(min(next(done), total), total)

    return tick
