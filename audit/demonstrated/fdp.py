"""ε from the guesses about many canaries in a single run, against a whole trade-off curve
(Mahloujifar, Melis and Chaudhuri 2024, arXiv:2410.22235).

The test of `one_run.py` only asks what (ε, δ) allows, and pays for δ once for every canary. A curve allows less at
every other point, so that this test gets sharper with more canaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from .bound import COINS, GAUSSIAN, LowerBound, Scores, checked_level
from .gdp import mu_epsilon
from .one_run import Guesses, best_guesses

Curve = Callable[[Scores], Scores]
"""A trade-off curve f: false-positive rate -> least false-negative rate; convex, and symmetric (its own inverse)."""

_CANDIDATES = 16  # curves tested together: they cost hardly more than one


def gaussian_curve(mu: ArrayLike) -> Curve:
    """N(0, 1) against N(mu, 1): f(x) = Φ(Φ⁻¹(1 - x) - mu). A vector mu (k,) gives k curves, for x (k,) or ().

    >>> round(float(gaussian_curve(0.0)(0.3)), 3), round(float(gaussian_curve(1.0)(0.05)), 3)
    (0.7, 0.74)
    """
    return lambda x: ndtr(-ndtri(x) - mu)


def profile_curve(epsilons: ArrayLike, deltas: ArrayLike) -> Curve:
    """The curve of a mechanism that is (epsilons[j], deltas[j])-DP for all j at once; both are vectors (n,).

    This turns an accountant's privacy profile into its curve; with a PLD of dp_accounting:
    `profile_curve(e, pld.get_delta_for_epsilon(e))`. A finite profile lies below the true curve, so refuting it
    refutes the accountant. Source: Dong, Roth and Su (arXiv:1905.02383), proposition 2.5.

    Raises ValueError unless there are equally many epsilons in [0, 700] and deltas in [0, 1], at least one.
    """
    epsilons, deltas = np.asarray(epsilons, dtype=np.float64), np.asarray(deltas, dtype=np.float64)
    if epsilons.ndim != 1 or epsilons.shape != deltas.shape or not epsilons.size:
        raise ValueError(f"a profile needs as many epsilons as deltas, got shapes {epsilons.shape} and {deltas.shape}")
    if not (((epsilons >= 0) & (epsilons <= 700)).all() and ((deltas >= 0) & (deltas <= 1)).all()):
        raise ValueError(
            "a profile needs epsilons in [0, 700] and deltas in [0, 1], "
            f"got {epsilons.min()} to {epsilons.max()} and {deltas.min()} to {deltas.max()}"
        )
    ratio, slack = np.exp(epsilons), 1 - deltas

    def curve(x: Scores) -> Scores:
        x = np.asarray(x)[..., None]
        return np.maximum(np.maximum(slack - ratio * x, (slack - x) / ratio).max(-1), 0.0)

    return curve


def curve_refuted(curve: Curve, m: int, r: int, v: int, alpha: ArrayLike) -> NDArray[np.bool_]:
    """Whether right guesses refute a trade-off curve.

    Algorithm 3 of the paper for two options; where the paper inverts 1 - f, a symmetric f has f(1 - y).

    Args:
        curve: f, or k of them.
        m: canaries. r: guesses, fixed before the run. v: right ones.
        alpha: significance, or k of them: k curves or k alphas (k,) give k answers.
    """
    if not 0 <= v <= r <= m or r == 0:
        raise ValueError(f"need 0 ≤ right guesses ≤ guesses ≤ canaries and at least one guess, got {v}, {r} and {m}")
    right = np.asarray(alpha, dtype=np.float64) * v / m
    wrong = np.asarray(alpha, dtype=np.float64) * (r - v) / m
    for i in range(v - 1, -1, -1):
        grown = np.maximum(wrong, curve(1 - np.minimum(right, 1.0)))
        right, wrong, before = right + i / (r - i) * (grown - wrong), grown, wrong
        # Both can only grow, and once they stand still they do so for good.
        if i % 16 == 0 and ((right + wrong > r / m) | (wrong == before)).all():
            break
    return right + wrong > r / m


def fdp_p_value(curve: Curve, m: int, r: int, v: int) -> float:
    """The least significance at which v right guesses of r about m canaries refute `curve`, between 1e-12 and 1.

    With the accountant's own curve (`profile_curve`), a small value says that the proven privacy does not hold.
    """
    low, high = -12.0, 0.0
    for _ in range(6):
        grid = np.linspace(low, high, _CANDIDATES)
        refuting = np.flatnonzero(curve_refuted(curve, m, r, v, 10.0**grid))
        if not refuting.size:
            return 1.0
        low, high = float(grid[max(refuting[0] - 1, 0)]), float(grid[refuting[0]])
    return float(10.0**high)


@lru_cache(maxsize=4096)
def fdp_mu(m: int, r: int, v: int, alpha: float) -> float:
    """The largest mu whose Gaussian curve v right guesses of r about m canaries refute at significance alpha, or 0."""
    if not curve_refuted(gaussian_curve(0.0), m, r, v, alpha):
        return 0.0
    low, high = 0.0, 1.0
    while curve_refuted(gaussian_curve(high), m, r, v, alpha):
        low, high = high, 2 * high
    for _ in range(7):
        grid = np.linspace(low, high, _CANDIDATES)
        last = np.flatnonzero(curve_refuted(gaussian_curve(grid), m, r, v, np.full(grid.shape, alpha)))[-1]
        low, high = float(grid[last]), float(grid[min(last + 1, _CANDIDATES - 1)])
    return low


def one_run_fdp(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Guesses | Sequence[Guesses] | None = None,
) -> LowerBound:
    """A lower bound on ε from one run for a mechanism whose trade-off curve is Gaussian.

    To test a curve of another shape, such as the accountant's own, use `fdp_p_value`.

    Args:
        scores_in, scores_out: scores of inserted and left-out canaries, (n,) each.
        delta: in (0, 1). confidence: of the bound.
        guesses: how many of each are guessed, as in `one_run`; fixed before the run.

    Raises:
        ValueError: as `one_run` does, and for delta = 0.
    """
    alpha = checked_level(delta, confidence, delta_above_zero=True)
    mu, counts, most = best_guesses(
        scores_in,
        scores_out,
        guesses,
        alpha,
        largest=fdp_mu,
        refuted=lambda m, r, v, mu, level: bool(curve_refuted(gaussian_curve(mu), m, r, v, level)),
    )
    return LowerBound(
        mu_epsilon(mu, delta),
        delta,
        confidence,
        "one-run-fdp",
        "both",
        counts,
        None,
        mu_epsilon(most, delta),
        f"{GAUSSIAN} and {COINS}",
    )
