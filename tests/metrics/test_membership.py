"""ROC, area and rates against closed forms, slow references and their promised coverage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dpfl_audit.metrics.membership import auc, auc_p_value, balanced_accuracy, exceedance, roc, tpr_at_fpr
from scipy.stats import betabinom, binomtest, mannwhitneyu, norm


def gaussians(n: int, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """The n-quantiles of N(mu, 1) and N(0, 1): scores without sampling error."""
    quantiles = norm.ppf((np.arange(n) + 0.5) / n)
    return quantiles + mu, quantiles


@pytest.mark.parametrize("mu", [0.0, 0.5, 1.0, 2.0])
def test_gaussian_scores_give_the_analytic_values(mu):
    members, others = gaussians(10_000, mu)
    assert auc(members, others)[0] == pytest.approx(norm.cdf(mu / np.sqrt(2)), abs=1e-4)
    assert balanced_accuracy(members, others) == pytest.approx(norm.cdf(mu / 2), abs=1e-3)
    for level in (0.1, 0.01, 0.001):
        rate = tpr_at_fpr(members, others, (level,))[level]
        assert rate.tpr == pytest.approx(norm.sf(norm.isf(level) - mu), abs=5e-3)
        assert rate.fpr == pytest.approx(level) and rate.tpr_interval[0] <= rate.tpr <= rate.tpr_interval[1]


@pytest.mark.parametrize("seed", range(3))
def test_against_pair_counting_with_ties(seed):
    rng = np.random.default_rng(seed)
    members, others = rng.integers(0, 6, 15).astype(float), rng.integers(0, 5, 22).astype(float)
    wins = np.sign(members[:, None] - others[None]) / 2 + 0.5
    assert auc(members, others)[0] == pytest.approx(wins.mean())
    fpr, tpr, thresholds = roc(members, others)
    assert np.trapezoid(tpr, fpr) == pytest.approx(wins.mean())
    for f, t, threshold in zip(fpr, tpr, thresholds):
        assert (f, t) == (np.mean(others >= threshold), np.mean(members >= threshold))
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert balanced_accuracy(members, others) == pytest.approx(max((t + 1 - f) / 2 for f, t in zip(fpr, tpr)))
    for level, rate in tpr_at_fpr(members, others, (0.3, 0.1, 0.0)).items():  # the best point of the curve allowed
        assert rate.tpr == max(t for f, t in zip(fpr, tpr) if f <= level)
        assert rate.fpr <= level


def test_levels_the_non_members_cannot_resolve_are_not_reported():
    rates = tpr_at_fpr(np.ones(5), np.zeros(500))
    assert rates[0.1].tpr == rates[0.01].tpr == 1
    assert rates[0.001] is None and rates[0.0001] is None
    assert rates[0.0].fpr == 0


def test_all_scores_equal_tell_nothing():
    rates = tpr_at_fpr(torch.zeros(100), torch.zeros(100))
    assert all(rate is None or rate.tpr == rate.fpr == 0 for rate in rates.values())
    assert auc(torch.zeros(100), torch.zeros(100))[0] == 0.5
    assert balanced_accuracy(torch.zeros(9), torch.zeros(9)) == 0.5


@pytest.mark.parametrize("mu", [0.0, 1.5, 3.0])
def test_auc_interval_covers_about_as_often_as_promised(mu):
    rng, truth, trials = np.random.default_rng(7), norm.cdf(mu / np.sqrt(2)), 300
    covered = 0
    for _ in range(trials):
        low, high = auc(rng.normal(mu, 1, 40), rng.normal(0, 1, 60))[1]
        covered += low <= truth <= high
    assert covered / trials >= 0.92


def test_auc_interval_has_a_width_at_the_ends():
    assert auc([1.0, 2.0], [0.0, 0.5]) == (1.0, (pytest.approx(0.36, abs=0.1), 1.0))
    area, (low, high) = auc([0.0, 0.5], [1.0, 2.0])
    assert area == low == 0 and 0.5 < high < 0.8


@pytest.mark.parametrize(("n_in", "n_out", "allowed"), [(5, 4, 0), (5, 4, 1), (4, 5, 4), (300, 100, 1), (50, 2000, 20)])
def test_exceedance_is_the_tail_over_a_threshold_whose_rate_is_beta(n_in, n_out, allowed):
    """The true FPR at the (k + 1)-th greatest of n uniforms is Beta(k + 1, n − k); members pass like coins of it."""
    for hits in range(0, n_in + 1, max(1, n_in // 10)):
        assert exceedance(hits, n_in, allowed, n_out) == pytest.approx(
            betabinom.sf(hits - 1, n_in, allowed + 1, n_out - allowed), rel=1e-6, abs=1e-10
        )


@pytest.mark.parametrize("n", [100, 200, 1000])
@pytest.mark.parametrize("digits", [1, 9])
def test_without_a_leak_the_tpr_excludes_its_control_as_rarely_as_promised(n, digits):
    """With coarse scores (ties) as well. Not refuted at 1 % by the exact binomial test."""
    rng, trials = np.random.default_rng(n), 1000
    values = [
        tpr_at_fpr(rng.normal(size=n).round(digits), rng.normal(size=n).round(digits), (0.01,))[0.01].p_value
        for _ in range(trials)
    ]
    for level in (0.05, 0.005):
        assert binomtest(sum(p <= level for p in values), trials, level / 2, alternative="greater").pvalue > 0.01


def test_a_threshold_with_luck_is_no_leak_though_its_interval_lies_above_the_rate():
    """Five members above the second of 100 outsiders: without a leak a tenth of all draws has as many or more."""
    members, others = np.concatenate([np.full(5, 2.5), np.zeros(95)]), np.concatenate([[3.0, 2.0], np.zeros(98)])
    rate = tpr_at_fpr(members, others, (0.01,))[0.01]
    assert (rate.tpr, rate.fpr) == (0.05, 0.01) and rate.tpr_interval[0] > 0.016
    rng = np.random.default_rng(0)
    lucky = [np.sum(rng.random(100) > np.sort(rng.random(100))[-2]) >= 5 for _ in range(4000)]
    assert rate.p_value == pytest.approx(2 * np.mean(lucky), abs=0.03) and rate.p_value > 0.15


@pytest.mark.parametrize("seed", range(5))
def test_auc_p_value_is_where_its_interval_leaves_the_control(seed):
    rng = np.random.default_rng(seed)
    members, others = rng.normal(0.4, 1, 40), rng.normal(0, 1, 60)
    for control in (0.5, 0.52):
        p = auc_p_value(auc(members, others)[0], 40, 60, control)
        assert 0 < p < 1
        assert auc(members, others, 1 - p * 1.001)[1][0] > control > auc(members, others, 1 - p * 0.999)[1][0]
    one_sided = mannwhitneyu(members, others, alternative="greater", method="asymptotic", use_continuity=False).pvalue
    assert auc_p_value(auc(members, others)[0], 40, 60) == pytest.approx(min(1, 2 * one_sided))


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")], [[1.0]]])
def test_bad_scores_are_refused(bad):
    with pytest.raises(ValueError, match="non-members"):
        auc([1.0], bad)
