"""The privacy loss distribution of Gaussian noise under a Poisson draw: dp_accounting's, its grid computed at once.

dp_accounting 0.6 asks for one privacy loss of the grid after the other, in Python. Here the points at which the losses
are reached are one array, by the same formulas (its `GaussianPrivacyLoss`, `inverse_privacy_loss`); the divergences at
them, the truncation and the rounding up (connect the dots, arXiv:2207.04380) are the library's own.
"""

from __future__ import annotations

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import PLDPmf, create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

WORLDS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: (AdjacencyType.REMOVE, AdjacencyType.ADD),
    NeighboringRelation.REPLACE_ONE: (AdjacencyType.REPLACE,),  # the same in both orders
}


def sampled_gaussian_pld(
    rate: float, mu: float, neighbours: NeighboringRelation, interval: float
) -> pld.PrivacyLossDistribution:
    """The distribution, rounded up.

    Args:
        rate: q in (0, 1]. mu: what one subject moves over the noise's standard deviation, > 0.
        neighbours: add or remove one, or replace one. interval: h, the grid of privacy losses, > 0.
    """
    return pld.PrivacyLossDistribution(*(_rounded_up(rate, 1 / mu, world, interval) for world in WORLDS[neighbours]))


def _rounded_up(rate: float, noise_multiplier: float, world: AdjacencyType, interval: float) -> PLDPmf:
    loss = GaussianPrivacyLoss(noise_multiplier, sampling_prob=rate, adjacency_type=world)
    bounds = loss.connect_dots_bounds()
    low, high = int(np.floor(bounds.epsilon_lower / interval)), int(np.ceil(bounds.epsilon_upper / interval))
    epsilons = interval * np.arange(low, high + 1)
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, _divergences(loss, epsilons))


def _divergences(loss: GaussianPrivacyLoss, epsilons: np.ndarray) -> np.ndarray:
    """δ(ε) at every ε: where the loss is above ε, P(upper) − e^ε P(lower)."""
    rate, world = loss.sampling_prob, loss.adjacency_type
    deltas = np.zeros_like(epsilons)
    reached = np.ones_like(epsilons, dtype=bool)
    if rate < 1 and world is AdjacencyType.ADD:
        reached = epsilons < -np.log1p(-rate)
    if rate < 1 and world is AdjacencyType.REMOVE:
        reached = epsilons > np.log1p(-rate)
        deltas[~reached] = -np.expm1(epsilons[~reached])
    asked = epsilons[reached]
    at = _points(loss, asked)
    deltas[reached] = loss.mu_upper_cdf(at) - np.exp(asked + loss.mu_lower_log_cdf(at))
    return np.clip(deltas, 0, 1)


def _points(loss: GaussianPrivacyLoss, epsilons: np.ndarray) -> np.ndarray:
    """The largest noise at which the loss is at least ε."""
    rate, variance = loss.sampling_prob, loss.standard_deviation**2  # of a sensitivity of 1
    if loss.adjacency_type is AdjacencyType.REMOVE:
        return -0.5 - variance * _unsampled(epsilons, rate)
    if loss.adjacency_type is AdjacencyType.ADD:
        return 0.5 + variance * _unsampled(-epsilons, rate)
    if rate == 1:
        return -epsilons * variance / 2
    half = np.abs(epsilons) / 2
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-2 * half)) - np.log(2)
    log_sinh += 0.5 / variance + np.log1p(-rate) - np.log(rate)
    large = log_sinh > 20  # where arcsinh(x) is log 2x to the last digit
    arcsinh = np.where(large, log_sinh + np.log(2), np.arcsinh(np.exp(np.where(large, 0, log_sinh))))
    return variance * (-np.sign(epsilons) * arcsinh - epsilons / 2)


def _unsampled(epsilons: np.ndarray, rate: float) -> np.ndarray:
    """log(1 + (e^ε − 1)/q), the loss without the draw."""
    if rate == 1:
        return epsilons
    small = np.minimum(epsilons, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log1p(np.maximum(np.expm1(small) / rate, -1.0))
        far = epsilons - np.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(epsilons, 1.0)))
    return np.where(epsilons < 1, near, far)
