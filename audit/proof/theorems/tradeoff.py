"""From a proof to what no attack can exceed.

Let P be what an observer sees with the record and Q what it sees without it, and let an attack succeed on outputs of Q
with probability at most κ, whatever it does: a guess among k equal candidates succeeds with 1/k. Success is an event of
the output, so on outputs of P its probability is at most

    1 − f(κ),    f the trade-off curve of Q against P (Dong, Roth and Su 2019, arXiv:1905.02383).

For reconstruction this is Theorem 2 of Hayes, Mahloujifar and Balle 2023 (arXiv:2302.07225), for membership it is the
definition: no test has a larger TPR at the FPR κ. A Gaussian mechanism has 1 − f(κ) = Φ(Φ⁻¹(κ) + μ). An (ε, δ) that
holds in both orders leaves f(κ) ≥ max(0, 1 − δ − e^ε κ, e^(−ε)(1 − δ − κ)), at each δ; the best of several is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, isfinite

from scipy.special import ndtr, ndtri

DELTAS = (0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-5)  # any is valid; PLD prices each anew


def gaussian_ceiling(mu: float, kappa: float) -> float:
    """Φ(Φ⁻¹(κ) + μ) for a μ-GDP mechanism.

    Args:
        mu: sensitivity / noise of the one Gaussian that everything seen amounts to, ≥ 0. kappa: in [0, 1].

    Raises:
        ValueError: either is out of range.

    >>> round(gaussian_ceiling(1.0, 0.05), 4), gaussian_ceiling(0.0, 0.05), gaussian_ceiling(2.0, 1.0)
    (0.2595, 0.05, 1.0)
    """
    _check(kappa)
    if not mu >= 0:
        raise ValueError(f"mu is {mu}; it must be at least 0")
    if kappa in (0.0, 1.0) or mu == 0:
        return kappa
    if mu < inf:
        return float(ndtr(ndtri(kappa) + mu))
    return 1.0


def success_ceiling(epsilon_at: Callable[[float], float], kappa: float) -> float:
    """The least of min(δ + e^ε κ, 1 − e^(−ε)(1 − δ − κ)) over several δ.

    Args:
        epsilon_at: δ → the proven ε, which holds in both orders of the neighbours. kappa: in [0, 1].

    Raises:
        ValueError: kappa is out of range.

    >>> round(success_ceiling(lambda delta: 1.0, 0.1), 4)                   # pure ε = 1: e·0.1
    0.2718
    """
    _check(kappa)
    least = 1.0
    for delta in (*DELTAS, 0.0):
        epsilon = epsilon_at(delta)
        if isfinite(epsilon):
            grown = delta + exp(min(epsilon, 700.0)) * kappa
            least = min(least, grown, 1 - exp(-epsilon) * max(0.0, 1 - delta - kappa))
    return max(least, kappa)


def _check(kappa: float) -> None:
    if not 0 <= kappa <= 1:
        raise ValueError(f"kappa is {kappa}; a probability lies in [0, 1]")
