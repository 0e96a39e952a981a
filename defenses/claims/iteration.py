"""The noise of DP-FedAvg with tuned iteration times (ITER: Fu et al., arXiv:2101.04163, Theorems 1 and 2).

T_l = bT_g/N is how many rounds a client takes part in. The sensitivity Ξ = η̃Eξ sets ξ, the gradients' sensitivity, to
the clip norm ζ; two clipped gradients can differ by 2ζ, so that both claims are out by a factor of 2 for a record.
"""

from __future__ import annotations

from math import log, sqrt

C2 = sqrt(2)  # the constant Theorem 2 only says exists; the paper never gives it


def iteration_sensitivity(largest_rate: float, local_steps: int, clip: float) -> float:
    """Ξ = η̃·E·ξ, in parameter units: the round's largest learning rate, its local steps, and ξ = ζ (L1 or L2).

    >>> iteration_sensitivity(0.5, 4, 3.0)
    6.0
    """
    return largest_rate * local_steps * clip


def iteration_laplace_scale(epsilon: float, releases: float, sensitivity: float) -> float:
    """The Laplace scale b = T_lΞ1/ε of Theorem 1 (the standard deviation is √2·b).

    >>> iteration_laplace_scale(5.0, 10, 2.0)
    4.0
    """
    return releases * sensitivity / epsilon


def iteration_laplace_epsilon(scale: float, releases: float, sensitivity: float) -> float:
    """ε = T_lΞ1/b: what T_l releases with that Laplace scale claim by Theorem 1.

    >>> iteration_laplace_epsilon(4.0, 10, 2.0)
    5.0
    """
    return releases * sensitivity / scale


def iteration_gaussian_std(epsilon: float, delta: float, releases: float, sensitivity: float, c2: float = C2) -> float:
    """The Gaussian's standard deviation Ξ2·c2·√(T_l ln(1/δ))/ε of Theorem 2 at q = 1: local steps take all data.

    Args:
        epsilon, delta: over all releases. releases: T_l of one client. sensitivity: Ξ2, an L2 norm. c2: the constant.

    >>> round(iteration_gaussian_std(10.0, 1e-4, 1, 1.0), 4)
    0.4292
    """
    return sensitivity * c2 * sqrt(releases * log(1 / delta)) / epsilon


def iteration_gaussian_epsilon(
    noise_std: float, delta: float, releases: float, sensitivity: float, c2: float = C2
) -> float:
    """ε = Ξ2·c2·√(T_l ln(1/δ))/σ: what T_l releases with noise of that standard deviation claim by Theorem 2.

    Args:
        noise_std: σ, in parameter units. delta, releases, sensitivity, c2: as for `iteration_gaussian_std`.

    >>> round(iteration_gaussian_epsilon(0.4292, 1e-4, 1, 1.0), 2)
    10.0
    """
    return sensitivity * c2 * sqrt(releases * log(1 / delta)) / noise_std
