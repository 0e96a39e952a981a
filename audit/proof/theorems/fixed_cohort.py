"""The privacy loss of Gaussian noise on a cohort of fixed size, drawn without replacement.

`cohort` of `population` clients (or records) are drawn uniformly, their sum gets Gaussian noise, and any two of their
contributions lie within μ standard deviations of each other. Let q = cohort / population < 1, N the normal density at
0, S = (1 − q)N + qN(· − μ), and H_α(P‖Q) = ∫max(P − αQ, 0).

**Bound.** Let M be the mechanism, x and x' two data sets that differ in one subject (replaced, or zeroed out: a
replacement by 0). M(x) = (1 − q)ω₀ + qω₁ and M(x') = (1 − q)ω₀ + qω₁', where ω₀ is given that the subject is not
drawn. Balle, Barthe and Gaboardi 2018 (arXiv:1807.01647), Theorem 2 (advanced joint convexity): for α ≥ 1 there is a β
in [0, 1] with

    H_α(M(x)‖M(x')) = q·H_γ(ω₁ ‖ (1 − β)ω₀ + βω₁')   for γ = 1 + (α − 1)/q
                    ≤ q·((1 − β)·H_γ(ω₁‖ω₀) + β·H_γ(ω₁‖ω₁')).

Swapping the subject for one who is not drawn couples ω₁ with ω₀, keeping the sample couples it with ω₁'. Either way two
samples differ in one contribution, so that two Gaussians at most μ apart remain, and both terms are at most
H_γ(N(· − μ)‖N), for which q·H_γ(N(· − μ)‖N) = H_α(S‖N): their bound for sampling without
replacement under substitution. Nothing tells x from x' here, so it is a
bound for either order. Below 1, H_α(M(x)‖M(x')) = 1 − α + α·H_{1/α}(M(x')‖M(x)), bounded by the same.

**A pair that has it.** f(α) = H_α(S‖N) for α ≥ 1, continued by 1 − α + α·f(1/α) below 1, is the profile of an explicit
pair (P, Q), so it needs no convexity of its own: S exceeds N just right of μ/2. Let (P, Q) be (S, N) on that half line,
(N, S) on a copy of it, and equal on one atom that takes the rest. The rest is not negative, as

    S(μ/2, ∞) + N(μ/2, ∞) = q + 2(1 − q)Φ(−μ/2) ≤ 1.

For α ≥ 1 only the first part counts, and gives f(α); the pair is symmetric, which gives the rest. So (P, Q) dominates
M(x), M(x') in both orders (Zhu, Dong and Wang 2022, arXiv:2106.08567), whatever was released before, and dominating
pairs compose, with themselves and with those of other mechanisms, adaptively too (ibid.).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log1p

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import erfcx, ndtr

from .symmetric import symmetric_pld

Rates = Sequence[tuple[float, float]]
TAIL = 9.5  # standard deviations beyond which a loss counts as infinite: a mass of 1e-21


def fixed_cohort_profile(epsilon: np.ndarray, rate: float, mu: float) -> np.ndarray:
    """δ(ε) = q·H_γ(N(· − μ)‖N), γ = 1 + (e^ε − 1)/q, to a few ulps of 1.

    Args:
        epsilon: ≥ 0. rate: q in (0, 1). mu: distance of two contributions over the noise's standard deviation, > 0.

    >>> fixed_cohort_profile(np.array([0.0, 1.0]), 0.5, 1.0).round(6)
    array([0.191462, 0.028868])
    """
    # log γ, without overflow where ε is large, nor cancellation where it is small
    small = np.minimum(epsilon, 1.0)
    log_gamma = np.where(
        epsilon < 1, np.log1p(np.expm1(small) / rate), epsilon + np.log1p(-(1 - rate) * np.exp(-epsilon)) - log(rate)
    )
    t = log_gamma / mu - mu / 2
    return rate * np.maximum(ndtr(-t) - np.exp(-t * t / 2) * erfcx((t + mu) / np.sqrt(2)) / 2, 0)


def largest_loss(rate: float, mu: float) -> float:
    """The loss log(S/N) at `TAIL` standard deviations beyond the mean μ: what a grid must reach."""
    loss = mu * (mu / 2 + TAIL)
    return loss + log(rate) + log1p((1 - rate) / rate * np.exp(-loss))


def fixed_cohort_pld(rates: Rates, mu: float, interval: float) -> pld.PrivacyLossDistribution:
    """The privacy loss distribution of the pair above, rounded up.

    Args:
        rates: q in (0, 1], with how likely each is. Which it is, the observer knows and looks at no data: the pair is
          one of disjoint pairs, and its profile their mean.
        mu: distance of two contributions over the noise's standard deviation, > 0.
        interval: h, the grid of privacy losses, > 0.
    """
    steps = max(1, int(np.ceil(largest_loss(max(rate for _, rate in rates), mu) / interval)))
    grid = interval * np.arange(steps + 1)
    parts = [weight * fixed_cohort_profile(grid, rate, mu) for weight, rate in rates]
    return symmetric_pld(np.sum(parts, axis=0), interval)
