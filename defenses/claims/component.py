"""The privacy loss of component-adaptive noise (ADN: Xue et al., Theorem 1, eq. 11-12, Algorithm 4)."""

from __future__ import annotations

from math import ceil, exp, floor, inf, log, sqrt


def component_delta(epsilon: float, sigma: float, releases: int, target_delta: float) -> float:
    """δ_i = min over integers α > 1 + ln(1/δ*)/ε of exp((α − 1)(L_iα/(2σ0²) − ε)) (eq. 12), L_i the client's releases.

    The exponent is a parabola in α, so only the two integers around its vertex, or the least one allowed, can be best.
    It may exceed 1: then the paper's bound says nothing.

    >>> component_delta(0.5, 26, 7, 1e-5) < 1e-5 < component_delta(0.5, 26, 8, 1e-5)
    True
    """
    if releases == 0:
        return 0.0
    least = floor(1 + log(1 / target_delta) / epsilon) + 1
    vertex = epsilon * sigma**2 / releases + 0.5
    exponents = [(a - 1) * (releases * a / (2 * sigma**2) - epsilon) for a in _around(vertex, least)]
    return exp(min(exponents)) if min(exponents) < 700 else inf


def component_epsilon(releases: int, sigma: float, delta: float) -> float:
    """Theorem 1 solved for ε: min over integers α ≥ 2 of L_iα/(2σ0²) + ln(1/δ)/(α − 1) (eq. 7).

    >>> round(component_epsilon(7, 26, 1e-5), 3)
    0.493
    """
    if releases == 0:
        return 0.0
    best = 1 + sigma * sqrt(2 * log(1 / delta) / releases)
    return min(releases * a / (2 * sigma**2) + log(1 / delta) / (a - 1) for a in _around(best, 2))


def component_rounds(epsilon: float, sigma: float, target_delta: float) -> int:
    """The most releases of one client with δ_i ≤ δ*. Algorithm 2 tests after aggregating, so one more happens.

    >>> [component_rounds(epsilon, sigma, 1e-5) for epsilon, sigma in ((0.5, 26), (2, 26), (8, 10))]
    [7, 108, 208]
    """
    most, above = 0, 1
    while component_delta(epsilon, sigma, above, target_delta) <= target_delta:
        most, above = above, 2 * above
    while above - most > 1:
        middle = (most + above) // 2
        if component_delta(epsilon, sigma, middle, target_delta) <= target_delta:
            most = middle
        else:
            above = middle
    return most


def _around(best: float, least: int) -> tuple[int, int]:
    return max(least, floor(best)), max(least, ceil(best))
