"""From a proof to how close any attack can come to a picture, in mean square error of its pixels.

Let a picture x of p pixels be drawn from a prior π, independently of all else, and let an attacker who knows π, all
other records and the model make g pictures of what an observer sees. Without x in the training its pictures are
independent of x, so one of them has an error of η at most with probability g·κ(η) at most,

    κ(η) = sup_z π(‖x − z‖² ≤ pη).

Being that close is an event of what is seen, so with x in the training its probability is at most 1 − f(g·κ(η)), f the
trade-off curve of the proof (`tradeoff`): Theorem 2 of Hayes, Mahloujifar and Balle 2023 (arXiv:2302.07225) for this
error. κ in closed form for two priors is ours:

    pixels even on [0, 1] and independent:   κ(η) ≤ (πpη)^(p/2) / Γ(p/2 + 1), the volume of a ball
    Gaussian of covariance Σ:                κ(η) ≤ exp(tpη) / √det(1 + 2tΣ) for each t ≥ 0

The second is Chernoff's bound for a ball about the mean, which holds the most of a Gaussian (Anderson 1955).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, lgamma, log, log10, pi

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

LEAST = -690.0  # ln κ: what is smaller is no float
STEPS = 24  # of a search between LEAST and 0, to 0.0001


def blind_chance(ceiling: Callable[[float], float], success: float) -> float:
    """ln of the largest κ whose ceiling is `success` at most; −∞ where that of none is.

    Args:
        ceiling: κ → the largest probability of success that a proof allows (`tradeoff`). success: in (0, 1).

    >>> round(exp(blind_chance(lambda kappa: 2 * kappa, 0.5)), 3)
    0.25
    """
    low, high = LEAST, 0.0
    if ceiling(exp(low)) > success:
        return -inf
    for _ in range(STEPS):
        middle = (low + high) / 2
        if ceiling(exp(middle)) <= success:
            low = middle
        else:
            high = middle
    return low


def even_error(ln_kappa: float, pixels: int) -> float:
    """η of even, independent pixels, of whom a blind guess comes so close with probability κ at most.

    >>> round(even_error(log(0.5), 1), 9)  # one number in [0, 1]: within 1/4 of a guess in half of all cases
    0.0625
    """
    return exp(2 / pixels * (ln_kappa + lgamma(pixels / 2 + 1))) / (pi * pixels)


def gaussian_error(ln_kappa: float, variances: ArrayLike, pixels: int) -> float:
    """The same of a Gaussian, variances (k,) ≥ 0 along its axes, others 0; 0 where it has none.

    At the best t, −ln κ = Σ ln(1 + 2tλ)/2 − t Σ λ/(1 + 2tλ), and pη = Σ λ/(1 + 2tλ).
    """
    wide = np.asarray(variances, dtype=np.float64)
    wide = wide[wide > 0]
    if not len(wide) or ln_kappa == -inf:
        return 0.0

    def left(log_t: float) -> np.ndarray:
        return wide / (1 + 2 * exp(log_t) * wide)

    def lacking(log_t: float) -> float:
        return float(np.log1p(2 * exp(log_t) * wide).sum() / 2 - exp(log_t) * left(log_t).sum()) + ln_kappa

    middle = -log(2 * float(wide.max()))
    steps = 700.0 - abs(middle)
    if lacking(middle - steps) >= 0:  # κ is 1
        return float(wide.sum()) / pixels
    return float(left(brentq(lacking, middle - steps, middle + steps)).sum()) / pixels


def decibels(error: float) -> float:
    """PSNR of a mean square error, for pixels in [0, 1].

    >>> decibels(0.01)
    20.0
    """
    return -10 * log10(error)
