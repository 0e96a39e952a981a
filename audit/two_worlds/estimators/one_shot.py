"""An estimate of ε from the cosines of random canary updates with a release (Andrew et al., arXiv:2302.03098)."""

from __future__ import annotations

from math import copysign, expm1, inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq
from scipy.special import log_ndtr

from ....defenses.randomness import stream
from .bound import LowerBound, Scores, checked_level, checked_scores

_GAUSSIAN_FROM = 1000  # from this dimension on the null is Gaussian for every practical purpose


def null_cosine(dim: int) -> stats.distributions.rv_frozen:
    """The exact law of the cosine of any vector with a random direction in R^dim: density ∝ (1 - t²)^((dim - 3) / 2).

    Its quantiles are thresholds with a known false-positive rate: `Fixed(null_cosine(dim).isf(0.01))`.

    >>> round(float(null_cosine(3).cdf(0.5)), 3), round(float(null_cosine(400).std()), 3)   # Archimedes; 1 / sqrt(dim)
    (0.75, 0.05)
    """
    if dim < 2:
        raise ValueError(f"the dimension must be at least 2, got {dim}")
    return stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2)


def _log_hockey_stick(mean: float, std: float, epsilon: float) -> float:
    """ln of P(A) - e^ε Q(A) for P = N(mean, std²), Q = N(0, 1) and A the set where p > e^ε q; -inf for 0.

    The edges of A solve (std² - 1) y² + 2 mean y - mean² - 2 std² (ε + ln std) = 0.
    """
    level = epsilon + log(std)
    square = mean * mean + 2 * (std * std - 1) * level
    if square <= 0:
        return -inf  # p ≤ e^ε q everywhere
    pivot = mean + copysign(std * sqrt(square), mean)  # both terms of one sign: nothing cancels
    near = (mean * mean + 2 * std * std * level) / pivot
    far = -pivot / (std * std - 1) if std != 1 else copysign(inf, mean)
    left, right = min(near, far), max(near, far)

    def log_mass(center: float, scale: float) -> float:
        a, b = (left - center) / scale, (right - center) / scale
        if std > 1:
            return float(np.logaddexp(log_ndtr(a), log_ndtr(-b)))
        a, b = (-b, -a) if a > 0 else (a, b)
        low, high = float(log_ndtr(a)), float(log_ndtr(b))
        return high + log(-expm1(low - high)) if low < high else -inf

    log_p, log_q = log_mass(mean, std), log_mass(0.0, 1.0)
    return log_p + log(-expm1(epsilon + log_q - log_p)) if epsilon + log_q < log_p else -inf


def two_gaussian_epsilon(mean_1: float, std_1: float, mean_2: float, std_2: float, delta: float) -> float:
    """The ε at which two normal distributions are exactly (ε, delta)-close in both orders.

    Args:
        mean_1, std_1: of the first, N(mean_1, std_1²). mean_2, std_2: of the second.
        delta: above 0.

    >>> round(two_gaussian_epsilon(1.0, 1.0, 0.0, 1.0, 1e-5), 3)     # the Gaussian mechanism with noise multiplier 1
    4.377
    """
    if min(std_1, std_2) <= 0:
        raise ValueError(f"standard deviations must be above 0, got {std_1} and {std_2}")
    shift, scale = (mean_1 - mean_2) / std_2, std_1 / std_2

    def excess(epsilon: float) -> float:
        forth, back = _log_hockey_stick(shift, scale, epsilon), _log_hockey_stick(-shift / scale, 1 / scale, epsilon)
        return max(forth, back, -1e300) - log(delta)

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=1e-9))


def _exact_null_epsilon(mean: float, std: float, dim: int, delta: float) -> float:
    """The largest ε that a threshold shows between the exact null and N(mean, std²) kept within [-1, 1]."""
    null = null_cosine(dim)
    seen = stats.truncnorm((-1 - mean) / std, (1 - mean) / std, loc=mean, scale=std)
    grid = np.linspace(min(null.ppf(delta), seen.ppf(delta)), max(null.isf(delta), seen.isf(delta)), 4001)[1:-1]
    with np.errstate(divide="ignore"):
        members = np.log(np.maximum(seen.sf(grid) - delta, 0)) - null.logsf(grid)
        non_members = np.log(np.maximum(null.cdf(grid) - delta, 0)) - seen.logcdf(grid)
    return float(max(members.max(), non_members.max(), 0.0))


def _estimate(seen: Scores, unseen: Scores | None, dim: int, delta: float) -> float:
    mean, std = float(seen.mean()), float(seen.std(ddof=1))
    null_mean, null_std = (0.0, dim**-0.5) if unseen is None else (float(unseen.mean()), float(unseen.std(ddof=1)))
    if mean <= null_mean:
        return 0.0  # the sign counts: this statistic recognises nobody
    if unseen is None and dim < _GAUSSIAN_FROM:
        return _exact_null_epsilon(mean, std, dim, delta)
    return two_gaussian_epsilon(mean, std, null_mean, null_std, delta)


def _checked_cosines(name: str, values: ArrayLike) -> Scores:
    cosines = checked_scores(name, values)
    if (largest := np.abs(cosines).max()) > 1 + 1e-6:
        raise ValueError(f"{name} must be cosines in [-1, 1], got one of size {largest:g}")
    if np.ptp(cosines) == 0:
        raise ValueError(f"{name} must hold at least two different cosines, got {cosines.size} times {cosines[0]:g}")
    return cosines


def _resampled(values: Scores, rng: np.random.Generator) -> Scores:
    drawn = rng.choice(values, len(values))
    return drawn if np.ptp(drawn) else values  # one value drawn throughout has no spread


def one_shot(
    cosines: ArrayLike,
    dim: int,
    *,
    delta: float,
    unseen: ArrayLike | None = None,
    bootstrap: int = 0,
    confidence: float = 0.95,
    seed: int = 0,
) -> LowerBound:
    """An estimate of ε, not a bound: above the truth at least half the time, even if all its assumptions hold.

    It assumes a large dim, far fewer canaries and Gaussian statistics. For a bound pass the same cosines to
    `clopper_pearson` or `gdp`.

    Args:
        cosines: (k,) of the k inserted canaries, random directions of the clipping norm, with the final model's total
            update, or each canary's largest over the rounds if every round is seen.
        dim: numbers in an update.
        delta: in (0, 1).
        unseen: (n,) of canaries that were not inserted. Without it the null is the known one of a single fixed vector,
            with standard deviation 1 / sqrt(dim); a largest over rounds needs it.
        bootstrap: 0 for the plain estimate, else the number of resamples whose 1 - confidence quantile is reported.
            That shows how far the estimate scatters and is no confidence limit on ε.
        confidence: of that quantile.
        seed: of the resamples.

    Raises:
        ValueError: cosines lie outside [-1, 1] or are all equal, dim < 2, or delta is outside (0, 1).

    Source: Andrew et al. (arXiv:2302.03098), algorithms 2 and 3.
    """
    alpha = checked_level(delta, confidence, delta_above_zero=True)
    null_cosine(dim)  # refuses an impossible dim
    seen = _checked_cosines("cosines", cosines)
    others = None if unseen is None else _checked_cosines("unseen", unseen)
    epsilon = _estimate(seen, others, dim, delta)
    if bootstrap:
        rng = np.random.default_rng(stream(seed, "one-shot bootstrap"))
        draws = [
            _estimate(_resampled(seen, rng), None if others is None else _resampled(others, rng), dim, delta)
            for _ in range(bootstrap)
        ]
        epsilon = float(np.quantile(draws, alpha))
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence if bootstrap else 0.5,
        method="one-shot",
        direction="both",
        counts={"seen": len(seen), "unseen": 0 if others is None else len(others), "dim": dim},
        threshold=None,
        ceiling=inf,
        assumption="the cosines are Gaussian and the canaries few and nearly orthogonal",
        is_estimate=True,
    )
