"""Confidence intervals against scipy, published values and their promised coverage."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.metrics.intervals import bootstrap_interval, clopper_pearson
from scipy.stats import binom, binomtest


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (17, 200)])
def test_clopper_pearson_is_scipys(hits, n):
    expected = binomtest(hits, n).proportion_ci(confidence_level=0.95, method="exact")
    assert clopper_pearson(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.93])
def test_clopper_pearson_covers_at_least_as_often_as_promised(p):
    n = 30
    intervals = np.array([clopper_pearson(k, n, 0.9) for k in range(n + 1)])
    inside = (intervals[:, 0] <= p) & (p <= intervals[:, 1])
    assert binom.pmf(np.arange(n + 1), n, p)[inside].sum() >= 0.9


def test_bootstrap_agrees_with_the_normal_interval_of_many_values():
    values = np.random.default_rng(1).normal(3, 2, size=400)
    low, high = bootstrap_interval(values, resamples=4000)
    half = 1.96 * values.std(ddof=1) / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_bootstrap_is_deterministic_and_seeded():
    values = np.arange(20.0)
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)
    assert bootstrap_interval([1.0]) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: clopper_pearson(3, 2),
        lambda: clopper_pearson(0, 0),
        lambda: bootstrap_interval([]),
        lambda: bootstrap_interval([1.0, float("nan")]),
        lambda: clopper_pearson(1, 2, 95),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError):
        call()
