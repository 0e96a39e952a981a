"""Confidence intervals: exact for counts, by bootstrap for averages over images; and p-values for the same questions.

A p-value here is the least 1 − confidence at which a two-sided interval lies wholly above its control, so it is twice
the chance of such a value without any leak, and at most 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincinv

if TYPE_CHECKING:
    from torch import Tensor

Interval = tuple[float, float]


def clopper_pearson_interval(hits: int, n: int, confidence: float = 0.95) -> Interval:
    """The exact two-sided interval of a probability after `hits` successes in `n` independent trials.

    It covers the truth with at least `confidence`; each limit errs with at most (1 − confidence)/2 (Clopper, Pearson
    1934).

    >>> clopper_pearson_interval(0, 10)[0], round(clopper_pearson_interval(0, 10)[1], 4)      # 1 − .025^(1/10)
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
            f"a bootstrap interval needs finite values, at least one; got {array.size} of which"
            f" {int(np.isfinite(array).sum())} are finite"
        )
    tail = (1 - _checked(confidence)) / 2
    if array.size == 1:
        return None
    chosen = np.random.default_rng(seed).integers(array.size, size=(resamples, array.size))
    low, high = np.quantile(array[chosen].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)


def share_p_value(hits: int, n: int, control: float) -> float:
    """The least 1 − confidence at which `clopper_pearson_interval(hits, n, confidence)` lies above `control`.

    That is 2·P[Binomial(n, control) ≥ hits], and at most 1.

    >>> share_p_value(3, 3, 0.1) == 2 * 0.1**3, share_p_value(0, 10, 0.1)
    (True, 1.0)

    Raises:
        ValueError: n < 1, hits are not in 0 … n, or the control is not in [0, 1].
    """
    if n < 1 or not 0 <= hits <= n or not 0 <= control <= 1:
        raise ValueError(
            f"{hits} hits of {n} trials against {control}: there must be a trial, 0 ≤ hits ≤ trials and a control in"
            " [0, 1]"
        )
    return 1.0 if hits == 0 else min(1.0, 2 * float(betainc(hits, n - hits + 1, control)))


def share_by_luck(chance: float, controls: Sequence[int], n: int) -> float:
    """The share of n hits that luck may explain: chance, or the hits of a control that itself has more than chance
    gives (one-sided, 5 % for all controls).

    >>> share_by_luck(0.05, [1, 0], 2), share_by_luck(0.05, [6, 0], 20)
    (0.05, 0.3)
    """
    easier = [hits / n for hits in controls if share_p_value(hits, n, chance) <= 0.1 / len(controls)]
    return max([chance, *easier])


def paired_p_value(hits: Sequence[bool], others: Sequence[bool]) -> float:
    """How probable at least so many more hits are, of the same trials, where neither of two ways hits more than the
    other: McNemar's exact test, one-sided, of the trials that one of them alone hits, each of which may be either's.

    >>> paired_p_value([True] * 5, [False] * 5), paired_p_value([True, False], [False, True])
    (0.03125, 0.75)
    """
    only = sum(a and not b for a, b in zip(hits, others, strict=True))
    apart = sum(a != b for a, b in zip(hits, others, strict=True))
    return float(betainc(only, apart - only + 1, 0.5)) if only else 1.0


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, it must lie between 0 and 1, for example 0.95")
    return confidence


def of_the_best_or_half(p_values: Sequence[float], together: float = 1.0) -> float:
    """A p-value of several, however they depend on each other: k times the least, or k/j times the j-th, j the half of
    k rounded up (Rüger 1978, Metrika 25; j = 1 is Bonferroni's), or one of them all together; thrice the least of
    these, but for one alone.

    >>> of_the_best_or_half([0.25]), of_the_best_or_half([0.03] * 10), of_the_best_or_half([1.0] * 10, together=0.01)
    (0.25, 0.18, 0.03)

    Raises:
        ValueError: there are none.
    """
    if not p_values:
        raise ValueError("no p-values to take together")
    ordered, k = sorted(p_values), len(p_values)
    half = -(-k // 2)
    return ordered[0] if k == 1 else min(1.0, 3 * min(together, k * ordered[0], k / half * ordered[half - 1]))
