"""μ of a Gaussian-shaped mechanism from one point of its trade-off curve, and ε from μ."""

from __future__ import annotations

from numpy.typing import ArrayLike
from scipy.special import ndtri

from ...proof.theorems.gaussian import gaussian_epsilon
from .bound import GAUSSIAN, LowerBound, Scores, checked_level, checked_scores
from .clopper_pearson import confusion, error_limits, perfect_limits


def mu_epsilon(mu: float, delta: float) -> float:
    """The ε at which N(mu, 1) against N(0, 1) is exactly (ε, delta)-DP; 0 for mu ≤ 0.

    >>> round(mu_epsilon(1.0, 1e-5), 3), round(mu_epsilon(4.0, 1e-6), 3), mu_epsilon(-1.0, 1e-5)
    (4.377, 26.357, 0.0)
    """
    if mu > 0:
        return gaussian_epsilon(1 / mu, delta)
    return 0.0


def mu_limit(fnr: ArrayLike, fpr: ArrayLike) -> Scores:
    """The least mu whose trade-off curve allows these error rates: Φ⁻¹(1 - fpr) - Φ⁻¹(fnr).

    Dong, Roth and Su (arXiv:1905.02383), equation 6. Negative for an attack that errs more often than not, and kept
    so: |mu| would turn a bad attack into a leak.
    """
    return -ndtri(fpr) - ndtri(fnr)


def gdp(
    scores_in: ArrayLike, scores_out: ArrayLike, *, delta: float, confidence: float = 0.95, threshold: float
) -> LowerBound:
    """A lower bound on ε for a mechanism that is μ-GDP for some μ, such as one noisy sum.

    It is far above the assumption-free bound because one point fixes the whole curve, and it is a bound on ε only if
    the curve really is Gaussian: print `clopper_pearson` beside it.

    Args:
        scores_in, scores_out: scores of both worlds, (n,) each.
        delta: in (0, 1). confidence: of the bound.
        threshold: as in `clopper_pearson`.

    Raises:
        ValueError: as `clopper_pearson` does, and for delta = 0.

    Source: Nasr et al. (arXiv:2302.07956).
    """
    alpha = checked_level(delta, confidence, delta_above_zero=True)
    scores_in, scores_out = checked_scores("scores_in", scores_in), checked_scores("scores_out", scores_out)
    return LowerBound(
        epsilon=mu_epsilon(float(mu_limit(*error_limits(scores_in, scores_out, threshold, alpha))), delta),
        delta=delta,
        confidence=confidence,
        method="gdp",
        counts=confusion(scores_in, scores_out, threshold),
        threshold=float(threshold),
        ceiling=gdp_ceiling(len(scores_in), len(scores_out), delta, alpha),
        assumption=GAUSSIAN,
    )


def gdp_ceiling(n_in: int, n_out: int, delta: float, alpha: float) -> float:
    """The ε that an attack without any error shows by `gdp` with so many scores of either world."""
    return mu_epsilon(float(mu_limit(*perfect_limits(n_in, n_out, alpha))), delta)
