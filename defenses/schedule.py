"""How many rounds there are and how noise and learning rate change over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol


@dataclass(frozen=True)
class RoundPlan:
    """A round's public factors: what the noise's standard deviation and the learning rate are multiplied by.

    lr_by_step: further factors for the local steps 0, 1, … of this round, () for none.
    """

    noise: float = 1.0
    lr: float = 1.0
    lr_by_step: tuple[float, ...] = ()


# What everybody knows of the rounds before: test_loss, test_accuracy, a value a round.
History = Mapping[str, Sequence[float]]


class Schedule(Protocol):
    def plan(self, round: int, history: History) -> RoundPlan | None:
        """The plan of round 0, 1, …, None to stop; computed from the history each time, without a memory."""
        ...


@dataclass(frozen=True)
class FixedRounds:
    """A fixed number of rounds.

    The learning rate is multiplied by `lr_decay` every `decay_every` rounds, `decays` times at most (None: no limit).
    """

    rounds: int
    lr_decay: float = 1.0
    decay_every: int = 1
    decays: int | None = None

    def plan(self, round: int, history: History) -> RoundPlan | None:
        del history
        if round >= self.rounds:
            return None
        times = round // self.decay_every
        return RoundPlan(lr=self.lr_decay ** (times if self.decays is None else min(times, self.decays)))


@dataclass(frozen=True)
class Geometric:
    """Noise whose variance grows by the factor ϑ from round to round, with rounds cut short online (GEO eq. 6, Thm 2).

    rounds: M. ratio: ϑ > 0. first(M', m): the noise std of round 1 by eq. 8 (m = 0) or, once m rounds are done and M'
    are to be, by eq. 9.
    shorten: α_d in (0, 1), or None for no adjustment: whenever a round's test loss has not fallen, M ← ⌈α_d·M⌉ and the
    rounds that follow use ϑ^(m−1)σ'². It is cut again whenever that is seen again, and ends at once where M' ≤ m.

    The plan's noise is relative to `first(rounds, 0)`, which the noise step draws.
    """

    rounds: int
    ratio: float
    first: Callable[[int, int], float]
    shorten: float | None = None

    def plan(self, round: int, history: History) -> RoundPlan | None:
        rounds, start = self.rounds, 1.0
        shorten, losses = self.shorten or 1.0, () if self.shorten is None else history.get("test_loss", ())[:round]
        for done in range(2, len(losses) + 1):
            if done < rounds and not losses[done - 1] < losses[done - 2]:
                shorter = ceil(shorten * rounds - 1e-9)
                if done < shorter < rounds:
                    start = self.first(shorter, done) / self.first(self.rounds, 0)
                rounds = shorter
        return RoundPlan(noise=start * self.ratio ** (round / 2)) if round < rounds else None


@dataclass(frozen=True)
class HarmonicSteps:
    """Learning rates 2/(μ(k + γ)) of the local steps k = 0, 1, … over all rounds, `steps` a round (ITER Thm 3).

    A round's noise is proportional to its first, largest rate, relative to that of round 0. The local training's own lr
    must be 1.
    """

    rounds: int
    steps: int
    mu: float
    gamma: float

    def rate(self, k: int) -> float:
        return 2 / (self.mu * (k + self.gamma))

    def plan(self, round: int, history: History) -> RoundPlan | None:
        del history
        if round >= self.rounds:
            return None
        rates = tuple(self.rate(round * self.steps + i) for i in range(self.steps))
        return RoundPlan(noise=rates[0] / self.rate(0), lr_by_step=rates)


MOST_ROUNDS = 100_000  # of any schedule


def rounds_planned(schedule: Schedule) -> int:
    """How many rounds a schedule plans while it knows of no round's outcome, `MOST_ROUNDS` at most.

    >>> rounds_planned(FixedRounds(7))
    7
    """
    return next((round for round in range(MOST_ROUNDS) if schedule.plan(round, {}) is None), MOST_ROUNDS)
