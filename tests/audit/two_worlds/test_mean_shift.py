"""The limit on μ from means and spreads: noncentral t turned around, right in 95 % of audits and close to the truth."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.audit.two_worlds.estimators.mean_shift import _least_noncentrality, mean_shift
from scipy.stats import binomtest, nct


@pytest.mark.parametrize(("found", "freedom", "alpha"), [(5, 20, 0.05), (2, 9, 0.001), (15, 499, 0.05), (-1, 30, 0.05)])
def test_the_noncentrality_is_that_of_the_distribution(found, freedom, alpha):
    assert nct.sf(found, freedom, _least_noncentrality(found, freedom, alpha)) == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize(("n", "mu", "spread", "least"), [(20, 3.0, 1.0, 1.8), (20, 1.0, 3.0, 0.1)])
def test_it_is_too_high_in_5_per_cent_at_most_whatever_the_canary_does_to_the_spread(n, mu, spread, least):
    rng = np.random.default_rng(1)
    found = [mean_shift(rng.normal(mu, spread, n), rng.normal(0, 1, n), 0.05, mu / 2) for _ in range(200)]
    assert binomtest(int((np.array(found) > mu).sum()), 200, 0.05, "greater").pvalue > 0.01
    assert np.mean(found) > least  # and it has power
