"""Claims of Gaussian noise: RDP as the thesis converts it, and the moments accountant.

Sources: Weng 2025 (THESIS) Definition 7, Lemmas 2 and 4; Abadi et al. 2016 (arXiv:1607.00133), Theorem 2, which Geyer,
Klein and Nabi 2017 (arXiv:1712.07557) use; Mironov, Talwar and Zhang 2019 (arXiv:1908.10530).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.special import gammaln, logsumexp

TF_PRIVACY_ORDERS = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128, 256, 512)
ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)  # integers: dp_accounting's series for others may not converge


def rdp_gaussian(multiplier: float, releases: float, delta: float) -> float:
    """ε of T releases by THESIS Lemmas 2 and 4 and Definition 7: min over real α > 1 of Tα/(2σ²) + ln(1/δ)/(α − 1).

    That is T/(2σ²) + √(2T ln(1/δ))/σ. multiplier: σ = noise_std over the sensitivity the thesis assumes (C/n). This is
    also what `thesis-baseline` (THESIS 5.4: σ = 2, C = 1) claims.

    >>> round(rdp_gaussian(1.0, 1, 1e-5), 2), round(rdp_gaussian(1.0, 15, 1e-5), 2)
    (5.3, 26.08)
    """
    return releases / (2 * multiplier**2) + sqrt(2 * releases * log(1 / delta)) / multiplier


def moments_epsilon(rate: float, multiplier: float, rounds: float, delta: float, moments: int = 32) -> float:
    """ε of the moments accountant: min over λ = 1 … `moments` of (T·α(λ) + ln(1/δ))/λ (Abadi et al., Theorem 2).

    α(λ) = ln Σ_k C(λ+1, k) (1−q)^(λ+1−k) q^k exp(k(k−1)/(2σ²)), the log moment of a Poisson-sampled Gaussian of rate q
    and multiplier σ; the larger of the paper's two. Geyer et al. take it for cohorts of fixed size, q = m/M.

    Args:
        rate: q in (0, 1]. multiplier: σ. rounds: T, from 0. delta: δ. moments: the highest λ tried.

    >>> round(moments_epsilon(0.5, 1.18, 11, 1e-3), 2)
    8.15
    """
    if rounds == 0:
        return 0.0
    orders = np.arange(1, moments + 1)
    return float(((rounds * _log_moments(rate, multiplier, moments) + log(1 / delta)) / orders).min())


@lru_cache(maxsize=256)
def _log_moments(rate: float, multiplier: float, moments: int) -> np.ndarray:
    """α(λ) for λ = 1 … moments, shape (moments,)."""
    absent = log(1 - rate) if rate < 1 else -inf
    log_moments = []
    for power in range(2, moments + 2):
        k = np.arange(power + 1)
        out = np.zeros(power + 1)
        out[:-1] = (power - k[:-1]) * absent  # 0·(−∞) does not arise: k = power adds 0
        choose = gammaln(power + 1) - gammaln(k + 1) - gammaln(power - k + 1)
        log_moments.append(logsumexp(choose + out + k * log(rate) + k * (k - 1) / (2 * multiplier**2)))
    return np.array(log_moments)


def sampled_gaussians_epsilon(
    rate: float, multipliers: Sequence[tuple[float, int]], delta: float, orders: tuple[float, ...] = TF_PRIVACY_ORDERS
) -> float:
    """ε of sampled Gaussians of several multipliers: min over `orders` of Σ n·R_σ(α) + ln(1/δ)/(α − 1), which is how
    TF-Privacy turned RDP into ε before 2020 (Mironov 2017, Proposition 3).

    Args:
        rate: q in (0, 1], of Poisson samples. multipliers: (σ, how many steps), σ > 0. delta: δ. orders: α > 1.

    >>> round(sampled_gaussians_epsilon(0.01, [(6.0, 10_000)], 1e-5), 4)
    0.8227
    """
    if not multipliers:
        return 0.0
    total = sum(steps * sampled_renyi(rate, sigma, orders) for sigma, steps in multipliers)
    return float((total + log(1 / delta) / (np.array(orders) - 1)).min())


@lru_cache(maxsize=8192)
def sampled_renyi(rate: float, multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """The Rényi divergences, at `orders` α > 1, of one step: a Poisson-sampled Gaussian of rate q and multiplier σ
    (arXiv:1908.10530); ∞ where the series for one does not converge.
    """
    if all(order == int(order) for order in orders):
        powers = np.array(orders, dtype=int) - 1
        return _log_moments(rate, multiplier, int(powers.max()))[powers - 1] / powers
    logger = logging.getLogger("absl")  # dp_accounting warns of each order that its series does not reach
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant = RdpAccountant(orders).compose(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)))
    finally:
        logger.setLevel(level)
    return np.where(np.isnan(accountant.rdp), inf, accountant.rdp)


@lru_cache(maxsize=4096)
def sampled_gaussian_epsilon(rate: float, multiplier: float, steps: int, delta: float) -> float:
    """ε of T steps of DP-SGD by RDP (arXiv:1908.10530), integer orders: Poisson batches of rate q, multiplier σ.

    >>> round(sampled_gaussian_epsilon(0.1, 4.0, 100, 1e-5), 2)
    1.08
    """
    if steps == 0:
        return 0.0
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
    return float(RdpAccountant(ORDERS).compose(event, steps).get_epsilon(delta))
