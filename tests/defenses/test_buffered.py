"""BLT: published optima, formulas against dense matrices, and the sensitivity by trying all participations."""

from __future__ import annotations

from itertools import combinations
from math import log, pi, sqrt

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.correlated import largest_sum
from dpfl_audit.defenses.banded import banded_optimum, prefix_error
from dpfl_audit.defenses.buffered import Buffers, buffered_optimum
from dpfl_audit.defenses.strategies import BLT, decoder_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stated import strategy_of
from tiers import quick


def strategy(best: Buffers, rounds: int) -> BLT:
    return BLT(rounds, best.decays, best.scales)


def last_error(best: Buffers, rounds: int) -> float:
    """Of the last prefix sum, by the inverse's own coefficients."""
    return float(np.square(Buffers(best.inverse, best.decays).coefficients(rounds).cumsum()).sum())


def test_the_published_optimum_of_two_buffers():
    """jax_privacy, buffered_toeplitz_test.py, test_optimize_single_participation_golden: n = 100,000, max error."""
    best = buffered_optimum(100_000, 2, 100_000, 1, "max")
    assert best.decays == pytest.approx((0.9999528892, 0.9857068667), rel=1e-8)
    assert best.scales == pytest.approx((0.0122853238, 0.1878393665), rel=1e-5)


@pytest.mark.parametrize(
    ("n", "buffers", "most"),
    [(10, 1, 1.04), (100, 2, 1.03), (1_000, 2, 1.04), (10_000, 1, 1.45), (10_000, 4, 1.03), (100_000, 2, 1.16)],
)
def test_it_is_as_near_to_the_optimal_toeplitz_as_published(n, buffers, most):
    """test_optimize_single_participation_near_optimal: √loss over 1 + log(n)/π (arXiv:2404.16706, eq. 2.8)."""
    best = buffered_optimum(n, buffers, n, 1, "max")
    ratio = best.sensitivity(n, n, 1) * sqrt(last_error(best, n)) / (1 + log(n) / pi)
    assert 0.95 * most < ratio <= most


@pytest.mark.parametrize(
    ("n", "b", "worse"), quick([(100, 100, 1.04), (100, 50, 1.06), (100, 10, 1.08), (6, 2, 1.06)], 2, 3)
)
def test_it_is_little_worse_than_the_best_banded_matrix(n, b, worse):
    """Root mean square error of the prefix sums at one sensitivity, against BandMF's of b bands."""
    turns = -(-n // b)
    best = buffered_optimum(n, 3, b, turns)
    dense = strategy_of(strategy(best, n))
    ratio = sqrt(
        prefix_error(dense) * best.sensitivity(n, b, turns) ** 2 / (turns * prefix_error(banded_optimum(n, b)))
    )
    assert 1 < ratio < worse


@pytest.mark.parametrize("rounds", [1, 2, 16])
def test_who_is_in_every_round_needs_independent_noise(rounds):
    """The best C for full participation is the identity (jax_privacy, test_full_participation_produces_identity)."""
    best = buffered_optimum(rounds, 2, 1, rounds)
    loss = prefix_error(strategy_of(strategy(best, rounds))) * best.sensitivity(rounds, 1, rounds) ** 2
    assert loss == pytest.approx(rounds * rounds * (rounds + 1) / 2, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(shares=st.lists(st.floats(0.05, 0.999), min_size=2, max_size=6), rounds=st.integers(2, 12), b=st.integers(1, 6))
def test_formulas_are_the_dense_matrices(shares, rounds, b):
    """Interlacing decays: C falls and is above 0, the exchange of θ and θ̂ is its inverse, and no participations move
    it more than 0, b, 2b, … do.
    """
    falling = np.cumprod(shares[: len(shares) // 2 * 2])
    made = Buffers(tuple(falling[::2]), tuple(falling[1::2]))
    c = made.coefficients(rounds)
    assert (c > 0).all() and (np.diff(c) < 0).all() and c[0] == 1
    dense = strategy_of(strategy(made, rounds))
    assert np.allclose(dense, [[c[i - j] if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)])
    inverse = Buffers(made.inverse, made.decays).coefficients(rounds)
    assert np.allclose(np.linalg.inv(dense)[:, 0], inverse, atol=1e-9)
    assert np.allclose(decoder_of(strategy(made, rounds)), np.linalg.inv(dense), atol=1e-9)
    most = -(-rounds // b)
    tried = [
        np.linalg.norm(dense[:, list(chosen)].sum(1))
        for size in range(1, most + 1)
        for chosen in combinations(range(rounds), size)
        if all(later - earlier >= b for earlier, later in zip(chosen, chosen[1:]))
    ]
    assert made.sensitivity(rounds, b, most) == pytest.approx(max(tried))
    assert sqrt(largest_sum(dense.T @ dense, range(rounds), b, most)) == pytest.approx(max(tried))


def test_a_blt_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one round"):
        buffered_optimum(0, 1, 1, 1)
