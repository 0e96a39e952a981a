"""The mechanism audit: one client's contribution with and without a canary, trained once, noised thousands of times.

The attacker knows everything but the noise (and what else is drawn anew in every trial): the model sent out, the
client's other records, the batch order. That is whom differential privacy is about, so a bound by this attacker refutes
a claim as well as a bound by a weaker one. It does not say what the weaker one could do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...defenses.progress import Progress
from ...defenses.randomness import stream
from ..demonstrated import Finding, Fixed, LowerBound, clopper_pearson, gdp, violation
from ..demonstrated.clopper_pearson import upper_limit
from ..demonstrated.separate import Separate
from .likelihood import Deviations, Expected, LikelihoodRatio, Mechanism, deviations

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

    clopper_pearson: without an assumption on the noise. gdp: if it is Gaussian-shaped. chance: the first of these where
      there is no canary in either world: what the instrument shows of nothing.
    gaussian: False where the noise is known to be of another kind, so that `gdp` says nothing.
    shift: ‖v₁ − v₀‖ in standard deviations of the noise. scores_in, scores_out: of the tested trials.
    """

    clopper_pearson: LowerBound
    gdp: LowerBound
    chance: LowerBound
    shift: float
    scores_in: NDArray[np.float64] = field(repr=False)
    scores_out: NDArray[np.float64] = field(repr=False)
    gaussian: bool = True

    def finding(self, claimed: float) -> Finding:
        """What this says about a claim of (claimed, δ)-DP, by the bound that `chosen` names."""
        return violation(self.chosen(claimed), claimed, self.clopper_pearson.delta)

    def chosen(self, target: float) -> LowerBound:
        """The bound to judge a target ε by: the one without assumptions, unless only the other could exceed the target.

        It follows from the number of trials alone, so nothing is chosen by its result.
        """
        only_gaussian = self.gaussian and self.clopper_pearson.ceiling <= target < self.gdp.ceiling
        return self.gdp if only_gaussian else self.clopper_pearson

    def delta_at(self, epsilon: float) -> float:
        """How badly a claim fails: the least δ at which (ε, δ)-DP is not refuted, with the bound's confidence."""
        return delta_at(self.clopper_pearson, epsilon)


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
    progress: Progress | None = None,
) -> MechanismAudit:
    """Scores `draws` tested trials a world, each a draw of all `messages` (a client's rounds) with noise of its own.

    Args:
        messages: the client's rounds, in both worlds.
        delta, confidence: of the bounds.
        draws: tested trials a world.
        calibration: further trials a world, to fit the score and to fix the threshold on.
        seed: of the noise.
        progress: called with the draws done and their number.

    Raises:
        ValueError: the two worlds send the same, or there are fewer than 10 trials.
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
            world: int,
            purpose: str,
            count: int,
            drawn: bool,
            place: int = place,
            message: Trials = message,
            expected: tuple[Expected, Expected] = expected,
        ) -> tuple[Deviations, Deviations]:
            apart: tuple[list[Deviations], list[Deviations]] = ([], [])
            size = max(1, CHUNK_NUMBERS // sum(message.sizes))
            for first in range(0, count, size):
                seeds = [stream(seed, purpose, world, place, i) for i in range(first, min(first + size, count))]
                vectors = message.draw(world, seeds, drawn)
                for w in (0, 1):
                    apart[w].append(deviations(vectors, expected[w], message.sizes, message.mechanism))
                step(len(seeds))
            return np.concatenate(apart[0]), np.concatenate(apart[1])

        own = [deviating(world, "calibration draw", calibration, True) for world in (0, 1)]
        ratio = LikelihoodRatio.fitted(own[0][0], own[1][1], message.sizes, message.mechanism, message.rate)
        between = deviations(expected[1].centre[None], expected[0], message.sizes, message.mechanism)
        shifts.append(ratio.shift(between))
        sampled = (
            own if message.rate == 1.0 else [deviating(world, "sampled draw", calibration, False) for world in (0, 1)]
        )
        for world in (0, 1):
            fitted[world].append(ratio(*sampled[world]))
            tested[world].append(ratio(*deviating(world, "tested draw", draws, False)))
    scores = [np.sum(tested[world], axis=0) for world in (0, 1)]
    return audit_scores(
        scores[1],
        scores[0],
        Separate(np.sum(fitted[1], axis=0), np.sum(fitted[0], axis=0)),
        delta=delta,
        confidence=confidence,
        shift=float(np.sqrt(np.square(shifts).sum())),
        gaussian=all(message.mechanism == "gaussian" for message in messages),
    )


def audit_scores(
    scores_in: NDArray[np.float64],
    scores_out: NDArray[np.float64],
    separate: Separate,
    *,
    delta: float,
    confidence: float,
    shift: float,
    gaussian: bool = True,
) -> MechanismAudit:
    """The bounds of tested scores, with thresholds fixed on separate ones.

    Args:
        scores_in, scores_out: tested trials with and without the canary, (n,) each.
        separate: scores of other trials, which fix thresholds.
        delta: in [0, 1). confidence: of each bound.
        shift: how far apart the worlds' noise-free messages are, in standard deviations of the noise.
        gaussian: whether scores may be Gaussian-shaped, as far as the mechanism is known.
    """
    options: dict[str, Any] = {"delta": delta, "confidence": confidence, "threshold": separate}
    middle: dict[str, Any] = {**options, "threshold": Fixed(separate.middle)}
    half = len(scores_out) // 2
    return MechanismAudit(
        clopper_pearson=clopper_pearson(scores_in, scores_out, **options),
        gdp=gdp(scores_in, scores_out, **middle),
        chance=clopper_pearson(scores_out[:half], scores_out[half:], **options),
        shift=shift,
        scores_in=scores_in,
        scores_out=scores_out,
        gaussian=gaussian,
    )


# --- a user's own mechanism ---


@dataclass(frozen=True, eq=False)
class _Callable:
    """Trials of a user's function."""

    update: Callable[[bool, int], Any]
    centres: tuple[Tensor, Tensor]
    sizes: Sequence[int]
    mechanism: Mechanism = "gaussian"
    rate: float = 1.0

    def expected(self) -> tuple[Expected, Expected]:
        return Expected(self.centres[0]), Expected(self.centres[1])

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        return torch.stack([_vector(self.update(bool(world), seed)) for seed in seeds])


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
    progress: Progress | None = None,
) -> MechanismAudit:
    """A lower bound on the ε of your own mechanism, by telling apart two neighbouring inputs of your choice.

    Args:
        update_fn: (world, seed) → what an observer gets, a vector (d,) (tensor, array or list of numbers), with fresh
            randomness of `seed`; world is True with your canary, False without. It should run the very code that is to
            be trusted.
        delta: of the bounds.
        noiseless: world → the same without noise, if you know it. Else the attacker learns it from `calibration` draws
            more, which in many dimensions costs power: from K draws the direction is known up to √(2d/K) noise standard
            deviations.
        draws: tested trials a world; 1,000 can show ε = 5.6 at most by counting, 32 if the noise is Gaussian
            (`demonstrated.plan_draws`).
        calibration: trials a world to fit the score and fix the threshold on; None: a quarter of `draws`, at least 50.
        sizes: how many numbers each tensor of the vector has, if the noise may differ between them; None: one tensor.
        confidence: of the bounds.
        seed: of all draws.
        progress: called with the draws done and their number.

    Raises:
        ValueError: there are fewer than 10 draws, vectors are not one-dimensional or change their length, or sizes do
            not add up.

    >>> import numpy as np
    >>> def noisy_sum(world, seed):
    ...     return np.random.default_rng(seed).normal(size=3) + [3.0 * world, 0, 0]
    >>> audit = audit_mechanism(noisy_sum, delta=1e-5, noiseless=lambda world: [3.0 * world, 0, 0], draws=300)
    >>> 1.5 < audit.clopper_pearson.epsilon < audit.gdp.epsilon < 18.5        # the truth: 18.45
    True
    >>> audit.finding(claimed=1.0).level
    'violated'
    """
    spare = max(draws // 4, 50) if calibration is None else calibration
    if noiseless is not None:
        centres = (_vector(noiseless(False)), _vector(noiseless(True)))
    else:
        out, into = (
            _mean(update_fn, world, [stream(seed, "centre draw", world, i) for i in range(spare)])
            for world in (False, True)
        )
        centres = (out, into)
    dim = len(centres[0])
    parts = [dim] if sizes is None else list(sizes)
    if sum(parts) != dim or len(centres[1]) != dim:
        raise ValueError(
            f"the vectors have {dim} and {len(centres[1])} numbers and the sizes add up to {sum(parts)}; all three must"
            " be equal"
        )
    trials = _Callable(update_fn, centres, parts)
    return audit_trials(
        [trials], delta=delta, draws=draws, calibration=spare, confidence=confidence, seed=seed, progress=progress
    )


def _vector(values: Any) -> Tensor:
    vector = torch.as_tensor(values).detach().to(torch.float32)
    if vector.ndim != 1:
        raise ValueError(f"the mechanism must give a vector, got shape {tuple(vector.shape)}")
    return vector


def _mean(update: Callable[[bool, int], Any], world: bool, seeds: Sequence[int]) -> Tensor:
    total = _vector(update(world, seeds[0])).double()
    for seed in seeds[1:]:
        total += _vector(update(world, seed))
    return (total / len(seeds)).float()
