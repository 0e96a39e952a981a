"""Noise that is missing in single numbers of a tensor is seen, and an honest mechanism is judged as before."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from dpfl_audit.audit.two_worlds.levels import Levels
from dpfl_audit.audit.two_worlds.rounds import RoundShape
from dpfl_audit.audit.two_worlds.vector_scores import VectorScores
from dpfl_audit.audit.worlds.function import audit_mechanism

DELTA, DIM = 1e-5, 400


def noisy(quiet: float, at: int = 3, moves: float = 1.5):
    """The canary moves every number as far, in all by `moves` standard deviations; one number has `quiet` of them."""

    def update(world: bool, seed: int) -> np.ndarray:
        noise = np.random.default_rng(seed).normal(size=DIM)
        noise[at] *= quiet
        return noise + moves / sqrt(DIM) * bool(world)

    return update


@pytest.mark.few(2)
@pytest.mark.parametrize("quiet", [0.0, 1e-3])
@pytest.mark.parametrize("known", [True, False])
def test_one_number_without_noise_refutes_what_the_others_would_hide(quiet, known):
    noiseless = (lambda world: np.full(DIM, 1.5 / sqrt(DIM) * bool(world))) if known else None
    audit = audit_mechanism(noisy(quiet), delta=DELTA, claim=4.0, noiseless=noiseless)
    assert audit.finding().level == "violated"


def test_one_round_is_enough():
    def update(world: bool, seed: int) -> np.ndarray:
        return np.concatenate([noisy(1.0)(world, seed), noisy(0.0, at=7)(world, seed + 2**40)])

    assert audit_mechanism(update, delta=DELTA, claim=4.0, rounds=2).finding().level == "violated"


def test_equal_noise_is_one_level_and_its_bound_stays_below_the_truth():
    variances = [torch.from_numpy(np.random.default_rng(w).chisquare(9, 10_000) / 9).double() for w in (0, 1)]
    assert len(Levels.of([torch.ones(10_000), torch.full((10_000,), 2.0)], [10_000]).sizes) == 1
    assert max(Levels.of(variances, [10_000]).sizes) > 9_990  # of ten draws each, hardly any seem to have a quarter
    truth = 7.051  # of a shift of 1.5 at δ = 1e-5, by the analytic Gaussian formula (Balle and Wang 2018)
    shown = [audit_mechanism(noisy(1.0), delta=DELTA, draws=60, seed=s).counted.epsilon for s in range(20)]
    assert sum(epsilon > truth for epsilon in shown) <= 1


def test_numbers_that_are_rarely_sent_keep_their_tensors_spread():
    """Of random masks many numbers look as if they had no noise: a score by levels told less apart."""
    rng = np.random.default_rng(0)
    own = [tuple(rng.chisquare(4, (50, 3)) for _ in (0, 1)) for _ in (0, 1)]
    levels = Levels.of([torch.tensor([1.0, 1, 1, 0, 1])], [5])
    scores = VectorScores.fitted(own, RoundShape(levels.sizes, 1), levels, 1.0)
    assert scores.levels is levels  # nothing is told apart either way: a spread for the whole tensor


@pytest.mark.parametrize("sizes", [[4, 3], [7], [1, 0, 6]])
def test_groups_add_up_to_their_tensors(sizes):
    variance = torch.tensor([1.0, 0, 1, 1, 9, 1e-9, 8])
    levels = Levels.of([variance, torch.ones(7)], sizes)
    assert sorted(levels.order.tolist()) == list(range(7)) and sum(levels.sizes) == 7
    assert levels.tensors == tuple(s for s in sizes if s)
    squares = torch.arange(1.0, 8) ** 2
    groups = [float(part.sum()) for part in squares[levels.order].split(list(levels.sizes))]
    tensors = [float(part.sum()) for part in squares.split(sizes) if len(part)]
    assert levels.by_tensor(np.array([[*groups, 5.0]])).tolist() == [[*tensors, 5.0]]
