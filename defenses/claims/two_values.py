"""The two values of LDP-FL (Sun, Qian and Chen, arXiv:2007.15789, eq. 2): K, their probabilities, their variance."""

from __future__ import annotations

from math import exp, tanh

from ..ranges import require_positive


def two_values(epsilon: float, centre: float, radius: float) -> tuple[float, float]:
    """(c − rK, c + rK), K = (e^ε + 1)/(e^ε − 1), in parameter units.

    >>> [round(value, 6) for value in two_values(1.0, 0.0, 0.075)]
    [-0.162297, 0.162297]
    """
    require_positive(epsilon=epsilon, radius=radius)
    spread = radius / tanh(epsilon / 2)
    return centre - spread, centre + spread


def chance_of_the_upper(epsilon: float, centre: float, radius: float, weight: float) -> float:
    """p = ((w − c)(e^ε − 1) + r(e^ε + 1))/(2r(e^ε + 1)), of a weight in [c − r, c + r].

    Args:
        epsilon: ε > 0. centre, radius: c and r > 0. weight: w; one outside is taken for the nearer end.

    >>> [round(chance_of_the_upper(1.0, 0.0, 0.075, w), 6) for w in (0.0, 0.03, 0.075)]
    [0.5, 0.592423, 0.731059]
    """
    require_positive(epsilon=epsilon, radius=radius)
    offset = min(max(weight - centre, -radius), radius)
    return (offset * (exp(epsilon) - 1) + radius * (exp(epsilon) + 1)) / (2 * radius * (exp(epsilon) + 1))


def two_values_variance(epsilon: float, centre: float, radius: float, weight: float) -> float:
    """r²K² − (w − c)², which Lemma 2 prints as r²K². Args as for `chance_of_the_upper`.

    >>> [round(two_values_variance(1.0, 0.0, 0.075, w), 6) for w in (0.0, 0.075)]
    [0.02634, 0.020715]
    """
    return two_values(epsilon, 0.0, radius)[1] ** 2 - (weight - centre) ** 2
