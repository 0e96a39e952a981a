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
        counts,
        mu_epsilon(most, delta),
        f"{GAUSSIAN} and {COINS}",
    )
