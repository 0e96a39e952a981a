"""Discrete Gaussian noise on whole numbers, one client's or the sum of several.

**One.** For a shift by a whole number v the Rényi divergence of a discrete Gaussian of parameter σ is at most
αv²/2σ², for independent numbers together α‖v‖₂²/2σ² (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Prop. 5).

**A sum** of n of them is nearly one of parameter √n·σ (Kairouz, Liu and Steinke 2021, arXiv:2102.06387, Theorem 11).
The law of k + 1 of them is that of √k·σ and σ convolved, but for what k of them are off. Completing the square,

    Σ_x exp(−x²/2kσ² − (z − x)²/2σ²) = exp(−z²/2(k + 1)σ²) · Σ_x exp(−(x − μ)²/2s²),    s² = σ²k/(k + 1),

and by Poisson's summation formula the last sum is √2π·s·(1 + 2Σ_j exp(−2π²s²j²) cos 2πjμ), within (1 ± η_k) of a
constant, η_k = 2Σ_j exp(−2π²s²j²). The normalised law is within (1 + η_k)/(1 − η_k), either way, of the discrete
Gaussian of √(k + 1)·σ, and convolving two laws that are within a factor of each other with a third leaves them so. In
all the sum's masses are within e^{±τ} of the single one's, τ = Σ_{k<n} log((1 + η_k)/(1 − η_k)), about 4 exp(−π²σ²)
(the paper has 10Σ exp(−2π²s²)). With masses within e^{±dτ} over d numbers,

    D_α(sum + v ‖ sum) ≤ α‖v‖₂²/2nσ² + dτ(2α − 1)/(α − 1).

What the others add is post-processing too, so that the client's own noise alone bounds it as well.

**As continuous noise.** Let X be N(0, σ² − s²) and Y, given X, discrete Gaussian of parameter s around X: P(Y = k) is
exp(−(k − X)²/2s²) over a sum that by Poisson's formula is within (1 ± η) of a constant, η = 2Σ_j exp(−2π²s²j²). So the
law of Y, Gaussian in k but for that sum, is within e^{±τ_s}, τ_s = log((1 + η)/(1 − η)), of the discrete Gaussian of
parameter σ; and shifting X by a whole number shifts Y. The discrete pair is, within that, post-processing of continuous
Gaussian noise of variance σ² − s², whose trade-off curve is exact and composes: with s = 1.5 a 10⁻¹⁸ of a number is all
that is lost beside s². Where all log-probabilities of P and Q are within κ of such a pair that is (ε, δ)-close, P and Q
are (ε + 2κ, e^κ δ)-close.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, log, log1p, pi, sqrt

import numpy as np

LEFT = 1e-12  # of all log-probabilities of a value together: what s is chosen for


@lru_cache(maxsize=4096)
def sum_off(noise_std: float, senders: int) -> float:
    """τ of one number: how far log-probabilities of the sum of discrete Gaussians are from those of a single one.

    Args:
        noise_std: σ > 0 of each, in steps. senders: n ≥ 1.

    >>> sum_off(3.0, 1), round(sum_off(1.0, 2), 7), sum_off(0.2, 2)
    (0.0, 0.0002069, inf)
    """
    k = np.arange(1, senders, dtype=float)
    falls = 2 * np.pi**2 * noise_std**2 * k / (k + 1)
    first = np.exp(-falls)
    eta = 2 * first * (1 + first**3 / -np.expm1(-5 * falls))  # exponents 1, 4, 9, …: at least 5 more each from 4 on
    if (eta >= 1).any():
        return inf
    return float(np.log1p(2 * eta / (1 - eta)).sum())


def discrete_renyi(ratio: float, noise_std: float, senders: int, numbers: int, orders: np.ndarray) -> np.ndarray:
    """The Rényi divergences at `orders` > 1, never too small.

    Args:
        ratio: L2 sensitivity over √n·σ. noise_std: σ of each sender, in steps. senders: n. numbers: d.
        orders: (m,).

    >>> discrete_renyi(1.0, 3.0, 1, 10, np.array([2.0]))
    array([1.])
    """
    own = orders * ratio**2 * senders / 2
    off = numbers * sum_off(noise_std, senders)
    return np.minimum(own, orders * ratio**2 / 2 + off * (2 + 1 / (orders - 1)))


def as_continuous(noise_std: float, senders: int, numbers: int) -> tuple[float, float]:
    """What the ratio of sensitivity over √n·σ is multiplied by for continuous Gaussian noise that hides as little, and
    how far (κ) log-probabilities are from post-processing of it. (∞, 0) where there is no such noise.

    Args: as for `discrete_renyi`.

    >>> factor, off = as_continuous(10.0, 100, 10**6)
    >>> round(factor, 6), off < 1e-11
    (1.000109, True)
    """
    counted, off = senders, numbers * sum_off(noise_std, senders)
    if off > LEFT:  # its own alone, of which nothing is unknown
        counted, off = 1, 0.0
    smooth = log(5 * numbers / LEFT) / (2 * pi**2)  # s²
    variance = counted * noise_std**2 - smooth
    if variance <= 0:
        return inf, 0.0
    first = exp(-2 * pi**2 * smooth)
    eta = 2 * first * (1 + first**3 / (1 - first**5))
    return noise_std * sqrt(senders / variance), off + numbers * log1p(2 * eta / (1 - eta))
