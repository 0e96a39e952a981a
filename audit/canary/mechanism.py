"""The mechanism audit: one client's contribution with and without a canary, trained once, noised thousands of times.

The attacker knows everything but the noise and what else is drawn anew in every trial: the model sent out, the client's
other records, and the batch order wherever training is not repeated. That is whom differential privacy is about, so a
bound by this attacker refutes a claim as well as a bound by a weaker one. It does not say what the weaker one could do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...defenses.progress import Progress
from ...defenses.randomness import generator, stream
from ...defenses.workers import HERE, Workers
from ..demonstrated import Finding, Fixed, LowerBound, clopper_pearson, gdp, violation
from ..demonstrated.clopper_pearson import upper_limit
from ..demonstrated.separate import Separate
from ..results.words import at_least
from .likelihood import Deviations, Expected, LikelihoodRatio, Mechanism, deviations

CHUNK_NUMBERS = 2**22  # of messages held at once
REPEATED = 10  # calls of a user's function that are made again, to see that it keeps no state
EXACT = 2.0**53  # below it float64 holds every whole number
FAR = 1e100  # of a user's numbers, what is further from 0 counts as infinite: squares and their sums stay finite


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

    clopper_pearson: without an assumption on the noise. gdp: if it is Gaussian-shaped; None where it is not known that
      it may be, and at δ = 0, where no Gaussian ε is finite. chance: the first of these where there is no canary in
      either world: what the instrument shows of nothing.
    shift: ‖v₁ − v₀‖ in standard deviations of the noise. scores_in, scores_out: of the tested trials.
    not_finite: of a user's own function, how many of its results held a NaN or an infinity.
    """

    clopper_pearson: LowerBound
    gdp: LowerBound | None
    chance: LowerBound
    shift: float
    scores_in: NDArray[np.float64] = field(repr=False)
    scores_out: NDArray[np.float64] = field(repr=False)
    not_finite: int = 0

    def finding(self, claimed: float) -> Finding:
        """What this says about a claim of (claimed, δ)-DP, by the bound that `chosen` names; where that one assumes a
        shape, also what holds without.
        """
        chosen, counted = self.chosen(claimed), self.clopper_pearson
        found = violation(chosen, claimed, counted.delta)
        said = found.sentence
        if chosen is not counted:
            said += f"; by counting alone, whatever the noise, {_shown(counted)}"
        if self.not_finite:
            said += f"; results that were not finite: {self.not_finite}"
        return replace(found, sentence=said)

    def chosen(self, target: float) -> LowerBound:
        """The bound to judge a target ε by: the one without assumptions, unless only the other could exceed the target.

        It follows from the number of trials alone, so nothing is chosen by its result.
        """
        if self.gdp is not None and self.clopper_pearson.ceiling <= target < self.gdp.ceiling:
            return self.gdp
        return self.clopper_pearson

    def delta_at(self, epsilon: float) -> float:
        """How badly a claim fails: the least δ at which (ε, δ)-DP is not refuted, with the bound's confidence."""
        return delta_at(self.clopper_pearson, epsilon)


def _shown(bound: LowerBound) -> str:
    return f"at least ε = {at_least(bound.epsilon)} was demonstrated"


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
    *,
    delta: float,
    draws: int,
    calibration: int,
    confidence: float = 0.95,
    seed: int = 0,
    gaussian: bool = False,
    interleaved: bool = False,
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> MechanismAudit:
    """Scores `draws` tested trials a world, each a draw of all `messages` (a client's rounds) with noise of its own.

    Args:
        messages: the client's rounds, in both worlds.
        delta, confidence: of the bounds.
        draws: tested trials a world.
        calibration: further trials a world, to fit the score and to fix the threshold on.
        seed: of the noise.
        gaussian: whether scores may be Gaussian-shaped, by what is known of the mechanism (`shape.not_gaussian`).
        interleaved: draw one message after the other, the worlds in random order; for code that might keep a state.
        progress: called with the draws done and their number. workers: who draws.

    Where both worlds send the same, the bounds are 0: whoever calls sees to it that the canary changes something.

    Raises:
        ValueError: there are fewer than 10 trials.
    """
    if min(draws, calibration) < 10:
        raise ValueError(f"draws and calibration must be at least 10 trials a side, got {draws} and {calibration}")
    done, total = 0, 2 * (draws + calibration) * len(messages)

    def step(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    fitted: dict[int, list[NDArray[np.float64]]] = {0: [], 1: []}
    tested: dict[int, list[NDArray[np.float64]]] = {0: [], 1: []}
    shifts = []
    for place, message in enumerate(messages):
        expected = message.expected()

        def deviating(
            purpose: str,
            count: int,
            drawn: bool,
            place: int = place,
            message: Trials = message,
            expected: tuple[Expected, Expected] = expected,
        ) -> list[tuple[Deviations, Deviations]]:
            """The deviations of `count` messages of world 0, and of world 1, from what either world expects."""
            size = max(1, CHUNK_NUMBERS // sum(message.sizes))
            chunks = [range(first, min(first + size, count)) for first in range(0, count, size)]
            drawing = _Drawing(message, expected, drawn, seed, purpose, place, interleaved)
            apart: list[tuple[list[Deviations], list[Deviations]]] = [([], []), ([], [])]
            for numbers, chunk in zip(chunks, workers.map(drawing, chunks)):
                for world in (0, 1):
                    for w in (0, 1):
                        apart[world][w].append(chunk[world][w])
                step(2 * len(numbers))
            return [(np.concatenate(from_0), np.concatenate(from_1)) for from_0, from_1 in apart]

        own = deviating("calibration draw", calibration, True)
        ratio = LikelihoodRatio.fitted(own[0][0], own[1][1], message.sizes, message.mechanism, message.rate)
        between = deviations(expected[1].centre[None], expected[0], message.sizes, message.mechanism)
        shifts.append(ratio.shift(between))
        sampled = own if message.rate == 1.0 else deviating("sampled draw", calibration, False)
        judged = deviating("tested draw", draws, False)
        for world in (0, 1):
            fitted[world].append(ratio(*sampled[world]))
            tested[world].append(ratio(*judged[world]))
    scores = [np.sum(tested[world], axis=0) for world in (0, 1)]
    return audit_scores(
        scores[1],
        scores[0],
        Separate(np.sum(fitted[1], axis=0), np.sum(fitted[0], axis=0)),
        delta=delta,
        confidence=confidence,
        shift=float(np.sqrt(np.square(shifts).sum())),
        gaussian=gaussian,
    )


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
    interleaved: bool

    def __call__(self, numbers: Sequence[int], _: Progress | None) -> list[tuple[Deviations, Deviations]]:
        """By world."""
        message, name = self.message, (self.seed, self.purpose)
        seeds = [[stream(*name, world, self.place, i) for i in numbers] for world in (0, 1)]
        order = stream(*name, "order", self.place, numbers[0]) if self.interleaved else None
        near, far = (
            [deviations(vectors, expected, message.sizes, message.mechanism) for expected in self.expected]
            for _, vectors in _drawn(message, seeds, self.drawn, order)
        )
        return [(near[0], near[1]), (far[0], far[1])]


def _drawn(
    message: Trials, seeds: Sequence[Sequence[int]], drawn: bool, order: int | None
) -> Iterator[tuple[int, Tensor]]:
    """Each world and its messages of these seeds; where `order` is a seed, drawn one by one in that random order."""
    if order is None:
        for world in (0, 1):
            yield world, message.draw(world, seeds[world], drawn)
        return
    calls = [(world, i) for world in (0, 1) for i in range(len(seeds[world]))]
    shuffled = torch.randperm(len(calls), generator=generator(order)).tolist()
    vectors = {calls[k]: message.draw(calls[k][0], [seeds[calls[k][0]][calls[k][1]]], drawn) for k in shuffled}
    for world in (0, 1):
        yield world, torch.cat([vectors[world, i] for i in range(len(seeds[world]))])


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
    """The bounds of tested scores, with thresholds fixed on separate ones.

    Args:
        scores_in, scores_out: tested trials with and without the canary, (n,) each.
        separate: scores of other trials, which fix thresholds.
        delta: in [0, 1). confidence: of each bound.
        shift: how far apart the worlds' noise-free messages are, in standard deviations of the noise.
        gaussian: whether scores may be Gaussian-shaped, by what is known of the mechanism.
    """
    options: dict[str, Any] = {"delta": delta, "confidence": confidence, "threshold": separate}
    middle: dict[str, Any] = {**options, "threshold": Fixed(separate.middle)}
    half = len(scores_out) // 2
    return MechanismAudit(
        clopper_pearson=clopper_pearson(scores_in, scores_out, **options),
        gdp=gdp(scores_in, scores_out, **middle) if gaussian and delta > 0 else None,
        chance=clopper_pearson(scores_out[:half], scores_out[half:], **options),
        shift=shift,
        scores_in=scores_in,
        scores_out=scores_out,
    )


# --- a user's own mechanism ---


@dataclass(eq=False)
class _Calls:
    """A user's function. The first calls and their results are kept, to be made again."""

    update: Callable[[bool, int], Any]
    kept: dict[tuple[bool, int], Tensor] = field(default_factory=dict)
    not_finite: int = 0  # results with a NaN or an infinity

    def __call__(self, world: bool, seed: int) -> Tensor:
        vector = _vector(self.update(world, seed))
        known = next(iter(self.kept.values()), vector)
        if len(vector) != len(known):
            raise ValueError(
                f"update_fn gave a vector of {len(vector)} numbers after one of {len(known)}; all must be as long"
            )
        self.not_finite += not bool(torch.isfinite(vector).all())
        if len(self.kept) < REPEATED:
            self.kept[world, seed] = vector
            if len(self.kept) == REPEATED:
                self.repeat()
        return vector

    def repeat(self) -> None:
        """Makes the kept calls again, the last one first. Raises ValueError where a result is another one now.

        A state that earlier calls leave behind depends on when a call is made, which tells worlds apart and says
        nothing about the mechanism.
        """
        for (world, seed), before in reversed(self.kept.items()):
            if not _same(_vector(self.update(world, seed)), before):
                raise ValueError(
                    f"update_fn({world}, {seed}) gave another result when it was called again; it must follow from"
                    " world and seed alone, without a state kept between calls or randomness of its own"
                )

    def differ(self, count: int, seed: int) -> None:
        """Raises ValueError where the canary changes nothing for any of `count` seeds that both worlds get."""
        for i in range(count):
            both = stream(seed, "either world", i)
            if not _same(self(False, both), self(True, both)):
                return
        raise ValueError(
            f"update_fn gave the same with the canary as without it for each of {count} seeds, so there is nothing to"
            " audit; plant a canary that changes what is sent (or ask for more calibration, if it rarely does)"
        )


@dataclass(frozen=True, eq=False)
class _Callable:
    """Trials of a user's function."""

    call: _Calls
    centres: tuple[Tensor, Tensor]
    sizes: Sequence[int]
    mechanism: Mechanism = "gaussian"
    rate: float = 1.0

    def expected(self) -> tuple[Expected, Expected]:
        return Expected(self.centres[0]), Expected(self.centres[1])

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        return torch.stack([self.call(bool(world), seed) for seed in seeds])


def audit_mechanism(
    update_fn: Callable[[bool, int], Any],
    *,
    delta: float,
    noiseless: Callable[[bool], Any] | None = None,
    draws: int = 1000,
    calibration: int | None = None,
    sizes: Sequence[int] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    gaussian: bool = False,
    progress: Progress | None = None,
) -> MechanismAudit:
    """A lower bound on the ε of your own mechanism, by telling apart two neighbouring inputs of your choice.

    Args:
        update_fn: (world, seed) → what an observer gets, a vector (d,) (tensor, array or list of numbers, read as
            float64), with fresh randomness of `seed`; world is True with your canary, False without. It should run the
            very code that is to be trusted, and give the same for the same world and seed: a state kept between calls
            would tell the worlds apart by when they were drawn. The worlds are drawn in random order, and some calls
            made twice. Only how far each number lies from its mean in either world is looked at, and which are finite:
            a leak in the last bits of large noise (Mironov 2012), or in how the numbers of one draw depend on each
            other, is not seen. Give such bits, or such a statistic, as numbers of their own.
        delta: of the bounds, in [0, 1); 0 for pure DP.
        noiseless: world → the same without noise, if you know it. Else the attacker learns it from `calibration` draws
            more, which in many dimensions costs power: from K draws the direction is known up to √(2d/K) noise standard
            deviations.
        draws: tested trials a world; 1,000 can show ε = 5.6 at most by counting, 32 if the noise is Gaussian
            (`demonstrated.plan_draws`).
        calibration: trials a world to fit the score and fix the threshold on; None: a quarter of `draws`, at least 50.
        sizes: how many numbers each tensor of the vector has, if the noise may differ between them; None: one tensor.
        confidence: of the bounds.
        seed: of all draws.
        gaussian: True only where you know that the mechanism is Gaussian noise of one size on a sum, nothing sampled.
            Then `gdp` is measured too. It holds on that condition alone: for Laplace noise it exceeds the true ε.
        progress: called with the draws done and their number.

    Raises:
        ValueError: there are fewer than 10 draws, vectors are not one-dimensional or change their length, sizes do not
            add up, a call made twice gave two results, numbers are complex or whole ones beyond 2^53, or the canary
            changes nothing.

    >>> import numpy as np
    >>> def noisy_sum(world, seed):
    ...     return np.random.default_rng(seed).normal(size=3) + [3.0 * world, 0, 0]
    >>> centre = lambda world: [3.0 * world, 0, 0]
    >>> audit = audit_mechanism(noisy_sum, delta=1e-5, noiseless=centre, draws=300, gaussian=True)
    >>> 1.5 < audit.clopper_pearson.epsilon < audit.gdp.epsilon < 18.5        # the truth: 18.45
    True
    >>> audit.finding(claimed=1.0).level, audit.finding(claimed=5.0).level    # counting can show 4.4 here, no more
    ('violated', 'violated on a condition')
    """
    spare = max(draws // 4, 50) if calibration is None else calibration
    call = _Calls(update_fn)
    call.differ(max(spare, 1), seed)
    centres = _learned(call, spare, seed) if noiseless is None else [_vector(noiseless(w)) for w in (False, True)]
    dim = len(centres[0])
    parts = [dim] if sizes is None else list(sizes)
    if sum(parts) != dim or len(centres[1]) != dim:
        raise ValueError(
            f"the vectors have {dim} and {len(centres[1])} numbers and the sizes add up to {sum(parts)}; all three must"
            " be equal"
        )
    audit = audit_trials(
        [_Callable(call, (centres[0], centres[1]), parts)],
        delta=delta,
        draws=draws,
        calibration=spare,
        confidence=confidence,
        seed=seed,
        gaussian=gaussian,
        interleaved=True,
        progress=progress,
    )
    call.repeat()
    return replace(audit, not_finite=call.not_finite)


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether two vectors are the same, NaN being the same as NaN."""
    return first.shape == second.shape and bool(((first == second) | (first.isnan() & second.isnan())).all())


def _vector(values: Any) -> Tensor:
    """Values as float64, in a copy: a function may hand out the same buffer again."""
    read = torch.as_tensor(values).detach()
    if read.ndim != 1:
        raise ValueError(f"the mechanism must give a vector, got shape {tuple(read.shape)}")
    if read.is_complex():
        raise ValueError("the mechanism must give real numbers, got complex ones; give both parts as numbers")
    # Python's own numbers again, since torch reads a list of them as float32.
    vector = (
        read.to(torch.float64, copy=True) if hasattr(values, "dtype") else torch.as_tensor(values, dtype=torch.float64)
    )
    if not read.is_floating_point() and bool((vector.abs() >= EXACT).any()):
        raise ValueError("the mechanism gave whole numbers of 2^53 or more, which float64 cannot tell apart")
    return torch.where(vector.abs() > FAR, vector.sign() * float("inf"), vector)


def _learned(call: _Calls, count: int, seed: int) -> list[Tensor]:
    """The mean of `count` draws of each world, drawn in random order: component by component of those that are finite,
    NaN where none is.
    """
    totals: list[Tensor | None] = [None, None]
    counts: list[Tensor | int] = [0, 0]
    for k in torch.randperm(2 * count, generator=generator(seed, "centre order")).tolist():
        world, i = divmod(k, count)
        vector = call(bool(world), stream(seed, "centre draw", world, i))
        finite, before = torch.isfinite(vector), totals[world]
        counts[world] = counts[world] + finite.double()
        vector = torch.where(finite, vector, 0.0)
        totals[world] = vector if before is None else before + vector
    return [total / seen for total, seen in zip(totals, counts) if total is not None]
