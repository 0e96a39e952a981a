"""Noise scales that change while training goes on (Wei et al., Fed-αCDP, arXiv:2305.06473, by its authors' code).

x = t/T is the part of all iterations that is done, in [0, 1). All but the last three begin at 15; those follow an ε per
step that grows, by the classical Gaussian mechanism.
"""

from __future__ import annotations

from math import cos, exp, floor, log, sqrt
from typing import Literal

NoiseSchedule = Literal[
    "constant",
    "linear",
    "staircase",
    "staircase-coded",
    "exponential",
    "cyclic",
    "linear-epsilon",
    "staircase-epsilon",
    "exponential-epsilon",
]
STEP_DELTA = 1e-5  # of the schedules in ε


def alpha_sigma(schedule: NoiseSchedule, done: float, constant: float = 6.0) -> float:
    """The noise scale σ of a schedule.

    "staircase-coded" is what the code computes, where a floor takes in the sign: 15 in the first round, 14 in the
    second. "constant" is Fed-CDP's.

    Args:
        schedule: its name. done: x in [0, 1]. constant: σ of "constant".

    Raises:
        ValueError: x out of range.

    >>> [round(alpha_sigma(name, 1.0), 2) for name in ("linear", "exponential", "cyclic")]
    [4.85, 4.85, 4.87]
    >>> round(alpha_sigma("staircase", 0.99), 3), alpha_sigma("staircase-coded", 0.01)
    (5.865, 14.0)
    """
    if not 0 <= done <= 1:
        raise ValueError(f"done is {done}; it must lie from 0 to 1")
    stair = floor(10 * done + 1e-9)
    match schedule:
        case "constant":
            return constant
        case "linear":
            return 15 - 10.15 * done
        case "staircase":
            return 15 - 1.015 * stair
        case "staircase-coded":
            return 15.0 + floor(-10.15 * done + 1e-9)
        case "exponential":
            return exp(1.58 + 1.13 * (1 - done))
        case "cyclic":
            return 15 * cos(1.24 * done)
        case "linear-epsilon":
            return _classical(0.30747 + done)
        case "staircase-epsilon":
            return _classical(0.35747 + 0.1 * stair)
        case "exponential-epsilon":
            return _classical(exp(1.664 * done - 1.1809))


def _classical(epsilon: float) -> float:
    """√(2 ln(1.25/δ))/ε, δ = 10⁻⁵."""
    return sqrt(2 * log(1.25 / STEP_DELTA)) / epsilon
