"""The limit on μ from means and spreads: noncentral t turned around, right in 95 % of audits and close to the truth."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.audit.two_worlds.estimators.gdp import mu_epsilon
from dpfl_audit.audit.two_worlds.estimators.mean_shift import _least_noncentrality, mean_shift
from scipy.stats import binomtest, nct
from tiers import quick

DELTA = 1e-5


@pytest.mark.parametrize(("found", "freedom", "alpha"), [(5, 20, 0.05), (2, 9, 0.001), (15, 499, 0.05), (-1, 30, 0.05)])
def test_the_noncentrality_is_that_of_the_distribution(found, freedom, alpha):
    assert nct.sf(found, freedom, _least_noncentrality(found, freedom, alpha)) == pytest.approx(alpha, rel=1e-6)


@pytest.mark.full
def test_one_run_of_a_thousand_canaries_shows_85_per_cent_of_the_truth():
    rng, truth = np.random.default_rng(0), mu_epsilon(1.0, DELTA)
    found = [mu_epsilon(mean_shift(rng.normal(1, 1, 500), rng.normal(0, 1, 500), 0.05, 0.5), DELTA) for _ in range(400)]
    assert truth == pytest.approx(4.377, abs=1e-3) and np.mean(found) >= 0.85 * truth
    assert binomtest(int((np.array(found) > truth).sum()), 400, 0.05, "greater").pvalue > 0.01


@pytest.mark.parametrize(
    ("n", "mu", "spread"), quick([(10, 0.0, 1.0), (20, 3.0, 1.0), (20, 1.0, 3.0), (50, 1.0, 0.7)], 0, 2)
)
def test_it_is_too_high_in_5_per_cent_at_most_whatever_the_canary_does_to_the_spread(n, mu, spread):
    rng = np.random.default_rng(1)
    found = [mean_shift(rng.normal(mu, spread, n), rng.normal(0, 1, n), 0.05, mu / 2) for _ in range(300)]
    assert binomtest(int((np.array(found) > mu).sum()), 300, 0.05, "greater").pvalue > 0.01
