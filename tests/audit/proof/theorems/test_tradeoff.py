"""What no attack can exceed: against the most powerful test there is, and against real guesses."""

from __future__ import annotations

from math import exp, inf, log

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.composition import epsilon
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.tradeoff import gaussian_ceiling, success_ceiling
from scipy.stats import norm
from tiers import quick

KAPPAS = (0.001, 0.01, 0.1, 0.5, 0.9)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_best_test_of_two_gaussians_reaches_the_ceiling_and_points_of_its_curve_lie_above(mu, kappa):
    """Neyman and Pearson: the largest P(E) at Q(E) = κ is that of E = {y > Φ⁻¹(1 − κ)}."""
    best = norm.sf(norm.isf(kappa) - mu)
    draws = ((Draw("gaussian", mu), 1),)
    assert gaussian_ceiling(mu, kappa) == pytest.approx(best, rel=1e-9)
    assert best <= success_ceiling(lambda delta: epsilon(draws, delta)[0], kappa) <= min(1.0, 3 * best + 0.05)


@pytest.mark.parametrize("rate", quick([0.1, 0.5], 1))
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.full
def test_a_sampled_gaussian_stays_below(rate, kappa):
    """P = (1 − q)N(0, 1) + qN(2, 1) against Q = N(0, 1): the best test is a threshold, as the ratio rises with y."""
    draws = ((Draw("gaussian", 2.0, "poisson", rate * 100, 100, 2.0), 1),)
    cut = norm.isf(kappa)
    best = (1 - rate) * kappa + rate * norm.sf(cut - 2)
    ceiling = success_ceiling(lambda delta: epsilon(draws, delta)[0], kappa)
    assert best <= ceiling < 1 and ceiling < gaussian_ceiling(2.0, kappa) + 0.05


@pytest.mark.parametrize("epsilon_", [0.5, 2.0])
@pytest.mark.parametrize("kappa", KAPPAS)
def test_randomised_response_reaches_the_ceiling_of_pure_epsilon(epsilon_, kappa):
    """A bit kept with probability e^ε/(1 + e^ε); the best randomised test at FPR κ lies on two lines."""
    keep = exp(epsilon_) / (1 + exp(epsilon_))
    best = kappa * keep / (1 - keep) if kappa <= 1 - keep else keep + (kappa - (1 - keep)) / keep * (1 - keep)
    assert success_ceiling(lambda delta: epsilon_, kappa) == pytest.approx(best, rel=1e-9)


def test_guessing_one_of_many_stays_below():
    """One of 20 candidates, ±μ apart in 20 directions, is seen behind Gaussian noise: the best guess of any output made
    without it is right 1 time in 20; the best of the output made with it is right as often as the ceiling at most.
    """
    rng, mu, trials = np.random.default_rng(0), 1.0, 20_000
    truth = rng.integers(0, 20, trials)
    seen = rng.normal(size=(trials, 20))
    seen[np.arange(trials), truth] += mu
    share = float((seen.argmax(1) == truth).mean())
    assert 0.1 < share < gaussian_ceiling(mu, 1 / 20) + 4 * np.sqrt(0.25 / trials)


def test_the_ends():
    assert gaussian_ceiling(inf, 0.1) == 1 and gaussian_ceiling(5.0, 0.0) == 0
    assert success_ceiling(lambda delta: inf, 0.1) == 1 and success_ceiling(lambda delta: 0.0, 0.1) == pytest.approx(
        0.1
    )
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="kappa is"):
            gaussian_ceiling(1.0, bad)
        with pytest.raises(ValueError, match="kappa is"):
            success_ceiling(lambda delta: log(2), bad)
