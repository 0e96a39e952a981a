"""The privacy loss distribution of a symmetric pair, from its profile δ(ε) at ε ≥ 0.

A pair (P, Q) is symmetric if H_α(P‖Q) = H_α(Q‖P) for all α, H_α(P‖Q) = ∫max(P − αQ, 0). Points of the profile at
α = e^{ih} are joined by straight lines, which lie above it, as it is convex in α (connect the dots, Doroshenko et al.
2022, arXiv:2207.04380). The mirror α → 1/α maps such lines to such lines, so that the mass at loss −ih is e^{−ih} times
that at ih. Losses beyond the grid count as infinite.
"""

from __future__ import annotations

from math import expm1

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import DensePLDPmf


def symmetric_pld(deltas: np.ndarray, interval: float) -> pld.PrivacyLossDistribution:
    """The distribution, rounded up.

    Args:
        deltas: δ at the losses 0, h, 2h, …, at least two, none below the truth but for rounding.
        interval: h > 0.
    """
    deltas = np.minimum.accumulate(deltas)
    fall = -np.diff(deltas)
    # a line's slope changes by mass·e^{−loss}; what is left at the last point is infinite
    above = fall / -expm1(-interval)
    above[:-1] -= fall[1:] / expm1(interval)
    above = np.maximum(above, 0)
    below = above * np.exp(-interval * np.arange(1, len(deltas)))
    infinite = float(deltas[-1])
    level = max(0.0, 1 - float(above.sum() + below.sum()) - infinite)
    masses = np.concatenate([below[::-1], [level], above])
    return pld.PrivacyLossDistribution(DensePLDPmf(interval, 1 - len(deltas), masses, infinite, True))
