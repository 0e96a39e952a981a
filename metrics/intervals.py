"""Confidence intervals: exact for counts, by bootstrap for averages over images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betaincinv
from torch import Tensor

Interval = tuple[float, float]


def clopper_pearson(hits: int, n: int, confidence: float = 0.95) -> Interval:
    """The exact two-sided interval of a probability after `hits` successes in `n` independent trials.

    It covers the truth with at least `confidence`; each limit errs with at most (1 − confidence)/2 (Clopper, Pearson
    1934).

    >>> clopper_pearson(0, 10)[0], round(clopper_pearson(0, 10)[1], 4)      # 1 − .025^(1/10)
    (0.0, 0.3085)

    Raises:
        ValueError: n < 1, hits are not in 0 … n, or confidence is not in (0, 1).
    """
    if n < 1 or not 0 <= hits <= n:
        raise ValueError(f"{hits} hits of {n} trials: there must be at least one trial and 0 ≤ hits ≤ trials")
    tail = (1 - _checked(confidence)) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, tail))
    high = 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 1 - tail))
    return low, high


def bootstrap_interval(
    values: Tensor | Sequence[float] | np.ndarray, confidence: float = 0.95, seed: int = 0, resamples: int = 2000
) -> Interval | None:
    """The percentile bootstrap interval of the mean of `values` (n,), the same for the same seed (Efron 1979).

    It speaks of images drawn like these ones, not of other training runs. With few images (under about 10) it is too
    narrow. One value gives no interval: None.

    >>> bootstrap_interval([3.0, 3.0, 3.0])
    (3.0, 3.0)

    Raises:
        ValueError: there are no values, some are not finite, or confidence is not in (0, 1).
    """
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(
            f"a bootstrap interval needs finite values, at least one; got {array.size} of which {int(np.isfinite(array).sum())} are finite"
        )
    tail = (1 - _checked(confidence)) / 2
    if array.size == 1:
        return None
    chosen = np.random.default_rng(seed).integers(array.size, size=(resamples, array.size))
    low, high = np.quantile(array[chosen].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, it must lie between 0 and 1, for example 0.95")
    return confidence
