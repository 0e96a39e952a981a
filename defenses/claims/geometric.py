"""Noise whose variance is a geometric series (GEO: Yuan et al., "Amplitude-Varying Perturbation", Theorems 1 and 2).

All is over the paper's sensitivity Δ = 2C/n: a multiplier here is σ/Δ. In round m the noise is ϑ^((m−1)/2)·σ.
"""

from __future__ import annotations

from math import expm1, log, sqrt


def geometric_series(ratio: float, rounds: float) -> float:
    """S = Σ_{m=1..M} ϑ^(1−m) = (ϑ − ϑ^(1−M))/(ϑ − 1), or M at ϑ = 1 (eq. 8), without cancellation near 1.

    >>> round(geometric_series(0.9, 30), 2), geometric_series(1.0, 30)
    (203.31, 30.0)
    """
    step = -log(ratio)
    return expm1(rounds * step) / expm1(step) if step else float(rounds)


def geometric_multiplier(epsilon: float, delta: float, rounds: float, ratio: float, rate: float) -> float:
    """σ/Δ of the first round: √(2q·S·ln(1/δ))/ε (Theorem 1, eq. 8), q = K/U the share of clients in a round.

    The paper's own Table II (σ = .003556 at ϑ = .9 rising to .003932 at 1.1) does not follow from this formula.

    Args:
        epsilon, delta: the target over all rounds. rounds: M. ratio: ϑ of the variances of successive rounds. rate: q.

    >>> [round(2 * 5 / 600 * geometric_multiplier(10, 1e-3, 30, ratio, 0.1), 5) for ratio in (0.9, 0.95, 1, 1.05, 1.1)]
    [0.02793, 0.01633, 0.01073, 0.00787, 0.00631]
    """
    return _root(geometric_series(ratio, rounds), delta, rate) / epsilon


def geometric_epsilon(multiplier: float, delta: float, rounds: float, ratio: float, rate: float) -> float:
    """ε = √(2q·S·ln(1/δ))/(σ/Δ): eq. 8 solved for the ε that this first multiplier σ/Δ claims.

    Args:
        multiplier: σ/Δ of the first round. delta, rounds, ratio, rate: as for `geometric_multiplier`.

    >>> round(geometric_epsilon(geometric_multiplier(10, 1e-3, 30, 0.9, 0.1), 1e-3, 30, 0.9, 0.1), 9)
    10.0
    """
    return _root(geometric_series(ratio, rounds), delta, rate) / multiplier


def geometric_adjusted_multiplier(
    epsilon: float, delta: float, rounds: int, done: int, ratio: float, rate: float
) -> float:
    """σ'/Δ of Theorem 2 (eq. 9) after m = `done` of M' = `rounds` rounds; round j then has ϑ^((j−1)/2)·σ'.

    √(2q(S(m) + tail)·ln(1/δ))/ε with the tail of `geometric_tail`. The m rounds that are over are priced as if they had
    used σ' too, which they did not.

    Args:
        rounds: M', done included. done: m, at least 1. epsilon, delta, ratio, rate: as for `geometric_multiplier`.

    Raises:
        ValueError: M' ≤ m, then the run is over.
    """
    if done < 1 or rounds <= done:
        raise ValueError(f"{done} rounds are done of {rounds}; at least 1 must be done, and at least 1 must remain")
    return _root(geometric_series(ratio, done) + geometric_tail(ratio, rounds, done)[0], delta, rate) / epsilon


def geometric_tail(ratio: float, rounds: int, done: int) -> tuple[float, float]:
    """(as printed, true): Σ_{j=m+1..M'} ϑ^(1−j), bounded as in eq. 28: M' − m for ϑ ≥ 1, ϑ^(m−M')/(1 − ϑ) for ϑ < 1.

    For ϑ < 1 the bound can be too small.

    >>> [round(tail, 1) for tail in geometric_tail(0.9, 24, 10)]
    [43.7, 87.0]
    """
    left = rounds - done
    printed = float(left) if ratio >= 1 else ratio ** (done - rounds) / (1 - ratio)
    return printed, ratio ** (-done) * geometric_series(ratio, left)


def _root(series: float, delta: float, rate: float) -> float:
    """√(2q·series·ln(1/δ))."""
    return sqrt(2 * rate * series * log(1 / delta))
