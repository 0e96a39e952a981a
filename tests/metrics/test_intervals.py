"""Confidence intervals against scipy, published values and their promised coverage."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.metrics.intervals import (
    bootstrap_interval,
    clopper_pearson_interval,
    of_the_best_or_half,
    share_by_luck,
    share_p_value,
)
from scipy.stats import binom, binomtest


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (17, 200)])
def test_clopper_pearson_is_scipys(hits, n):
    expected = binomtest(hits, n).proportion_ci(confidence_level=0.95, method="exact")
    assert clopper_pearson_interval(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.93])
def test_clopper_pearson_covers_at_least_as_often_as_promised(p):
    n = 30
    intervals = np.array([clopper_pearson_interval(k, n, 0.9) for k in range(n + 1)])
    inside = (intervals[:, 0] <= p) & (p <= intervals[:, 1])
    assert binom.pmf(np.arange(n + 1), n, p)[inside].sum() >= 0.9


@pytest.mark.parametrize(("hits", "n", "control"), [(1, 10, 0.01), (3, 40, 0.04), (17, 200, 0.05), (10, 10, 0.9)])
def test_share_p_value_is_where_clopper_pearson_leaves_the_control(hits, n, control):
    p = share_p_value(hits, n, control)
    assert p == pytest.approx(2 * binomtest(hits, n, control, alternative="greater").pvalue)
    if p < 1:
        above, below = (clopper_pearson_interval(hits, n, 1 - p * by)[0] for by in (1.001, 0.999))
        assert above > control > below


def test_share_p_value_at_its_ends():
    assert share_p_value(0, 10, 0.0) == share_p_value(10, 10, 1.0) == share_p_value(1, 10, 0.5) == 1
    assert share_p_value(1, 10, 0.0) == 0


def test_several_p_values_together_are_seldom_small_by_luck_however_they_depend_on_each_other():
    """Independent, all the same, and all as different as two can be: at most 5 % below .05."""
    rng, runs = np.random.default_rng(3), 4000
    for k in (2, 5, 20):
        u = rng.random((runs, k))
        same, opposite = np.repeat(u[:, :1], k, axis=1), np.where(np.arange(k) % 2, u[:, :1], 1 - u[:, :1])
        for p_values in (u, same, opposite):
            small = np.mean([of_the_best_or_half(list(row), together=t) <= 0.05 for row, t in zip(p_values, u[:, -1])])
            assert small <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5


@pytest.mark.parametrize("times", [1.0, 2.0])
@pytest.mark.parametrize(("n", "chance"), [(8, 0.1), (20, 0.045), (70, 0.1)])
def test_hits_of_a_line_up_that_is_easier_than_chance_says_are_seldom_a_leak(n, chance, times):
    """The attack and three controls that know nothing hit alike, twice as often as chance says or as it does."""
    rng, runs, alarms = np.random.default_rng(4), 1500, 0
    for hits, *controls in rng.binomial(n, times * chance, (runs, 4)):
        alarms += share_p_value(int(hits), n, share_by_luck(chance, [int(c) for c in controls], n)) <= 0.025
    assert alarms / runs <= (0.025 if times == 1 else 0.07) + 3 * (0.025 / runs) ** 0.5


def test_bootstrap_agrees_with_the_normal_interval_of_many_values():
    values = np.random.default_rng(1).normal(3, 2, size=400)
    low, high = bootstrap_interval(values, resamples=4000)
    half = 1.96 * values.std(ddof=1) / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_bootstrap_is_deterministic_and_seeded():
    values = np.arange(20.0)
    assert (
        bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)
    )
    assert bootstrap_interval([1.0]) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: clopper_pearson_interval(3, 2),
        lambda: clopper_pearson_interval(0, 0),
        lambda: bootstrap_interval([]),
        lambda: bootstrap_interval([1.0, float("nan")]),
        lambda: clopper_pearson_interval(1, 2, 95),
        lambda: share_p_value(3, 2, 0.1),
        lambda: share_p_value(1, 2, 1.1),
        lambda: of_the_best_or_half([]),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError):
        call()
