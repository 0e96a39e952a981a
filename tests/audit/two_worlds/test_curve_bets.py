"""Bets against a Gaussian's whole curve: none pays on average while the curve holds, whatever it was learned from."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.audit.two_worlds.estimators.betting import block_ends
from dpfl_audit.audit.two_worlds.estimators.curve_bets import CurveBets, CurveWagers, curve_ceiling, tangents
from scipy.stats import binom, norm

MUS = np.array([0.0, 0.2, 1.0, 3.0, 8.0])


def normal(seed: int, n: int, mu: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, n])
    return rng.normal(mu, 1, n), rng.normal(0, 1, n)


def mean_factor(bets: CurveBets, mu: float, spread: float = 1.0) -> np.ndarray:
    """What a pair multiplies the wealths by on average, exactly, where scores are N(mu, spread²) and N(0, 1)."""
    ends = np.array([-np.inf, *bets.thresholds, np.inf])
    cells_in, cells_out = np.diff(norm.cdf((ends - mu) / spread)), np.diff(norm.cdf(ends))
    return np.einsum("a,b,abk->k", cells_in, cells_out, np.exp(bets.log_factors))


@pytest.mark.parametrize("learned", [0.0, 0.5, 1.0, 4.0, 12.0])
def test_no_bet_pays_on_average_while_the_worlds_have_the_curve(learned):
    bets = CurveBets.best(MUS, *normal(0, 80, learned))
    assert (np.exp(bets.log_factors) > 0).all()
    for place in range(len(MUS)):
        for true in MUS[: place + 1]:
            assert mean_factor(bets, true)[place] <= 1 + 1e-12


def test_bets_that_were_learned_well_pay_where_the_curve_is_too_low():
    bets = CurveBets.best(MUS, *normal(1, 500, 3.0))
    assert (mean_factor(bets, 3.0)[:3] > 1.05).all()


def test_a_tangent_is_nowhere_below_its_curve():
    x = np.linspace(0, 1, 1001)
    slopes, offsets = tangents(MUS, np.array([[-4.0], [-1.0], [0.0], [2.0]]))
    curves = norm.cdf(MUS + norm.ppf(x)[:, None, None])
    assert (slopes * x[:, None, None] + offsets >= curves - 1e-12).all()


def test_a_perfect_attack_reaches_the_ceiling_by_hand():
    """A right pair pays .9·Φ(−μ/2)/Φ(μ/2) at most; at μ = 2 that is .1699, and 1.1699¹⁹ < 20 < 1.1699²⁰."""
    assert curve_ceiling(19, 0.05) < 2.0 < curve_ceiling(20, 0.05)
    bets = CurveBets.best(np.array([2.0]), np.ones(20), np.zeros(20))
    wagers = CurveWagers.on(np.array([2.0]))
    assert wagers.after(np.ones(19), np.zeros(19), bets).refuted(0.05) == 0.0
    assert wagers.after(np.ones(20), np.zeros(20), bets).refuted(0.05) == 2.0


def test_scores_that_are_all_equal_are_not_bet_on():
    bets = CurveBets.best(MUS, np.ones(20), np.ones(20))
    assert (CurveWagers.on(MUS).after(np.ones(50), np.ones(50), bets).log_wealth == 0).all()


def shown(scores: tuple, past: tuple, mus: np.ndarray) -> float:
    """The μ that all looks together refute."""
    wagers, first = CurveWagers.on(mus), 0
    for end in block_ends(len(scores[0])):
        seen = [np.concatenate([p, s[:first]]) for p, s in zip(past, scores)]
        wagers = wagers.after(scores[0][first:end], scores[1][first:end], CurveBets.best(mus, *seen))
        first = end
    return wagers.refuted(0.05)


@pytest.mark.parametrize("after", [np.sign, lambda x: np.clip(x, -0.5, 0.1), np.floor], ids=["sign", "clamp", "round"])
def test_whatever_is_done_to_gaussian_noise_shows_no_more_than_its_shift(after):
    """A bound is the highest of all looks. The steps make scores narrower than the noise was."""
    runs, mus = 60, np.linspace(0, 3, 61)
    made = [[[after(part - 0.5) for part in normal(seed, n, 1.0)] for n in (300, 50)] for seed in range(runs)]
    limits = np.array([shown(scores, past, mus) for scores, past in made])
    assert binom.sf((limits > 1).sum() - 1, runs, 0.05) > 0.01
    assert limits.mean() > 0.4


def test_a_claim_that_is_off_by_two_falls_in_few_draws():
    """ε = 2 is μ = .502; the truth is 4, μ = .925. Counts at one threshold, with a share of the risk, took 328."""
    refuted = [shown(normal(s, 200, 0.925), normal(100 + s, 100, 0.925), np.array([0.502])) for s in range(40)]
    assert np.mean(refuted) > 0.5 * 0.502
