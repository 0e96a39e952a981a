"""The Gaussian mechanism's exact (ε, δ) curve, in the log domain, for any noise multiplier and any δ a double can hold.

Source: Balle and Wang 2018 (arXiv:1805.06530), Theorem 8: with μ = sensitivity / noise_std = 1/multiplier,

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

With t = ε/μ − μ/2, φ the normal density and R(x) = Φ(−x)/φ(x) (Mills' ratio), this is δ = φ(t)·(R(t) − R(t + μ)), which
never overflows: at multiplier 1/100, ε is tens of thousands, and e^ε cannot be written down, but t is a small number.
"""

from __future__ import annotations

from math import erf, inf, isnan, log, log1p, pi, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, ndtr

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOWEST, _HIGHEST = -37.0, 39.0  # δ(t) rounds to 1 below and to 0 above
_EXACT = {"xtol": 1e-300, "rtol": 4 * np.finfo(float).eps, "maxiter": 500}


def gaussian_delta(*, multiplier: float, epsilon: float) -> float:
    """The least δ of a Gaussian release of this noise multiplier at ε ≥ 0.

    >>> round(gaussian_delta(multiplier=1.0, epsilon=1.0), 6)
    0.126937
    """
    _check_multiplier(multiplier)
    if not epsilon >= 0:
        raise ValueError(f"epsilon is {epsilon}; it must be at least 0")
    if multiplier == 0 or epsilon == inf:
        if multiplier:
            return 0.0
        return 1.0
    mu = 1 / multiplier
    if mu > 0:
        return float(np.exp(_log_delta(epsilon / mu - mu / 2, mu)))
    return 0.0


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """The least ε ≥ 0 of a Gaussian release at δ in [0, 1).

    multiplier: noise_std / L2 sensitivity, in [0, inf]; 0 is no noise (ε infinite).

    >>> round(gaussian_epsilon(1.0, 1e-5), 4), round(gaussian_epsilon(0.01 / 15**0.5, 1e-5))
    (4.3772, 76651)
    """
    _check_multiplier(multiplier)
    _check_delta(delta)
    mu = 1 / multiplier if multiplier else inf
    if mu == 0:
        return 0.0
    if delta == 0 or mu * mu == inf:
        return inf
    lowest = max(-mu / 2, _LOWEST)
    if erf(mu / sqrt(8)) <= delta or _log_delta(lowest, mu) <= log(delta):
        return 0.0
    t = brentq(lambda t: _log_delta(t, mu) - log(delta), lowest, _HIGHEST, **_EXACT)
    return max(0.0, mu * (t + mu / 2))


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier that gives (ε, δ); the inverse of `gaussian_epsilon`, never above ε by rounding.

    epsilon: finite and ≥ 0. delta: in (0, 1). Raises ValueError otherwise.

    >>> round(gaussian_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    _check_delta(delta)
    if not 0 <= epsilon < inf:
        raise ValueError(f"epsilon is {epsilon}; it must be finite and at least 0")
    if delta == 0:
        raise ValueError("no Gaussian noise gives delta = 0; delta must be above 0")
    if epsilon == 0:
        mu = sqrt(8) * float(erfinv(delta))
    else:
        t = brentq(lambda t: _log_delta(t, _mu(t, epsilon)) - log(delta), _LOWEST, _HIGHEST, **_EXACT)
        mu = _mu(t, epsilon)
    multiplier, step = 1 / mu, float(np.finfo(float).eps)
    while gaussian_epsilon(multiplier, delta) > epsilon:
        multiplier, step = multiplier * (1 + step), 2 * step
    return multiplier


def _mu(t: float, epsilon: float) -> float:
    """The μ > 0 with t = ε/μ − μ/2, without cancellation."""
    root = sqrt(t * t + 2 * epsilon)
    if t < 0:
        return root - t
    return 2 * epsilon / (root + t)


def _log_delta(t: float, mu: float) -> float:
    """log δ at ε = μ(t + μ/2), accurate to a few ulps in δ; t in [−37, 40] or so."""
    log_density = -t * t / 2 - log(2 * pi) / 2
    if mu < 1:  # R(t) and R(t + μ) nearly cancel: integrate −R'(x) = 1 − xR(x) over [t, t + μ] instead
        x = t + mu * (_NODES + 1) / 2
        gap = mu / 2 * float(_WEIGHTS @ (1 - x * _mills(x)))
        if gap > 0:
            return log_density + log(gap)
        return -inf
    if t < 0:
        return log1p(-float(ndtr(t)) - float(np.exp(log_density) * _mills(t + mu)))
    return log_density + log(float(_mills(t) - _mills(t + mu)))


def _mills(x):
    return sqrt(pi / 2) * erfcx(x / sqrt(2))


def _check_multiplier(multiplier: float) -> None:
    if isnan(multiplier) or multiplier < 0:
        raise ValueError(f"the noise multiplier is {multiplier}; it must be at least 0")


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta}; it must be at least 0 and below 1")
