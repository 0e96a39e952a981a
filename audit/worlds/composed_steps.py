"""What watched trainings show of a DP-SGD: by counting them whole, and by one step's μ composed over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from ..proof.theorems.gaussian import gaussian_epsilon
from ..say.words import at_least, times
from ..two_worlds.coin_ledger import composed
from ..two_worlds.draws import MechanismAudit, audit_scores
from ..two_worlds.estimators import LowerBound
from ..two_worlds.estimators.clopper_pearson import perfect_limits, upper_limit
from ..two_worlds.estimators.gdp import mu_limit
from ..two_worlds.estimators.mean_shift import mean_shift
from ..two_worlds.estimators.separate import Separate
from ..two_worlds.measured import Measured, measured_of
from .outcome import About, OwnAudit
from .ranges import real, whole
from .search import SearchedCanary
from .watching import LearnedSteps, StepScores

ALIKE = "every step is alike, its noise Gaussian and each record drawn by a coin of its own"
CALIBRATION = 40  # further trainings a world, for spreads and thresholds
LEAST_STEPS = 30  # tested steps with the canary's record in them
NOT_COINS = 1e-4  # a p-value below which the record is not drawn by coins


@dataclass(frozen=True)
class DpSgdNumbers:
    """What is declared of a DP-SGD training: what its accountant was told.

    noise_multiplier: σ, the noise's standard deviation over the clip norm. max_grad_norm: C, of each record's gradient.
    sample_rate: q, the chance that a record is in a step. steps: how many. Raises ValueError out of their ranges.
    """

    noise_multiplier: float
    max_grad_norm: float
    sample_rate: float
    steps: int

    def __post_init__(self) -> None:
        real("noise_multiplier", self.noise_multiplier, "a finite number from 0 on", least=0)
        real("max_grad_norm", self.max_grad_norm, "a finite number above 0", above=0)
        real("sample_rate", self.sample_rate, "a number in (0, 1]", above=0, below=np.nextafter(1, 2))
        whole("steps", self.steps, 1)

    @property
    def parameters(self) -> dict[str, Any]:
        """For the page."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "clip_norm": self.max_grad_norm,
            "sample_rate": self.sample_rate,
            "steps": self.steps,
            "sensitivity": f"C = {self.max_grad_norm:g} (each record's gradient in a step; record, zero_out)",
        }


@dataclass(frozen=True, eq=False)
class JudgedTrainings:
    audit: MechanismAudit
    measured: Measured
    declared: DpSgdNumbers
    delta: float
    not_finite: int
    notes: tuple[str, ...]

    def about(
        self,
        name: str,
        claim: float | None,
        canary: str,
        searched: tuple[SearchedCanary, ...],
        trainings: int,
        seed: int,
    ) -> OwnAudit:
        """What was found, and of what.

        Args:
            name: on the page. claim: the ε that is claimed. canary: the one that was planted. searched: all that were
                tried. trainings: tested, a world. seed: of all trainings.
        """
        about = About(
            name=name,
            delta=self.delta,
            unit="record",
            adjacency="zero_out",
            claim=claim,
            protocol="dp-sgd",
            told=(
                "whole trainings with the record and without it, and the single steps it was drawn into; the attacker"
                " sees the noised gradient of every step, as the accountant assumes, and knows the other records and"
                " the weights they start from, but not who is drawn"
            ),
            canary=canary,
            searched=searched,
            draws=trainings,
            calibration=CALIBRATION,
            seed=seed,
            parameters=self.declared.parameters,
            notes=self.notes,
        )
        return OwnAudit(about, self.audit, self.measured, self.not_finite)


def judged_trainings(
    own: StepScores, judged: StepScores, learned: LearnedSteps, declared: DpSgdNumbers, delta: float, confidence: float
) -> JudgedTrainings:
    """A fifth of the risk of error goes to counting, which shows little of so few trainings, three to one step's μ and
    one to the rate of draws.

    Args:
        own: further trainings, which thresholds are set on. judged: those that count. learned: what scored them.
        declared: what is claimed of them. delta, confidence: of the bounds.

    Raises:
        ValueError: too few steps have the canary's record in them.
    """
    fifth, rate = (1 - confidence) / 5, declared.sample_rate
    audit = audit_scores(
        judged.whole(1, rate),
        judged.whole(0, rate),
        Separate(own.whole(1, rate), own.whole(0, rate)),
        delta=delta,
        confidence=1 - fifth,
        shift=nan,
    )
    steps_in, steps_out = judged.apart
    if len(steps_in) < LEAST_STEPS:
        raise ValueError(
            f"of {len(judged.steps[1])} trainings only {len(steps_in)} steps had the canary's record in them, and at"
            f" least {LEAST_STEPS} are needed; take more trainings"
        )
    draws = np.concatenate(judged.drawn)
    low = 1 - float(upper_limit(draws.size - draws.sum(), draws.size, fifth))
    high = float(upper_limit(draws.sum(), draws.size, fifth))
    pattern = taken_again(learned.watch.most) or pattern_of(draws)
    pattern = pattern or as_many_each_time(learned.watch.taken, len(learned.watch.world(False)), draws)
    why_not, notes = _why_not_composed(draws, delta, pattern), _checks(draws, (low, high), declared, delta, pattern)
    measured = measured_of(audit, len(judged.steps[1]), "all-rounds", why_not)
    if not why_not:
        middle = (np.median(steps_in) + np.median(steps_out)) / 2
        mu = mean_shift(steps_in, steps_out, 3 * fifth, middle)
        most = float(mu_limit(*perfect_limits(len(steps_in), len(steps_out), 3 * fifth)))
        measured = _with_composed(measured, min(mu, most), most, low, draws.shape[1], 4 * fifth)
    return JudgedTrainings(audit, measured, declared, delta, learned.calls.not_finite, tuple(notes))


def _with_composed(measured: Measured, mu: float, most: float, rate: float, steps: int, risk: float) -> Measured:
    """One step's μ over all steps, at the least rate of draws; `most` is the largest μ so many steps can show."""
    delta = measured.counted.delta
    value, how = composed([(mu, rate)] * steps, delta)
    bound = LowerBound(
        epsilon=value,
        delta=delta,
        confidence=1 - risk,
        method="one step's μ, composed",
        counts={"steps": steps},
        ceiling=max(value, composed([(most, rate)] * steps, delta)[0]),
        assumption=ALIKE,
    )
    more = {"epsilon_if_gaussian": value, "epsilon_if_gaussian_ceiling": bound.ceiling, "mu": mu}
    told = f"one step's μ of at least {at_least(mu)}, drawn with a chance of at least {at_least(rate)}"
    return replace(
        measured,
        if_gaussian=bound,
        metrics={**measured.metrics, **more},
        intervals={**measured.intervals, "epsilon_if_gaussian": (value, inf)},
        how=f"{told}, composed over {steps} steps by {how}",
    )


@dataclass(frozen=True)
class DrawnPattern:
    """How the record was drawn, where not by a coin of its own in each step. words: a clause. passes: releases that it
    was in, exactly, in each training; 0 where nobody can tell.
    """

    words: str
    passes: int = 0


def taken_again(most: int) -> DrawnPattern | None:
    """Of a record that a batch has several times, each of them clipped by itself. most: how often.

    >>> taken_again(1), taken_again(2)
    (None, DrawnPattern(words='one step takes it up to 2 times, so that it moves a sum by up to 2 times the clip', \
passes=0))
    """
    if most < 2:
        return None
    return DrawnPattern(f"one step takes it up to {most} times, so that it moves a sum by up to {most} times the clip")


def pattern_of(draws: NDArray[np.bool_]) -> DrawnPattern | None:
    """Of draws (trainings, steps); None where coins would draw so.

    >>> once = np.zeros((100, 6), bool)
    >>> once[np.arange(100), np.arange(100) % 3] = once[np.arange(100), 3 + np.arange(100) % 3] = True
    >>> pattern_of(once)
    DrawnPattern(words='it was drawn exactly once in every 3 steps of all 100 trainings', passes=2)
    """
    rate, (runs, steps) = float(draws.mean()), draws.shape
    if rate in (0.0, 1.0):
        return None
    length = round(1 / rate)
    passes = steps // length
    # Coins would draw it once in a pass with this chance, in all passes of all trainings with its power.
    by_coins = runs * passes * np.log(length * rate * (1 - rate) ** (length - 1))
    once = passes * length == steps and bool((draws.reshape(runs, passes, length).sum(2) == 1).all())
    if once and by_coins < np.log(NOT_COINS):
        words = f"it was drawn exactly once in every {length} steps of all {runs} trainings"
        if bool((draws == draws[0]).all()):
            words += ", in the same ones each time"
        return DrawnPattern(words, passes)
    counts, expected = draws.sum(1), steps * rate
    spread = float(((counts - expected) ** 2).sum() / (expected * (1 - rate)))
    p = 2 * min(chi2.cdf(spread, len(counts) - 1), chi2.sf(spread, len(counts) - 1))
    if p < NOT_COINS:
        return DrawnPattern("how often it is drawn in a training varies too little, or too much")
    return None


def as_many_each_time(taken: Sequence[int], records: int, draws: NDArray[np.bool_]) -> DrawnPattern | None:
    """Of batches of a fixed size, drawn anew in each step: another record comes where this one is not drawn, so that
    steps with it and without it differ by more than what it adds. None where coins would draw as many.

    Args:
        taken: records that each of some trainings took. records: there are. draws: (trainings, steps).

    >>> as_many_each_time([20] * 100, 20, np.arange(500).reshape(100, 5) % 5 == 0)
    DrawnPattern(words='each training takes exactly 20 records, of which coins would take now more, now fewer', \
passes=0)
    """
    rate, tries = float(draws.mean()), records * draws.shape[1]
    if rate in (0.0, 1.0) or len({*taken}) != 1:
        return None
    most = float(binom.pmf(int(rate * (tries + 1)), tries, rate))
    if len(taken) * np.log(most) >= np.log(NOT_COINS):
        return None
    return DrawnPattern(
        f"each training takes exactly {taken[0]:,} records, of which coins would take now more, now fewer"
    )


def _why_not_composed(draws: NDArray[np.bool_], delta: float, pattern: DrawnPattern | None) -> str:
    """Why steps may not be composed as if each drew the record by a coin of its own; "" where they may."""
    if delta == 0:
        return "no Gaussian ε is finite at δ = 0"
    if pattern is not None:
        return f"the record is not drawn by a coin of its own in each step, as Poisson sampling would ({pattern.words})"
    return ""


def _checks(
    draws: NDArray[np.bool_],
    limits: tuple[float, float],
    declared: DpSgdNumbers,
    delta: float,
    pattern: DrawnPattern | None,
) -> list[str]:
    """What was declared beside what was seen. limits: of the rate of draws."""
    low, high = limits
    steps, seen = draws.shape[1], f"{int(draws.sum()):,} of {draws.size:,} steps"
    notes = []
    if steps != declared.steps:
        notes.append(f"Contradicted: {declared.steps} steps are declared, and each training takes {steps}.")
    if pattern is not None and declared.sample_rate < 1:
        said = (
            f"Contradicted: an accountant that is told a sample rate of {declared.sample_rate:.4g} counts on a coin of"
            f" the record's own in each step, and {pattern.words}; what it states has no ground"
        )
        if pattern.passes and declared.noise_multiplier and delta:
            exact = gaussian_epsilon(declared.noise_multiplier / pattern.passes**0.5, delta)
            said += (
                f". Whoever sees the steps gets {times(pattern.passes, 'Gaussian release')} of it at σ ="
                f" {declared.noise_multiplier:.4g}: ε = {exact:.4g} (zero_out, δ = {delta:g})"
            )
        return [*notes, f"{said}."]
    fits = low <= declared.sample_rate <= high
    said = "Contradicted"
    if fits:
        said = "Checked"
    notes.append(
        f"{said}: a sample rate of {declared.sample_rate:.4g} is declared, and the record was drawn in {seen}"
        f" ({low:.3g} to {high:.3g})."
    )
    return notes
