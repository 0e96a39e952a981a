"""The banded strategy matrix of the least error: BandMF's optimum.

Source: Choquette-Choo et al. 2023, arXiv:2306.08153, section 3 and appendix C. With X = CᵀC the error of prefix sums is

    ‖A C⁻¹‖²_F = tr(AᵀA X⁻¹),    X_ii = 1,    X_ij = 0 where |i − j| ≥ b,

convex in X. C is lower triangular with columns of norm 1 (X's diagonal), so C is not numpy's Cholesky factor L of X,
X = L Lᵀ, whose *rows* have norm 1: it is that of X turned around, turned back.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_Matrix = NDArray[np.float64]

STEPS, MEMORY = 2000, 20  # of L-BFGS, at most
FLAT = 1e-9  # the error's relative gain of a step, below which it has converged


def prefix_error(strategy: _Matrix) -> float:
    """‖A C⁻¹‖²_F: the summed squared errors of all prefix sums under white noise of variance 1.

    strategy: C, (n, n), invertible.

    >>> prefix_error(np.eye(8))
    36.0
    """
    return float(np.square(np.cumsum(np.linalg.inv(strategy), axis=0)).sum())


@lru_cache(maxsize=16)
def banded_optimum(rounds: int, bands: int) -> _Matrix:
    """C, (n, n), lower triangular with b bands and columns of norm 1, of the least `prefix_error`, to 1e-6 of it.

    Takes O(n³) a step: seconds for n = 200.

    Args:
        rounds: n ≥ 1. bands: b, from 1 to n.

    Raises:
        ValueError: either is out of its range.

    >>> round(prefix_error(banded_optimum(8, 2)), 4)
    23.9411
    """
    if not 1 <= bands <= rounds:
        raise ValueError(f"bands = {bands}: must be from 1 to the number of rounds, {rounds}")
    at = np.arange(rounds)
    inside = np.abs(at[:, None] - at) < bands
    below = np.tril(inside, -1).nonzero()
    later = rounds - np.maximum(at[:, None], at)  # AᵀA: how many prefix sums have both i and j in them
    best = np.eye(rounds)
    best[below] = best.T[below] = _best(below, later.astype(float))
    # X = CᵀC: the factor of X turned around, turned back
    return np.ascontiguousarray(np.linalg.cholesky(best[::-1, ::-1]).T[::-1, ::-1])


def _best(below: tuple[NDArray[np.intp], NDArray[np.intp]], weights: _Matrix) -> _Matrix:
    """X's entries below the diagonal (m,), by L-BFGS with backtracking from X = 1 (Nocedal and Wright, Alg. 7.4)."""

    def error(entries: _Matrix) -> tuple[float, _Matrix]:
        """And its gradient; ∞ where X is not positive definite."""
        x = np.eye(len(weights))
        x[below] = x.T[below] = entries
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(x))
        except np.linalg.LinAlgError:
            return np.inf, entries
        inverse = inverse.T @ inverse
        half = inverse @ weights
        return float(np.trace(half)), -2 * (half @ inverse)[below]

    at = np.zeros(len(below[0]))
    if not len(at):
        return at
    value, slope = error(at)
    pairs: deque[tuple[_Matrix, _Matrix]] = deque(maxlen=MEMORY)
    for _ in range(STEPS):
        direction = -_times_inverse_hessian(slope, pairs)
        step = 1.0 if pairs else 0.1 / float(np.abs(slope).max())
        falls = float(slope @ direction)
        while not (new := error(at + step * direction))[0] <= value + 1e-4 * step * falls:
            step /= 2
            if step < 1e-12:
                return at
        moved, turned = step * direction, new[1] - slope
        gained = value - new[0]
        at, (value, slope) = at + moved, new
        if moved @ turned > 0:
            pairs.append((moved, turned))
        if gained < FLAT * value:
            break
    return at


def _times_inverse_hessian(slope: _Matrix, pairs: deque[tuple[_Matrix, _Matrix]]) -> _Matrix:
    """The two-loop recursion (Nocedal and Wright, Alg. 7.4)."""
    out, weights = slope.copy(), []
    for moved, turned in reversed(pairs):
        weight = float(moved @ out) / float(moved @ turned)
        weights.append(weight)
        out -= weight * turned
    if pairs:
        moved, turned = pairs[-1]
        out *= float(moved @ turned) / float(turned @ turned)
    for (moved, turned), weight in zip(pairs, reversed(weights)):
        out += (weight - float(turned @ out) / float(moved @ turned)) * moved
    return out
