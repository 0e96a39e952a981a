"""The demonstrated ε: golden values from others' code and papers, slow twins, coverage where the truth is known."""

from __future__ import annotations

import re
from functools import partial
from math import exp, inf, log

import dp_accounting
import numpy as np
import pytest
from dpfl_audit.audit.two_worlds.estimators import (
    Guesses,
    LowerBound,
    clopper_pearson,
    gaussian_curve,
    gdp,
    one_run,
    one_run_fdp,
    violation,
)
from dpfl_audit.audit.two_worlds.estimators.bound import GAUSSIAN
from dpfl_audit.audit.two_worlds.estimators.clopper_pearson import error_limits, upper_limit
from dpfl_audit.audit.two_worlds.estimators.fdp import curve_refuted, fdp_mu
from dpfl_audit.audit.two_worlds.estimators.finding import VIOLATED_IF
from dpfl_audit.audit.two_worlds.estimators.gdp import mu_epsilon, mu_limit
from dpfl_audit.audit.two_worlds.estimators.one_run import one_run_epsilon, one_run_p_value, right_guesses
from scipy.stats import binom, norm

DELTA = 1e-5
BY_THRESHOLD = (clopper_pearson, gdp)
BY_GUESSES = (one_run, one_run_fdp)
AT_A_HALF = (partial(clopper_pearson, threshold=0.5), partial(gdp, threshold=0.5), *BY_GUESSES)


def quantiles(n: int, shift: float = 0.0) -> np.ndarray:
    """n scores spread exactly as N(shift, 1)."""
    return norm.ppf((np.arange(n) + 0.5) / n) + shift


def hull(scores_in: np.ndarray, scores_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives at the corners of the ROC curve's concave hull, ends included (Andrew's chain)."""
    thresholds = np.append(np.union1d(scores_in, scores_out), inf)
    fn, tn = np.searchsorted(np.sort(scores_in), thresholds), np.searchsorted(np.sort(scores_out), thresholds)
    kept: list[int] = []
    for k in range(len(thresholds)):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (fn[b] - fn[a]) * (tn[k] - tn[b]) < (tn[b] - tn[a]) * (fn[k] - fn[b]):
                break
            kept.pop()
        kept.append(k)
    return len(scores_in) - fn[kept], len(scores_out) - tn[kept]


# --- golden values ---------------------------------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "method, shift, expected",
    [
        (one_run, 1, 1.13346),
        (one_run, 2, 2.311945),
        (one_run, 4, 4.395568),
        (one_run_fdp, 1, 2.164749),
        (one_run_fdp, 2, 4.7218075),
        (one_run_fdp, 4, 9.133752),
    ],
)
def test_one_run_gives_the_values_of_jax_privacy(method, shift, expected):
    """jax_privacy's tests/auditing_test.py: 10,000 + 10,000 normal quantiles, δ = 1e-6, α = .05; hull thresholds."""
    scores_in, scores_out = quantiles(10_000, shift), quantiles(10_000)
    # +inf guesses nothing: a wasted share.
    rules = [Guesses(max(int(count), 1)) for count in sum(hull(scores_in, scores_out))]
    bound = method(scores_in, scores_out, delta=1e-6, guesses=rules)
    assert bound.epsilon == pytest.approx(expected, rel=1e-5)
    assert bound.epsilon < mu_epsilon(shift, 1e-6)


@pytest.mark.parametrize("m, r, v, delta, printed", [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)])
def test_one_run_gives_the_values_printed_in_its_paper(m, r, v, delta, printed):
    """arXiv:2305.08846, appendix D and section 7 (one unit of the last digit: the paper cuts the second one off)."""
    assert one_run_epsilon(m, r, v, delta, 0.05) == pytest.approx(printed, abs=1e-3)


@pytest.mark.parametrize(
    "m, all_guessed, half_guessed, pearson, gaussian",
    [
        (50, 2.78, 2.06, 1.84, 11.2),
        (100, 3.49, 2.78, 2.57, 16.2),
        (1000, 5.78, 5.09, 4.91, 32.0),
        (10_000, 7.83, 7.14, 7.21, 46.6),
    ],
)
def test_ceilings(m, all_guessed, half_guessed, pearson, gaussian):
    n = m // 2
    perfect = np.ones(n), np.zeros(n)
    guesses = Guesses(n - n // 2, n // 2), Guesses(n, n)
    half, whole = (one_run(*perfect, delta=DELTA, guesses=each).ceiling for each in guesses)
    assert (round(whole, 2), round(half, 2)) == (all_guessed, half_guessed)
    assert round(clopper_pearson(*perfect, delta=DELTA, threshold=0.5).ceiling, 2) == pearson
    by_curve = gdp(*perfect, delta=DELTA, threshold=0.5).ceiling
    assert round(by_curve, 1) == gaussian
    assert whole < one_run_fdp(*perfect, delta=DELTA, guesses=Guesses(n, n)).ceiling < by_curve


@pytest.mark.parametrize("n_in, n_out, expected", [(50, 100_000, 10.1), (100, 10_000, 7.9), (100, 100_000, 10.2)])
def test_free_nulls_raise_the_ceiling(n_in, n_out, expected):
    bound = clopper_pearson(np.ones(n_in), np.zeros(n_out), delta=DELTA, threshold=0.5)
    assert round(bound.ceiling, 1) == expected


def test_clopper_pearson_by_hand():
    """20 + 20 canaries without an error at δ = 0: each rate is at most 1 - .025^(1/20)."""
    limit = 1 - 0.025 ** (1 / 20)
    bound = clopper_pearson(np.ones(20), np.zeros(20), delta=0, threshold=0.5)
    assert bound.epsilon == pytest.approx(log((1 - limit) / limit)) == bound.ceiling
    assert bound.counts == {"tp": 20, "fp": 0, "fn": 0, "tn": 20}


def test_perfect_guesses_by_hand():
    """r right guesses of r at δ = 0: q^r = α."""
    q = 0.05 ** (1 / 40)
    assert one_run_epsilon(100, 40, 40, 0.0, 0.05) == pytest.approx(log(q / (1 - q)))


# --- slow twins ------------------------------------------------------------------------------------------------------


@pytest.mark.few(6)
@pytest.mark.parametrize("m, r", [(10, 1), (10, 10), (100, 37), (1000, 500), (1000, 1000)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
def test_p_value_is_the_papers_sum(m, r, epsilon, delta):
    q = 1 / (1 + exp(-epsilon))
    for v in {0, 1, r // 2, r - 1, r}:
        failures, total = 0.0, 0.0
        for i in range(1, v + 1):
            total += binom.pmf(v - i, r, q)
            failures = max(failures, total / i)
        slow = min(binom.sf(v - 1, r, q) + failures * delta * 2 * m, 1.0)
        assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(slow, rel=1e-9, abs=1e-12)


def test_the_p_value_grows_with_epsilon():
    """Otherwise the largest refuted ε would not be the edge of the refuted ones."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        m = int(rng.integers(1, 400))
        r = int(rng.integers(1, m + 1))
        v, delta = int(rng.integers(0, r + 1)), 10.0 ** rng.uniform(-7, -1)
        p = [one_run_p_value(m, r, v, epsilon, delta) for epsilon in np.linspace(0, 8, 40)]
        assert (np.diff(p) > -1e-12).all(), (m, r, v, delta)


@pytest.mark.parametrize("m, r, v", [(100, 100, 100), (100, 40, 31), (1000, 500, 400), (1000, 1000, 520)])
def test_fdp_is_the_papers_recursion(m, r, v):
    def slow(mu: float) -> bool:
        right, wrong = 0.05 * v / m, 0.05 * (r - v) / m
        for i in range(v - 1, -1, -1):
            grown = max(wrong, norm.cdf(norm.ppf(min(right, 1.0)) - mu))
            right, wrong = right + i / (r - i) * (grown - wrong), grown
        return right + wrong > r / m

    mu = fdp_mu(m, r, v, 0.05)
    assert not slow(mu + 1e-5)
    assert mu == 0 or slow(mu)


def test_right_guesses_count_one_by_one():
    rng = np.random.default_rng(1)
    for _ in range(50):
        scores, member = rng.normal(size=30), rng.random(30) < 0.5
        rule = Guesses(int(rng.integers(1, 16)), int(rng.integers(0, 15)))
        order = np.argsort(-scores)
        slow = member[order[: rule.members]].sum() + (~member[order[30 - rule.non_members :]]).sum()
        assert right_guesses(scores[member], scores[~member], [rule])[0] == slow


def test_a_score_at_the_threshold_is_an_alarm_in_either_world():
    """Half of either world's 100 scores are exactly at the threshold: 50 alarms, 50 misses, and nothing is shown.

    Each limit is Clopper and Pearson's of 50 in 100 at 2.5 %, .60168 (published tables).
    """
    scores = np.repeat([0.0, 1.0], 50)
    assert error_limits(scores, scores, 1.0, 0.05) == pytest.approx((0.60168, 0.60168), abs=1e-5)
    bound = clopper_pearson(scores, scores, delta=DELTA, threshold=1.0)
    assert bound.counts == {"tp": 50, "fp": 50, "fn": 50, "tn": 50} and bound.epsilon == 0


def test_upper_limit_fails_as_often_as_it_says():
    """P[Binomial(n, limit) ≤ k] = α, and 1 where every trial was an error."""
    k = np.array([0, 3, 99, 100])
    limits = upper_limit(k, 100, 0.025)
    np.testing.assert_allclose(binom.cdf(k[:3], 100, limits[:3]), 0.025, rtol=1e-9)
    assert limits[3] == 1


# --- validity and power, where the truth is known ---


def draws(shift: float, runs: int = 200, m: int = 300):
    """Scores of `runs` audits of one Gaussian release, canaries inserted by fair coins."""
    rng = np.random.default_rng(7)
    for _ in range(runs):
        inserted = rng.random(m) < 0.5
        scores = rng.normal(size=m) + shift * inserted
        yield scores[inserted], scores[~inserted]


def exceeds_five_percent(bounds: list[float], truth: float) -> bool:
    high = sum(epsilon > truth for epsilon in bounds)
    return bool(binom.sf(high - 1, len(bounds), 0.05) <= 0.01)


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("method", BY_THRESHOLD)
def test_bounds_by_threshold_hold(method, shift):
    bounds = [method(a, b, delta=DELTA, threshold=1.0).epsilon for a, b in draws(shift)]
    assert not exceeds_five_percent(bounds, mu_epsilon(shift, DELTA))
    assert shift == 0 or np.mean(bounds) > 0.05 * mu_epsilon(shift, DELTA)


@pytest.mark.few(5)
@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("guesses", [Guesses(150, 150), Guesses(20, 0), None])
@pytest.mark.parametrize("method", BY_GUESSES)
def test_bounds_by_guesses_hold(method, guesses, shift):
    bounds = [method(a, b, delta=DELTA, guesses=guesses).epsilon for a, b in draws(shift)]
    assert not exceeds_five_percent(bounds, mu_epsilon(shift, DELTA))
    assert shift == 0 or np.mean(bounds) > 0.1 * mu_epsilon(shift, DELTA)


def test_guesses_are_tight_for_randomised_response():
    """Each bit told truly with probability q, all guessed: the pure bound fails in close to 5 % of runs, no more."""
    q, m = exp(1) / (1 + exp(1)), 500
    counts = np.random.default_rng(3).binomial(m, q, size=2000)
    bounds = [one_run_epsilon(m, m, int(v), 0.0, 0.05) for v in counts]
    assert not exceeds_five_percent(bounds, 1.0)
    assert np.mean(np.array(bounds) > 1.0) > 0.03 and np.mean(bounds) > 0.8


def test_the_harness_sees_an_uncorrected_sweep():
    """The best of all numbers of guesses, each at the full 5 %: what the tests above say of an invalid estimator."""

    def sweep(a: np.ndarray, b: np.ndarray) -> float:
        rules = [Guesses(k, j) for k in (0, 2, 5, 10, 20, 50, 100) for j in (0, 2, 5, 10, 20, 50, 100) if k + j]
        counts = right_guesses(a, b, rules)
        return max(one_run_epsilon(len(a) + len(b), rule.total, int(v), DELTA, 0.05) for rule, v in zip(rules, counts))

    assert exceeds_five_percent([sweep(a, b) for a, b in draws(0.0)], 0.0)


# --- properties ---


@pytest.mark.parametrize("method", BY_THRESHOLD + BY_GUESSES)
def test_more_leak_and_less_confidence_show_more(method):
    """And nothing is shown by an attack that is wrong more often than right: the sign is kept."""
    chosen = {"threshold": 1.0} if method in BY_THRESHOLD else {"guesses": Guesses(100, 100)}
    out = quantiles(500)
    bounds = [method(quantiles(500, shift), out, delta=DELTA, **chosen).epsilon for shift in (-2, -1, 0, 0.5, 1, 2, 3)]
    assert bounds[:3] == [0, 0, 0] and (np.diff(bounds[2:]) > 0).all()
    sure, unsure = (
        method(quantiles(500, 1.0), out, delta=DELTA, confidence=level, **chosen).epsilon for level in (0.99, 0.9)
    )
    assert sure < unsure
    assert (
        method(quantiles(500, 1.0), out, delta=1e-2, **chosen).epsilon
        < method(quantiles(500, 1.0), out, delta=1e-6, **chosen).epsilon
    )


@pytest.mark.parametrize("method", BY_THRESHOLD + BY_GUESSES)
@pytest.mark.parametrize("n", [20, 200])
def test_a_perfect_attack_reaches_the_ceiling_and_no_attack_exceeds_it(method, n):
    chosen = {"threshold": 0.5} if method in BY_THRESHOLD else {"guesses": Guesses(n, n)}
    bound = method(np.ones(n), np.zeros(n), delta=DELTA, **chosen)
    assert bound.epsilon == bound.ceiling
    for shift in (0.5, 2.0):
        other = method(quantiles(n, shift), quantiles(n), delta=DELTA, **chosen)
        assert other.epsilon < other.ceiling == bound.ceiling


def test_who_is_surely_left_out_counts_as_who_is_surely_in():
    """Sure non-members: every OUT score below the threshold, half the IN ones above."""
    members = clopper_pearson(np.repeat([0.0, 1.0], 500), np.zeros(1000), delta=0, threshold=0.5)
    others = clopper_pearson(np.ones(1000), np.repeat([0.0, 1.0], 500), delta=0, threshold=0.5)
    assert members.epsilon == pytest.approx(others.epsilon) and members.epsilon > 3


def test_pure_dp():
    """δ = 0 has bounds where nothing Gaussian is assumed, and none where it is."""
    for method in AT_A_HALF[::2]:
        assert (
            method(quantiles(200, 2.0), quantiles(200), delta=0).epsilon
            > method(quantiles(200, 2.0), quantiles(200), delta=1e-3).epsilon
            > 0
        )
    for method in AT_A_HALF[1::2]:
        with pytest.raises(ValueError, match="delta must be above 0"):
            method([1.0], [0.0], delta=0)


@pytest.mark.parametrize("method", AT_A_HALF)
def test_equal_scores_show_nothing(method):
    assert method(np.zeros(50), np.zeros(50), delta=DELTA).epsilon == 0


def test_ties_are_not_broken_by_membership():
    """Ten equal scores, five of members: five guesses may all be wrong."""
    rule = Guesses(5, 5)
    assert right_guesses(np.zeros(5), np.zeros(5), [rule])[0] == 0
    assert right_guesses(
        np.array([2.0, 1.0, 1.0]), np.array([1.0, 0.0]), [Guesses(2), Guesses(3), Guesses(0, 2)]
    ).tolist() == [1, 2, 1]


@pytest.mark.parametrize("method", AT_A_HALF)
@pytest.mark.parametrize(
    "scores_in, scores_out, reason",
    [
        ([], [1.0], "scores_in must be a vector of at least one score"),
        ([1.0], [], "scores_out must be a vector of at least one score"),
        ([1.0, np.nan], [1.0], "scores_in must be numbers, got 1 NaN among 2"),
        ([[1.0]], [1.0], r"scores_in must be .* got shape \(1, 1\)"),
    ],
)
def test_bad_scores_are_refused(method, scores_in, scores_out, reason):
    with pytest.raises(ValueError, match=reason):
        method(scores_in, scores_out, delta=DELTA)


@pytest.mark.parametrize("method", AT_A_HALF)
def test_bad_levels_are_refused(method):
    for level in (
        {"delta": -0.1},
        {"delta": 1.0},
        {"delta": 0.1, "confidence": 0.5},
        {"delta": 0.1, "confidence": 1.0},
    ):
        with pytest.raises(ValueError, match="must be in"):
            method([1.0, 2.0], [0.0, 1.0], **level)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Guesses(0, 0),
        lambda: Guesses(-1, 2),
        lambda: one_run([1.0], [0.0], delta=0.1, guesses=Guesses(3)),
        lambda: one_run([1.0], [0.0], delta=0.1, guesses=[]),
        lambda: one_run_p_value(10, 5, 6, 1.0, 0.0),
        lambda: curve_refuted(gaussian_curve(1.0), 10, 0, 0, 0.05),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"^[^.]*(\.\d[^.]*)*$"):  # one sentence
        make()


# --- the Gaussian estimate ---


def test_mu_is_exact_at_true_rates_and_signed():
    assert mu_limit(norm.cdf(0.3 - 1.7), norm.sf(0.3)) == pytest.approx(1.7)
    assert mu_limit(norm.cdf(0.3 + 1.7), norm.sf(0.3)) == pytest.approx(-1.7)
    assert (mu_limit(1.0, 0.1), mu_limit(0.1, 1.0)) == (-inf, -inf)


@pytest.mark.parametrize("mu, delta", [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-6)])
def test_epsilon_of_mu_is_dp_accountings(mu, delta):
    assert mu_epsilon(mu, delta) == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, delta), rel=1e-6)


def test_gdp_nears_the_truth_with_many_scores():
    bound = gdp(quantiles(200_000, 1.0), quantiles(200_000), delta=DELTA, threshold=0.5)
    assert 0.97 * mu_epsilon(1.0, DELTA) < bound.epsilon < mu_epsilon(1.0, DELTA)


# --- findings ---


@pytest.mark.parametrize(
    "epsilon, top, claimed, level, start",
    [
        (
            3.0,
            5.0,
            2.0,
            "violated",
            "claim violated: at least ε = 3 was demonstrated with 0.95 confidence, the claim is ε = 2",
        ),
        (1.0, 5.0, 2.0, "consistent", "consistent with the claim: ε = 1 was demonstrated"),
        (1.0, 2.0, 2.0, "nothing shown", "nothing shown: with this many trials even a perfect attack shows at most 2"),
        (1.0, 2.0, inf, "consistent", "consistent with the claim"),
    ],
)
def test_findings(epsilon, top, claimed, level, start):
    finding = violation(LowerBound(epsilon, DELTA, 0.95, "clopper-pearson", {}, top), claimed, DELTA)
    assert finding.level == level and finding.sentence.startswith(start)


def test_findings_repeat_the_assumption():
    gaussian = gdp(quantiles(500, 2.0), quantiles(500), delta=DELTA, threshold=1.0)
    found = violation(gaussian, 1.0, DELTA)
    assert found.level == VIOLATED_IF and GAUSSIAN in found.sentence
    kept = violation(gaussian, 30.0, DELTA)
    assert kept.level == "consistent" and GAUSSIAN in kept.sentence
    with pytest.raises(ValueError, match="the same δ"):
        violation(gaussian, 1.0, 1e-6)
    with pytest.raises(ValueError, match="must be ≥ 0"):
        violation(gaussian, -1.0, DELTA)


def test_a_bound_reads_as_a_sentence():
    said = str(gdp(np.ones(50), np.zeros(50), delta=DELTA, threshold=0.5))
    assert re.findall(r"[\d.e-]*\d", said) == ["16.2", "1e-05", "0.95", "16.3"] and GAUSSIAN in said
