"""μ of Gaussian scores from their means and spread: the fewest draws, on the strongest condition."""

from __future__ import annotations

from functools import lru_cache
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import chi2, normaltest

from .bound import COINS, GAUSSIAN, LowerBound, Scores, checked_level, checked_scores
from .clopper_pearson import confusion, error_limits
from .gdp import mu_epsilon, mu_limit

SHAPED = 1e-3  # a p-value of normality below which scores count as of another shape
ROUNDING = 1e-12  # of the largest score: a spread below it is the arithmetic's, no noise's
_SCORES = np.linspace(-8, 8, 801)
_WEIGHTS = np.exp(-(_SCORES**2) / 2) / np.exp(-(_SCORES**2) / 2).sum()
ALONE = "no score depends on another canary's coin"


def mean_shift(scores_in: Scores, scores_out: Scores, alpha: float, middle: float) -> float:
    """A lower limit on μ of scores N(m + μs, s²) with the canary against N(m, s²) without.

    How far the means lie apart, over the standard deviation of scores without the canary, has a noncentral t
    distribution, which is turned around. With probability 1 − alpha the limit holds of Gaussian scores, and of those
    whose spread the canary changes to Welch's approximation.

    Where the noise has at least σC beside a clip of C, the truth of this is 1/σ at most, whatever the scores' shape: a
    mean moves by C at most, and what other records add only widens the scores. Noise that something nonlinear comes
    after, a clamp or Adam's signs, is another matter: it can narrow scores more than it moves them. Where scores do not
    look normal, the limit is therefore no more than what counting at `middle` allows, which holds after any such step.

    Args:
        scores_in, scores_out: (n,), (m,), at least two each.
        alpha: the probability of error.
        middle: a threshold to count at, where a score is not finite, the scores of a world differ by no more than
            rounding, or one world's do not look normal (from 20 of them on).

    >>> rng = np.random.default_rng(0)
    >>> round(mean_shift(rng.normal(1.0, 1, 500), rng.normal(0.0, 1, 4500), 0.03, 0.5), 2)       # the truth: 1
    0.87
    """
    finite = np.isfinite(scores_in).all() and np.isfinite(scores_out).all()
    if finite:
        spreads = [part.std(ddof=1) for part in (scores_in, scores_out)]
    else:
        spreads = [0.0, 0.0]
    if any(spread <= ROUNDING * np.abs(part).max() for spread, part in zip(spreads, (scores_in, scores_out))):
        return counted_shift(scores_in, scores_out, alpha, middle)
    counts = len(scores_in), len(scores_out)
    error = sqrt(sum((spread / spreads[1]) ** 2 / n for spread, n in zip(spreads, counts)))
    apart = float(scores_in.mean() - scores_out.mean()) / spreads[1]
    shift = max(0.0, error * _least_noncentrality(apart / error, min(counts) - 1, alpha))
    if all(_looks_normal(part) for part in (scores_in, scores_out)):
        return shift
    return min(shift, counted_shift(scores_in, scores_out, alpha, middle))


def _least_noncentrality(found: float, freedom: int, alpha: float) -> float:
    """The noncentrality from which t of so many degrees of freedom exceeds what was found with probability alpha."""
    spreads = _spreads(freedom)

    def excess(noncentrality: float) -> float:
        return float(_WEIGHTS @ ndtr(noncentrality - found * spreads)) - alpha

    reach = 40 + 2 * abs(found)
    return float(brentq(excess, -reach, reach))


@lru_cache(maxsize=256)
def _spreads(freedom: int) -> Scores:
    """What a standard deviation is measured as, at its normal scores: averages over them are exact, where scipy's own
    noncentral t fails in the hundreds.
    """
    below, above = chi2.ppf(ndtr(_SCORES[_SCORES < 0]), freedom), chi2.isf(ndtr(-_SCORES[_SCORES >= 0]), freedom)
    return np.sqrt(np.concatenate([below, above]) / freedom)


def counted_shift(scores_in: Scores, scores_out: Scores, alpha: float, middle: float) -> float:
    """A lower limit on μ by counting at the threshold `middle`, whatever is done to Gaussian noise before it is seen.

    No test of N(μ, 1) against N(0, 1), and none of what anybody makes of them, has smaller errors than their curve.
    Arguments as of `mean_shift`.
    """
    return max(0.0, float(mu_limit(*error_limits(scores_in, scores_out, middle, alpha))))


def _looks_normal(scores: Scores) -> bool:
    """By skewness and kurtosis (D'Agostino and Pearson 1973); fewer than 20 scores tell nothing."""
    return len(scores) < 20 or bool(normaltest(scores).pvalue >= SHAPED)


def one_run_shift(scores_in: ArrayLike, scores_out: ArrayLike, *, delta: float, confidence: float = 0.95) -> LowerBound:
    """A lower bound on ε from one run in which each canary was included by its own fair coin, from how large the scores
    are and not only from which are the largest.

    `one_run` and `one_run_fdp` hold however canaries interfere, and pay for it with half of ε. Canaries in nearly
    orthogonal directions, seen in the white, hardly interfere: their scores are μ·coin plus noise of their own, and
    what is known of μ is what two samples of normal numbers tell. On that condition this bound is within a few per cent
    of the truth (compare arXiv:2606.12733, which takes the same scores for an estimate, and arXiv:2509.08704). Canaries
    of unequal strength, and those that add to each other's noise, lower it.

    Args:
        scores_in: (n_in,), of the included canaries. scores_out: (n_out,), of the others; two each at least.
        delta: in (0, 1). confidence: of the bound.

    Raises:
        ValueError: a score vector is empty, has a NaN, fewer than two or no two different scores, or delta is outside
            (0, 1).

    >>> rng = np.random.default_rng(0)
    >>> bound = one_run_shift(rng.normal(1, 1, 5000), rng.normal(0, 1, 5000), delta=1e-5)
    >>> 3.9 < bound.epsilon < 4.377        # the truth
    True
    """
    alpha = checked_level(delta, confidence, delta_above_zero=True)
    scores_in, scores_out = checked_scores("scores_in", scores_in), checked_scores("scores_out", scores_out)
    for name, scores in (("scores_in", scores_in), ("scores_out", scores_out)):
        if not np.isfinite(scores).all() or np.ptp(scores) == 0:
            raise ValueError(f"{name} must hold at least two different finite scores, to measure their spread by")
    middle = float((scores_in.mean() + scores_out.mean()) / 2)
    return LowerBound(
        epsilon=mu_epsilon(mean_shift(scores_in, scores_out, alpha, middle), delta),
        delta=delta,
        confidence=confidence,
        method="one-run-shift",
        counts=confusion(scores_in, scores_out, middle),
        ceiling=inf,
        assumption=f"{GAUSSIAN}, {ALONE} and {COINS}",
    )
