"""The best of many trainings: the price is the library's where candidates are alike, and never below the truth."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from dpfl_audit.audit.proof.theorems.accountants import ORDERS, renyi
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proof.theorems.selection import selected_renyi, selection_epsilon
from scipy.optimize import brentq
from scipy.stats import norm

DELTA = 1e-5


@pytest.mark.parametrize(("multiplier", "mean"), [(1.0, 24), (4.0, 5), (0.5, 100)])
def test_candidates_that_are_alike_cost_what_dp_accounting_says(multiplier: float, mean: int) -> None:
    accountant = RdpAccountant(ORDERS)
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(multiplier), mean, np.inf))
    curve = renyi(((Draw("gaussian", 1 / multiplier), 1),))
    assert selection_epsilon(curve, mean, 0, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-6)


@pytest.mark.parametrize(("mu", "mean"), [(0.5, 4.0), (1.0, 24.0), (2.0, 24.0)])
def test_the_price_is_above_what_the_best_of_a_poisson_number_of_gaussians_tells(mu: float, mean: float) -> None:
    """Exactly: the best has the distribution function exp(−mean · (1 − Φ)); in the other world all are shifted by μ."""
    x = np.linspace(-12, 14, 200_001)

    def density(shift: float) -> np.ndarray:
        return np.asarray(mean * norm.pdf(x - shift) * np.exp(-mean * norm.sf(x - shift)))

    def exact(p: np.ndarray, q: np.ndarray) -> float:
        return float(brentq(lambda e: np.trapezoid(np.maximum(p - exp(e) * q, 0), x) - DELTA, 0, 80))

    there, back = density(mu), density(0.0)
    true = max(exact(there, back), exact(back, there))
    one = gaussian_epsilon(1 / mu, DELTA)
    priced = selection_epsilon(renyi(((Draw("gaussian", mu), 1),)), mean, 0, DELTA)
    assert one < true <= priced


def test_trainings_with_fresh_seeds_cost_on_top_and_less_than_one_is_no_number_of_candidates() -> None:
    curve = renyi(((Draw("gaussian", 1.0), 3),))
    assert selection_epsilon(curve, 24, 3, DELTA) > selection_epsilon(curve, 24, 0, DELTA)
    assert selection_epsilon(np.full_like(curve, np.inf), 24, 0, DELTA) == np.inf
    with pytest.raises(ValueError, match="at least 1"):
        selected_renyi(curve, 0.5)
