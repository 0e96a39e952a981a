"""The privacy loss of a sum of independent Laplace noises: what stays of several clients' noise in their sum.

In every coordinate the noise is Z = Σ b_i L_i, L_i Laplace of scale 1, all independent, and two neighbours' values
differ by v with ‖v‖₁ ≤ s.

**One coordinate is the worst.** Z is log-concave, as a sum of such. By Neyman and Pearson the best tests of Z against
Z + t are half lines, so the trade-off curve is f_t(a) = F(F⁻¹(1 − a) − t), F the distribution function of Z. Hence
f_u∘(1 − f_t) = f_{t+u}. Change the coordinates one by one: neighbours in that chain differ in one coordinate by |v_j|,
with the curve f_{|v_j|}, as the others are independent of it and alike. If T(P, Q) ≥ f and T(Q, R) ≥ g, then
T(P, R) ≥ g∘(1 − f) (Dong, Roth and Su 2022, arXiv:1905.02383, on group privacy), so T(Z^d, Z^d + v) ≥ f_{‖v‖₁} ≥ f_s:
the curve of the whole s in one coordinate. Z is symmetric, so is the pair.

**Rounded up.** An exponential variable is h times a geometric one plus an independent rest in [0, h) (it has no
memory), and a Laplace is the difference of two exponentials. With s = kh, Z + s against Z is therefore hG + s against
hG plus the same independent rest, G = Σ G_i of discrete Laplaces with parameters e^{−h/b_i}: post-processing, so the
discrete pair dominates. It is log-concave too, its losses grow along the axis, and as b_max·L_max alone hides s to
within s/b_max, none exceeds that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, sqrt

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.signal import lfilter

from .symmetric import symmetric_pld

FINENESS, COARSEST = 100, 20  # steps of the grid in the largest scale; fewer for more noises, whose sum is smoother
# Of sensitivity over the largest scale: below, the grid would be too long; above, its ends underflow.
LEAST_RATIO, LARGEST_RATIO = 1e-3, 100.0


def laplace_sum_profile(scales: Sequence[float], losses: np.ndarray) -> np.ndarray:
    """δ(ε) of a release of L1 sensitivity 1 under the noise Σ b_i L_i in every coordinate, never too small but for
    rounding, and too large by 10⁻³ of it at most or so.

    Args:
        scales: b_i > 0 over the sensitivity, at least one, the largest from 1/`LARGEST_RATIO` to
            1/`LEAST_RATIO`.
        losses: ε ≥ 0, rising.

    >>> laplace_sum_profile([1.0], np.array([0.0, 0.5, 1.0])).round(4)
    array([0.3935, 0.2212, 0.    ])
    """
    largest = max(scales)
    shift = ceil(max(COARSEST, FINENESS / sqrt(len(scales))) / largest)
    step = 1 / shift
    half = ceil((60 * largest + 12 * sqrt(2 * sum(b * b for b in scales))) / step) + shift
    masses = np.zeros(4 * half + 1)  # twice as long as what is used: what the ends lack does not reach it
    masses[2 * half] = 1.0
    for scale in scales:
        stay = exp(-step / scale)
        masses = lfilter([1 - stay], [1, -stay], masses)
        masses = lfilter([1 - stay], [1, -stay], masses[::-1])[::-1]
    upper = masses[half : 3 * half + 1]  # of G + k at its own places
    lower = masses[half + shift : 3 * half + 1 + shift]
    rising = np.minimum(np.log(upper) - np.log(lower), 1 / largest)
    # the rest has the largest loss
    order = np.concatenate([rising, [1 / largest]])
    weights = np.concatenate([upper, [max(0.0, 1 - float(upper.sum()))]])
    return _profile(order, weights, losses)


def _profile(own: np.ndarray, weights: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Σ w·max(0, 1 − e^{ε − own}) at each ε of `losses`; `own` is sorted here."""
    order = np.argsort(own)
    own, weights = own[order], weights[order]
    above = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])
    other = np.concatenate([np.cumsum((weights * np.exp(-own))[::-1])[::-1], [0.0]])
    first = np.searchsorted(own, losses, side="right")
    return np.maximum(above[first] - np.exp(losses) * other[first], 0.0)


def laplace_sum_pld(scales: Sequence[float], interval: float) -> pld.PrivacyLossDistribution:
    """The privacy loss distribution, rounded up.

    Args:
        scales: as for `laplace_sum_profile`. interval: the grid of privacy losses, > 0.
    """
    steps = max(1, ceil(1 / max(scales) / interval))
    return symmetric_pld(laplace_sum_profile(scales, interval * np.arange(steps + 1)), interval)
