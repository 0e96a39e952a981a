"""The papers' formulas: golden numbers from elsewhere, slow references, what each claim is worth by the exact curve."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp.rdp_privacy_accountant import _compute_log_a_int
from dpfl_audit.defenses import claims, ranges
from scipy.integrate import quad
from scipy.stats import norm


def exact_gaussian(multiplier: float, releases: float, delta: float) -> float:
    """The exact ε of unsampled releases (arXiv:1805.06530): a claim's best case with its own Δ."""
    return get_epsilon_gaussian(multiplier / math.sqrt(releases), delta)


# --- THESIS Definition 7


@pytest.mark.parametrize("sigma, releases", [(1.0, 1), (2.0, 20), (8.0, 26)])
def test_thesis_is_the_minimum_over_alpha(sigma, releases):
    alpha = np.linspace(1.0001, 200, 2_000_000)
    slow = (releases * alpha / (2 * sigma**2) + math.log(1e5) / (alpha - 1)).min()
    assert claims.rdp_gaussian(sigma, releases, 1e-5) == pytest.approx(slow, rel=1e-6)
    assert claims.rdp_gaussian(sigma, releases, 1e-5) > exact_gaussian(sigma, releases, 1e-5)


# --- moments accountant


def test_geyer_golden():
    """THESIS table 3.1: (8, 1e-3), 11 rounds of 50 of 100 clients, σ 1.18; (8, 1e-5), 54 of 220 of 1,000, σ 1.43."""
    assert claims.moments_epsilon(0.5, 1.18, 11, 1e-3) == pytest.approx(8.15, abs=5e-3)
    assert claims.moments_epsilon(0.22, 1.43, 54, 1e-5) == pytest.approx(8.05, abs=5e-3)


@pytest.mark.parametrize("rate, sigma", [(0.5, 1.18), (0.01, 8.0), (0.2, 0.7)])
def test_moments_against_integration_and_dp_accounting(rate, sigma):
    log_moments = claims.gaussian._log_moments(rate, sigma, 32)
    for power in (2, 3, 8):

        def moment(x, power=power):
            return ((1 - rate) + rate * math.exp((2 * x - 1) / (2 * sigma**2))) ** power * norm.pdf(x, 0, sigma)

        slow = math.log(quad(moment, -12 * sigma, power + 12 * sigma, limit=200)[0])
        assert log_moments[power - 2] == pytest.approx(slow, rel=1e-6, abs=1e-9)
    assert log_moments[31] == pytest.approx(_compute_log_a_int(rate, sigma, 33), rel=1e-9, abs=1e-13)


def test_moments_without_sampling_are_the_gaussians():
    expected = min((10 * m * (m + 1) / 2 / 9 + math.log(1e5)) / m for m in range(1, 33))
    assert claims.moments_epsilon(1.0, 3.0, 10, 1e-5) == pytest.approx(expected)
    assert claims.moments_epsilon(0.5, 1.0, 0, 1e-5) == 0


def test_dpsgd_lies_between_pld_and_the_moments_accountant():
    pld = PLDAccountant().compose(PoissonSampledDpEvent(0.05, GaussianDpEvent(1.5)), 100).get_epsilon(1e-5)
    rdp = claims.sampled_gaussian_epsilon(0.05, 1.5, 100, 1e-5)
    assert pld < rdp < 1.25 * pld
    assert rdp < claims.moments_epsilon(0.05, 1.5, 100, 1e-5)
    assert claims.sampled_gaussian_epsilon(1.0, 2.0, 4, 1e-5) >= exact_gaussian(2.0, 4, 1e-5)
    assert claims.sampled_gaussian_epsilon(0.1, 2.0, 0, 1e-5) == 0


# --- NbAFL


def test_nbafl_all_clients_is_the_limit_of_some():
    setting = {"epsilon": 5.0, "delta": 0.01, "clip": 1.0, "records": 1000, "exposures": 1, "rounds": 25, "clients": 50}
    assert claims.nbafl_downlink_std(**setting, cohort=50) == claims.nbafl_downlink_std(**setting)


@pytest.mark.parametrize("exposures", [1, 2, 3])
def test_nbafl_the_server_adds_what_the_uploads_noise_lacks_for_all_rounds(exposures):
    """Theorem 1: mean uplink noise, std σ_U/√N, and σ_D together have std cTΔ_D/ε, Δ_D = 2C/(mN), whatever L."""
    setting = {"epsilon": 50.0, "delta": 0.01, "clip": 1.0, "records": 1000, "exposures": exposures}
    uplink, downlink = claims.nbafl_uplink_std(**setting), claims.nbafl_downlink_std(**setting, rounds=25, clients=50)
    needed = math.sqrt(2 * math.log(125)) * 25 * 2 / (1000 * 50) / 50
    assert downlink > 0 and math.hypot(uplink / math.sqrt(50), downlink) == pytest.approx(needed)


def test_nbafl_lemma_5_overspends():
    used, sound = claims.nbafl_round_budgets(5, 25, 50, 20)
    assert (used, sound) == (pytest.approx(0.604, abs=5e-4), pytest.approx(0.441, abs=5e-4))
    # Amplified, it is the round's share again.
    assert math.log(1 + 20 / 50 * math.expm1(sound)) == pytest.approx(5 / 25)
    assert claims.nbafl_round_budgets(50, 25, 50, 20)[0] == math.inf


def test_nbafl_a_cohort_is_of_all_clients():
    setting = {"epsilon": 1.0, "delta": 0.01, "clip": 1.0, "records": 9, "exposures": 1, "rounds": 5, "clients": 10}
    with pytest.raises(ValueError, match="cohort is 11"):
        claims.nbafl_downlink_std(**setting, cohort=11)


# --- geometric


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1 - 1e-9, 1.0, 1 + 1e-9, 1.1])
def test_geometric_series_is_the_sum(ratio):
    assert claims.geometric_series(ratio, 30) == pytest.approx(
        math.fsum(ratio ** (1 - m) for m in range(1, 31)), rel=1e-7
    )


def test_geometric_adjustment():
    printed, true = claims.geometric_tail(0.9, 24, 10)
    assert (printed, true) == (pytest.approx(43.7, abs=0.05), pytest.approx(87.0, abs=0.05))
    assert true == pytest.approx(math.fsum(0.9 ** (1 - j) for j in range(11, 25)))
    assert claims.geometric_tail(1.1, 24, 10)[0] == 14 > claims.geometric_tail(1.1, 24, 10)[1]

    def eq9(bracket):
        return math.sqrt(2 * 0.1 * bracket * math.log(1e3)) / 10

    low, flat, high = (claims.geometric_adjusted_multiplier(10, 1e-3, 24, 10, ratio, 0.1) for ratio in (0.9, 1.0, 1.1))
    assert low == pytest.approx(eq9((0.9**-9 - 0.9 + 0.9**-14) / 0.1))
    assert flat == pytest.approx(eq9(24))
    assert high == pytest.approx(eq9((1.1 - 1.1**-9) / 0.1 + 14))
    assert high > claims.geometric_multiplier(10, 1e-3, 30, 1.1, 0.1)  # for ϑ > 1 the adjustment raises the noise
    with pytest.raises(ValueError, match="at least 1 must remain"):
        claims.geometric_adjusted_multiplier(10, 1e-3, 10, 10, 0.9, 0.1)


# --- component-adaptive


@pytest.mark.parametrize(
    "epsilon, sigma, releases", [(0.5, 26, 7), (2, 26, 300), (8, 10, 208), (8, 1, 3), (30, 0.3, 5)]
)
def test_component_against_all_alphas(epsilon, sigma, releases):
    alphas = [a for a in range(2, 40_000) if a > 1 + math.log(1e5) / epsilon]
    slow = min((a - 1) * (releases * a / (2 * sigma**2) - epsilon) for a in alphas)
    assert claims.component_delta(epsilon, sigma, releases, 1e-5) == pytest.approx(math.exp(slow))
    slow = min(releases * a / (2 * sigma**2) + math.log(1e5) / (a - 1) for a in range(2, 40_000))
    assert claims.component_epsilon(releases, sigma, 1e-5) == pytest.approx(slow)


def test_component_ends():
    assert claims.component_delta(1.0, 5.0, 0, 1e-5) == claims.component_epsilon(0, 5.0, 1e-5) == 0
    assert claims.component_delta(0.1, 0.01, 100, 1e-5) == math.inf and claims.component_rounds(0.1, 0.5, 1e-5) == 0


# --- iteration tuning


@pytest.mark.parametrize("c2", [1.0, math.sqrt(2), 3.5])
def test_iteration_gaussian_claims_the_epsilon_its_noise_was_drawn_for(c2):
    """Whatever constant the paper may mean: the claim inverts the noise at the same c2."""
    std = claims.iteration_gaussian_std(7.0, 1e-4, 5, 6.0, c2=c2)
    assert claims.iteration_gaussian_epsilon(std, 1e-4, 5, 6.0, c2=c2) == pytest.approx(7.0)


def test_iteration_laplace():
    sensitivity = claims.iteration_sensitivity(0.25, 4, 3.0)
    assert sensitivity == pytest.approx(3.0)
    scale = claims.iteration_laplace_scale(5.0, 10, sensitivity)
    assert scale == pytest.approx(6.0)
    assert claims.iteration_laplace_epsilon(scale, 10, sensitivity) == pytest.approx(5.0)


# --- anonymous


def test_anonymous_variance_solves_a_56():
    """3.5 T s₁ α/(m²σ²) + ln(1/δ)/(α − 1) = ε at α = 1 + 2 ln(1/δ)/ε."""
    variance, alpha = claims.anonymous_variance(8, 1e-5, 50, 0.7, 100, 30), 1 + 2 * math.log(1e5) / 8
    spent = 3.5 * 50 * 0.49 * 30 * alpha / (100**2 * variance) + math.log(1e5) / (alpha - 1)
    assert spent == pytest.approx(8)


def test_anonymous_conditions_fail_at_the_papers_settings_and_can_hold():
    for neighbours in (1, 30):
        variance = claims.anonymous_variance(8, 1e-5, 50, 0.7, 100, neighbours)
        failures = claims.anonymous_lemma3_failures(variance, 8, 1e-5, 0.7)
        assert len(failures) == 2 and "0.7" in failures[0]
    assert claims.anonymous_lemma3_failures(16.0, 8, 1e-5, 0.001) == ()
    # By hand at σ² = 16, r = .001: (32/3) ln(1/.017α) + 1 is 15.23 at α = 15.5 and 15.36 at α = 15.3.
    (failure,) = claims.anonymous_lemma3_failures(16.0, 2 * math.log(1e5) / 14.5, 1e-5, 0.001)
    assert "15.23," in failure and "15.5" in failure
    assert claims.anonymous_lemma3_failures(16.0, 2 * math.log(1e5) / 14.3, 1e-5, 0.001) == ()


# --- bad input


def test_theorem_8_reaches_up_to_twice_the_log_of_delta():
    limit = 2 * math.log(1e5)
    assert claims.anonymous_variance(0.99 * limit, 1e-5, 50, 0.7, 100) > 0
    with pytest.raises(ValueError, match="Theorem 8 needs it below"):
        claims.anonymous_variance(limit, 1e-5, 50, 0.7, 100)


@pytest.mark.parametrize(
    ("require", "inside", "outside"),
    [
        (ranges.require_nonnegative, (0.0, 0.5, 1e9), (-1e-9, -0.5, math.inf, math.nan)),
        (ranges.require_probability, (1e-12, 0.5, 0.999), (0.0, 1.0, -0.1, math.nan)),
        (ranges.require_count, (1, 2.0), (0, 1.5, math.inf)),
        (ranges.require_above_zero, (1e-12, math.inf), (0.0, -1.0, math.nan)),
    ],
)
def test_ranges_end_where_they_say(require, inside, outside):
    for value in inside:
        require(x=value)
    for value in outside:
        with pytest.raises(ValueError, match=f"x is {value}"):
            require(x=value)


def test_a_part_may_be_its_whole_and_no_more():
    ranges.require_at_most("cohort", 10, "clients", 10)
    with pytest.raises(ValueError, match="cohort is 11; it must be at most clients = 10"):
        ranges.require_at_most("cohort", 11, "clients", 10)
