"""How many rounds there are and how noise and learning rate change over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol, runtime_checkable

import numpy as np


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


@runtime_checkable
class Adaptive(Schedule, Protocol):
    """A schedule that may read the history, and knows all that a history can lead to.

    Noise that was chosen after seeing what was released is no mechanism fixed in advance: the path that was taken
    prices nothing, every path counts.
    """

    def worst(self, counted: Collection[int]) -> list[RoundPlan]:
        """The rounds of the path with the largest Σ 1/noise² of all, summed over the rounds that are counted."""
        ...

    def least(self) -> list[RoundPlan]:
        """For every round that some path reaches, the least noise it has on any path."""
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
        losses = () if self.shorten is None else history.get("test_loss", ())[:round]
        for done in range(2, len(losses) + 1):
            if done < rounds and not losses[done - 1] < losses[done - 2]:
                rounds, before = self._shorter(rounds), rounds
                if done < rounds < before:
                    start = self._start(rounds, done)
        return self._plan(round, start) if round < rounds else None

    def worst(self, counted: Collection[int]) -> list[RoundPlan]:
        """Dynamic programming over (cuts so far, rounds done at the last one): M follows from the first, σ' from both,
        so what can still come does not depend on how the path came there.
        """
        lengths = self._lengths()
        spent = np.cumsum([0.0, *(self.ratio**-round * (round in counted) for round in range(self.rounds))])
        until: list[dict[int, int]] = [{} for _ in lengths]  # by cuts and round of the last: the next cut, or the end
        after = np.full(self.rounds + 1, -inf)  # Σ behind a cut, by its round
        for cuts in reversed(range(len(lengths))):
            here = np.full_like(after, -inf)
            rest = after.copy()
            rest[lengths[cuts]] = 0.0
            for done in self._cut_at(cuts, lengths):
                totals = (spent - spent[done]) / self._start(lengths[cuts], done) ** 2 + rest
                until[cuts][done] = done + 1 + int(totals[done + 1 :].argmax())
                here[done] = totals[until[cuts][done]]
            after = here
        plans: list[RoundPlan] = []
        cuts = done = 0
        while done < lengths[cuts]:
            start, at = self._start(lengths[cuts], done), until[cuts][done]
            plans += [self._plan(round, start) for round in range(done, at)]
            cuts, done = cuts + (at < lengths[cuts]), at
        return plans

    def least(self) -> list[RoundPlan]:
        lengths = self._lengths()
        starts = [1.0] * self.rounds
        for cuts in range(1, len(lengths)):
            lowest = inf
            for done in self._cut_at(cuts, lengths):  # a path goes on with this σ' at least to the end of its rounds
                lowest = min(lowest, self._start(lengths[cuts], done))
                starts[done] = min(starts[done], lowest)
        return [self._plan(round, start) for round, start in enumerate(starts)]

    def _plan(self, round: int, start: float) -> RoundPlan:
        return RoundPlan(noise=start * self.ratio ** (round / 2))

    def _start(self, rounds: int, done: int) -> float:
        """σ' of the cut to `rounds` after `done`, relative to σ; 1 before any cut."""
        return self.first(rounds, done) / self.first(self.rounds, 0) if done else 1.0

    def _shorter(self, rounds: int) -> int:
        return ceil((self.shorten or 1.0) * rounds - 1e-9)

    def _lengths(self) -> list[int]:
        """M after 0, 1, … cuts, while a round can follow: the first cut is after round 2, and there is one a round."""
        lengths = [self.rounds]
        while len(lengths) + 1 < self._shorter(lengths[-1]) < lengths[-1]:
            lengths.append(self._shorter(lengths[-1]))
        return lengths

    def _cut_at(self, cuts: int, lengths: Sequence[int]) -> range:
        """After how many rounds the last of so many cuts can have been, with rounds to follow."""
        if cuts == 0:
            return range(1)
        return range(cuts + 1, lengths[cuts] if cuts < len(lengths) else 0)


@dataclass(frozen=True)
class NoiseOverRounds:
    """A fixed number of rounds whose noise is multiplied by factor(t/T) in round t of T."""

    rounds: int
    factor: Callable[[float], float]

    def plan(self, round: int, history: History) -> RoundPlan | None:
        del history
        return RoundPlan(noise=self.factor(round / self.rounds)) if round < self.rounds else None


@dataclass(frozen=True)
class DecayWhileFalling:
    """Noise that is multiplied by β whenever the test loss has fallen three times in a row (adap DP-FL eq. 9).

    J(w_{t−3}) > J(w_{t−2}) > J(w_{t−1}) > J(w_t) decides σ_{t+1}, with J(w_0) = J(w_1) = J(w_2) = ∞: the first decay
    can be that of round 6, counted from 0. rounds: T. ratio: β in (0, 1].
    """

    rounds: int
    ratio: float

    def plan(self, round: int, history: History) -> RoundPlan | None:
        if round >= self.rounds:
            return None
        known = history.get("test_loss", ())[: max(0, round - 1)] if self.ratio < 1 else ()
        losses = [inf, inf, inf, *known[2:]]
        falls = [before > after for before, after in zip(losses, losses[1:])]
        return RoundPlan(noise=self.ratio ** sum(map(all, zip(falls, falls[1:], falls[2:]))))

    def worst(self, counted: Collection[int]) -> list[RoundPlan]:
        """That of a loss that always falls: no round of any path has less noise."""
        del counted
        return self.least()

    def least(self) -> list[RoundPlan]:
        return [RoundPlan(noise=self.ratio ** max(0, round - 5)) for round in range(self.rounds)]


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


def plans_of(schedule: Schedule) -> list[RoundPlan]:
    """The rounds of a schedule that asks for no history, `MOST_ROUNDS` at most."""
    plans: list[RoundPlan] = []
    while len(plans) < MOST_ROUNDS and (plan := schedule.plan(len(plans), Unread())) is not None:
        plans.append(plan)
    return plans


def reads_history(schedule: Schedule) -> bool:
    """Whether a schedule asks for what happened in the rounds before."""
    history = Unread()
    for round in range(MOST_ROUNDS):
        if schedule.plan(round, history) is None or history.asked:
            break
    return history.asked


class Unread(Mapping[str, Sequence[float]]):
    """A history without entries, that remembers whether it was asked for one."""

    asked = False

    def __getitem__(self, key: str) -> Sequence[float]:
        self.asked = True
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        self.asked = True
        return iter(())

    def __len__(self) -> int:
        self.asked = True
        return 0
