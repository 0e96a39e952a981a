"""The mechanism audit: one client's contribution with and without a canary, trained once, noised as often as it takes.

The attacker knows everything but the noise and what else is drawn anew in every trial: the model sent out, the client's
other records, and the batch order wherever training is not repeated. That is whom differential privacy is about, so a
bound by this attacker refutes a claim as well as a bound by a weaker one. It does not say what the weaker one could do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...defenses.progress import Progress
from ...defenses.randomness import stream
from ...defenses.workers import HERE, Workers
from .estimators import LowerBound, clopper_pearson, gdp
from .estimators.betting import betting
from .estimators.clopper_pearson import upper_limit
from .estimators.separate import Separate
from .likelihood import Deviations, Expected, LikelihoodRatio, Mechanism, deviations
from .sequential import BoundRule, DrawBlock, Taken, take

CHUNK_NUMBERS = 2**22  # of messages held at once


class Trials(Protocol):
    """One message an observer gets, in either world, as often as one likes.

    sizes: the tensors that make up the message. rate: the chance that the canary's client is drawn at all (unseen by
    the observer).
    """

    @property
    def sizes(self) -> Sequence[int]: ...

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def rate(self) -> float: ...

    def expected(self) -> tuple[Expected, Expected]:
        """What worlds 0 and 1 send but for the noise."""
        ...

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        """Messages (k, d) with fresh noise of these seeds. drawn: as if the client had been drawn for certain."""
        ...


@dataclass(frozen=True, eq=False)
class MechanismAudit:
    """What telling the two worlds apart demonstrated.

    counted: without an assumption on the noise. if_gaussian: if it is Gaussian-shaped; None where it is not known that
      it may be, and at δ = 0, where no Gaussian ε is finite. chance: the first of these where there is no canary in
      either world: what the instrument shows of nothing.
    shift: ‖v₁ − v₀‖ in standard deviations of the noise. scores_in, scores_out: of the tested trials.
    taken: how draws were taken, None where their number was fixed. one_size: whether the noise showed one size in both
      worlds. exposure: of a planted secret in bits, the mean of trainings with it and of those without; None of others.
    """

    counted: LowerBound
    if_gaussian: LowerBound | None
    chance: LowerBound
    shift: float
    scores_in: NDArray[np.float64] = field(repr=False)
    scores_out: NDArray[np.float64] = field(repr=False)
    taken: Taken | None = None
    one_size: bool = True
    exposure: tuple[float, float] | None = None

    def delta_at(self, epsilon: float) -> float:
        """How badly a claim of `epsilon` fails: the largest δ that the tested draws refute at it, by counting."""
        if self.taken:
            return self.taken.delta_at(epsilon)
        return delta_at(self.counted, epsilon)


def delta_at(bound: LowerBound, epsilon: float) -> float:
    """The largest δ that the tested counts refute at `epsilon`.

    That is max(TPR − e^ε FPR, TNR − e^ε FNR, 0) at the rates' limits.
    """
    alpha, counts = 1 - bound.confidence, bound.counts
    missed = float(upper_limit(counts["fn"], counts["fn"] + counts["tp"], alpha / 2))
    alarms = float(upper_limit(counts["fp"], counts["fp"] + counts["tn"], alpha / 2))
    factor = exp(min(epsilon, 700.0))
    return max(1 - missed - factor * alarms, 1 - alarms - factor * missed, 0.0)


def audit_trials(
    messages: Sequence[Trials],
    rule: BoundRule,
    *,
    draws: int,
    calibration: int,
    seed: int = 0,
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> MechanismAudit:
    """Scores at most `draws` tested trials a world, each a draw of all `messages` (a client's rounds) with noise of its
    own.

    Args:
        messages: the client's rounds, in both worlds.
        rule: of the bounds.
        draws: tested trials a world, at most.
        calibration: further trials a world, to fit the score and to make the first bets on.
        seed: of the noise.
        progress: called with the draws done and their number. workers: who draws.

    Where both worlds send the same, the bounds are 0: whoever calls sees to it that the canary changes something.

    Raises:
        ValueError: there are fewer than 10 trials.
    """
    if min(draws, calibration) < 10:
        raise ValueError(f"draws and calibration must be at least 10 trials a side, got {draws} and {calibration}")
    counter = _Counter(2 * (draws + calibration) * len(messages), progress)
    rounds = [
        _Round(message, message.expected(), place, seed, workers, counter) for place, message in enumerate(messages)
    ]
    ratios, shifts, fitted = [], [], {0: list[NDArray[np.float64]](), 1: list[NDArray[np.float64]]()}
    for one in rounds:
        message, own = one.message, one.deviating("calibration draw", range(calibration), True)
        ratio = LikelihoodRatio.fitted(own[0][0], own[1][1], message.sizes, message.mechanism, message.rate)
        ratios.append(ratio)
        between = deviations(one.expected[1].centre[None], one.expected[0], message.sizes, message.mechanism)
        shifts.append(ratio.shift(between))
        if message.rate == 1.0:
            sampled = own
        else:
            sampled = one.deviating("sampled draw", range(calibration), False)
        for world in (0, 1):
            fitted[world].append(ratio(*sampled[world]))

    def draw(first: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        judged = [one.deviating("tested draw", range(first, end), False) for one in rounds]
        present, without = (np.sum([r(*j[w]) for r, j in zip(ratios, judged)], axis=0) for w in (1, 0))
        return present, without

    past = Separate(np.sum(fitted[1], axis=0), np.sum(fitted[0], axis=0))
    shift = float(np.sqrt(np.square(shifts).sum()))
    return audit_draws(draw, past, draws, rule, shift=shift, one_size=all(ratio.one_size for ratio in ratios))


def audit_draws(
    draw: DrawBlock, past: Separate, draws: int, rule: BoundRule, *, shift: float, one_size: bool = True
) -> MechanismAudit:
    """The bounds of draws that end as soon as every target is refuted or cannot be (`sequential.take`).

    Args:
        draw: makes tested trials. past: scores of other trials.
        draws: tested trials a world, at most.
        rule: of the bounds.
        shift: as in `MechanismAudit`.
        one_size: whether the noise shows one size in both worlds, without which scores are not Gaussian.
    """
    gaussian = rule.gaussian and one_size and rule.delta > 0
    taken = take(draw, past, draws, replace(rule, gaussian=gaussian))
    half, learned = taken.draws // 2, len(past.scores_out) // 2
    chance = betting(
        taken.scores_out[:half],
        taken.scores_out[half : 2 * half],
        past_in=past.scores_out[:learned],
        past_out=past.scores_out[learned:],
        delta=rule.delta,
        confidence=rule.confidence,
    )
    return MechanismAudit(
        counted=taken.counted,
        if_gaussian=taken.if_gaussian,
        chance=chance,
        shift=shift,
        scores_in=taken.scores_in,
        scores_out=taken.scores_out,
        taken=taken,
        one_size=one_size,
    )


class _Counter:
    """Draws done, for `progress`."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.progress, self.done = total, progress, 0

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)


@dataclass(frozen=True, eq=False)
class _Round:
    """One message, to be drawn from. place: of it among the client's rounds. seed: of the noise."""

    message: Trials
    expected: tuple[Expected, Expected]
    place: int
    seed: int
    workers: Workers
    counter: _Counter

    def deviating(self, purpose: str, numbers: range, drawn: bool) -> list[tuple[Deviations, Deviations]]:
        """The deviations of messages of world 0, and of world 1, from what either world expects. numbers: theirs."""
        size = max(1, CHUNK_NUMBERS // sum(self.message.sizes))
        chunks = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        drawing = _Drawing(self.message, self.expected, drawn, self.seed, purpose, self.place)
        apart: list[tuple[list[Deviations], list[Deviations]]] = [([], []), ([], [])]
        for some, chunk in zip(chunks, self.workers.map(drawing, chunks)):
            for world in (0, 1):
                for w in (0, 1):
                    apart[world][w].append(chunk[world][w])
            self.counter(2 * len(some))
        return [(np.concatenate(from_0), np.concatenate(from_1)) for from_0, from_1 in apart]


@dataclass(frozen=True, eq=False)
class _Drawing:
    """How draws of a message, called for by their numbers, lie from what either world expects. drawn: as of a `Trials`.
    seed, purpose, place: of their noise.
    """

    message: Trials
    expected: tuple[Expected, Expected]
    drawn: bool
    seed: int
    purpose: str
    place: int

    def __call__(self, numbers: Sequence[int], _: Progress | None) -> list[tuple[Deviations, Deviations]]:
        """By world."""
        message, made = self.message, []
        for world in (0, 1):
            seeds = [stream(self.seed, self.purpose, world, self.place, i) for i in numbers]
            vectors = message.draw(world, seeds, self.drawn)
            near, far = (deviations(vectors, one, message.sizes, message.mechanism) for one in self.expected)
            made.append((near, far))
        return made


def audit_scores(
    scores_in: NDArray[np.float64],
    scores_out: NDArray[np.float64],
    separate: Separate,
    *,
    delta: float,
    confidence: float,
    shift: float,
    gaussian: bool = False,
) -> MechanismAudit:
    """The bounds of a fixed number of tested scores, with thresholds fixed on separate ones.

    Args:
        scores_in, scores_out: tested trials with and without the canary, (n,) each.
        separate: scores of other trials, which fix thresholds.
        delta: in [0, 1). confidence: of each bound.
        shift: how far apart the worlds' noise-free messages are, in standard deviations of the noise.
        gaussian: whether scores may be Gaussian-shaped, by what is known of the mechanism.
    """
    level: dict[str, Any] = {"delta": delta, "confidence": confidence}

    def counted(a: NDArray[np.float64], b: NDArray[np.float64]) -> LowerBound:
        return clopper_pearson(a, b, **level, threshold=separate.best(len(a), len(b), delta, 1 - confidence))

    shaped = gaussian and delta > 0
    half = len(scores_out) // 2
    return MechanismAudit(
        counted=counted(scores_in, scores_out),
        if_gaussian=gdp(scores_in, scores_out, **level, threshold=separate.middle) if shaped else None,
        chance=counted(scores_out[:half], scores_out[half:]),
        shift=shift,
        scores_in=scores_in,
        scores_out=scores_out,
    )
