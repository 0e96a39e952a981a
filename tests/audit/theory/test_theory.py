"""The papers' bounds against hand arithmetic, direct recursions and exact problems: claims checked or refuted."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from dpfl_audit.audit.theory import (
    Recommendation,
    component,
    decentralised,
    fednore,
    geometric,
    iteration,
    nbafl,
    reconstruction,
)
from dpfl_audit.audit.theory.advise import SCHEMES, accepted, advise
from dpfl_audit.audit.theory.bound import Bound, gaussian_delta, geometric_sum, mixed_sum, recommend


def mentions(bound: Bound | Recommendation, words: str) -> bool:
    return any(words in remark for remark in bound.remarks)


# ---------------------------------------------------------------------------------------------------- the small tools


@pytest.mark.parametrize("ratio", [-1.5, -1.0, -0.3, 0.0, 0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 1.1])
@pytest.mark.parametrize("terms", [1, 2, 30])
def test_geometric_sum_is_the_direct_sum(ratio, terms):
    assert geometric_sum(ratio, terms) == pytest.approx(math.fsum(ratio**i for i in range(terms)), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b"), [(0.8, 0.95), (0.95, 0.8), (0.9, 0.9), (-0.4, 1.1), (0.0, 0.0), (0.0, 1.05), (0.5, -0.5)]
)
@pytest.mark.parametrize("terms", [1, 2, 3, 25])
def test_mixed_sum_is_the_direct_sum(a, b, terms):
    direct = math.fsum(a ** (terms - i) * b ** (i - 1) for i in range(1, terms + 1))
    assert mixed_sum(a, b, terms) == pytest.approx(direct, rel=1e-12, abs=1e-12)


def test_sums_overflow_to_infinity():
    assert geometric_sum(1.1, 10**5) == math.inf
    assert mixed_sum(0.5, 1.1, 10**5) == math.inf


def test_recommend_takes_the_first_minimum_skips_nan_and_reports_the_ends():
    values = {1: math.nan, 2: 3.0, 3: 1.0, 4: 1.0, 5: 2.0}
    found = recommend("x", lambda x: Bound(values[int(x)], (f"at {x}",)), list(values), ("note",))
    assert (found.value, found.remarks) == (3, ("note", "at 3"))
    assert len(found.curve) == 5
    assert mentions(recommend("x", lambda x: Bound(x), [1, 2, 3]), "end of the scanned range (1 to 3)")
    assert mentions(recommend("x", lambda x: Bound(2.0), [1, 2, 3]), "the same at every")
    assert math.isnan(recommend("x", lambda x: Bound(math.nan), [1, 2]).value)


# -------------------------------------------------------------------------------------------- geometric noise (GEO)

GEO = dict(A=0.9, Theta=2.0, vartheta=1.05, q=0.1, L=1.0, delta_s=0.5, epsilon=10.0, delta=1e-3, U=100)


def theorem_1(vartheta, M, q, delta_s, epsilon, delta):
    """Eq. 8, with the sum of inverse variances written out."""
    total = sum(vartheta ** (1 - m) for m in range(1, M + 1))
    return delta_s / epsilon * math.sqrt(2 * q * total * math.log(1 / delta))


@pytest.mark.parametrize("vartheta", [0.9, 0.95, 1.0, 1.05, 1.1])
@pytest.mark.parametrize("M", [1, 2, 17, 60])
def test_geo_theorem_3_is_the_recursion_with_the_noise_of_theorem_1(vartheta, M):
    """x_m = A·x_{m−1} + (L/2)·Θ(m), (38)-(41), which fixes the divisor as (ϑ − 1)."""
    sigma = theorem_1(vartheta, M, 0.1, 0.5, 10.0, 1e-3)
    x = 2.0
    for m in range(1, M + 1):
        x = 0.9 * x + 1.0 / 2 * vartheta ** (m - 1) * sigma**2
    assert geometric.convergence(m=M, **GEO | {"vartheta": vartheta}).value == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize(
    ("vartheta", "sigma"), [(0.9, 0.02793), (0.95, 0.01633), (1.0, 0.01073), (1.05, 0.00787), (1.1, 0.00631)]
)
def test_geo_noise_term_holds_the_golden_sigma_of_equation_8(vartheta, sigma):
    """With A = 0 and Θ = 0 only the last round's noise remains: (L/2)ϑ^29σ². U=100, K=10, n=600, C=5, M=30, ε=10."""
    setting = GEO | {"A": 0.0, "Theta": 0.0, "vartheta": vartheta, "delta_s": 2 * 5 / 600}
    last = geometric.convergence(m=30, **setting).value
    assert math.sqrt(2 * last / vartheta**29) == pytest.approx(sigma, abs=5e-6)


def test_geo_printed_divisor_loses_the_noise_at_one_and_turns_it_negative_below():
    flat = geometric.convergence(m=10, reading="printed", **GEO | {"vartheta": 1.0})
    assert flat.value == pytest.approx(0.9**10 * 2.0)
    assert mentions(flat, "0 at ϑ = 1")
    below = geometric.convergence(m=10, reading="printed", **GEO | {"vartheta": 0.95})
    assert below.value < 0.9**10 * 2.0
    assert mentions(below, "negative for ϑ < 1")
    above, fixed = (
        geometric.convergence(m=10, reading=r, **GEO).value - 0.9**10 * 2.0 for r in ("printed", "corrected")
    )
    assert above / fixed == pytest.approx((1.05 - 1) / (100 - 1))


def test_geo_bound_is_tighter_for_weaker_privacy_only_with_the_corrected_divisor():
    """The remark after Corollary 1; the printed form refutes it for ϑ < 1."""

    def at(epsilon, reading):
        return geometric.convergence(m=20, reading=reading, **GEO | {"epsilon": epsilon, "vartheta": 0.95}).value

    assert at(5, "corrected") > at(10, "corrected") > at(math.inf, "corrected") == pytest.approx(0.9**20 * 2.0)
    assert at(5, "printed") < at(10, "printed")


@pytest.mark.parametrize(("epsilon", "misses"), [(6.97, False), (6.99, True), (10.0, True)])
def test_geo_theorem_1_misses_its_claim_beyond_epsilon_6_98(epsilon, misses):
    assert mentions(geometric.convergence(m=5, **GEO | {"epsilon": epsilon}), "misses its own target") is misses
    assert (gaussian_delta(epsilon, epsilon / math.sqrt(2 * math.log(1e3))) > 1e-3) is misses


@pytest.mark.parametrize(("U", "K"), [(5, 1), (5, 2), (5, 4), (5, 5), (2, 1)])
def test_geo_contraction_against_the_mean_over_all_subsets(U, K):
    """E‖mean of K gradients‖² over every K-subset, exactly: equation (36) needs U² in its second term."""
    gradients = np.random.default_rng(U * 10 + K).normal(size=(U, 3)) + 1.0
    central = gradients.mean(0)
    B = math.sqrt(np.mean((gradients**2).sum(1)) / (central @ central))
    exact = np.mean([np.sum(gradients[list(S)].mean(0) ** 2) for S in combinations(range(U), K)]) / (central @ central)
    eta, L, rho = 0.1, 2.0, 0.5
    A = 1 + 2 * rho * (eta**2 * L / 2 * exact - eta)
    assert geometric.contraction(eta=eta, L=L, rho=rho, B=B, U=U, K=K, reading="corrected").value == pytest.approx(
        A, rel=1e-12
    )
    printed = geometric.contraction(eta=eta, L=L, rho=rho, B=B, U=U, K=K)
    assert bool(printed.value < A - 1e-6) is (K > 1)
    assert mentions(printed, "lacks a factor U²") is (K > 1)


def test_geo_contraction_names_the_broken_assumptions():
    wrong = geometric.contraction(eta=2.0, L=1.0, rho=3.0, B=0.5, U=10, K=5)
    for words in ("exceeds 1/L", "PL constant", "dissimilarity", "outside (0, 1)"):
        assert mentions(wrong, words)
    assert geometric.contraction(eta=0.1, L=1.0, rho=0.1, B=1.0, U=10, K=1).remarks == ()


def test_geo_local_drift():
    assert geometric.local_drift(x=0, eta=0.1, L=2.0, gamma=1.0).value == 0
    # two steps by hand: (1/2)(1.2² − 1) − .1·2 = .02
    assert geometric.local_drift(x=2, eta=0.1, L=2.0, gamma=1.0).value == pytest.approx(0.02)
    whole = dict(M=20, tau=2, L_c=3.0, eta=0.1, gamma=1.0) | GEO | {"L": 2.0}
    assert geometric.final_convergence(**whole).value - geometric.convergence(
        m=20, **GEO | {"L": 2.0}
    ).value == pytest.approx(0.06)


def test_geo_drift_shrinks_with_more_rounds_and_less_divergence_at_fixed_steps():
    drifts = [geometric.local_drift(x=60 / M, eta=0.1, L=1.0, gamma=1.0).value for M in (1, 5, 20, 60)]
    assert drifts == sorted(drifts, reverse=True)
    assert (
        geometric.local_drift(x=5, eta=0.1, L=1.0, gamma=0.5).value
        < geometric.local_drift(x=5, eta=0.1, L=1.0, gamma=1.0).value
    )


@pytest.mark.parametrize("eta_L", [1e-3, 0.1, 1.0, 10.0, 1e4])
def test_geo_corollary_2_threshold_on_tau_is_no_condition(eta_L):
    """H' = 0 at the corrected threshold, which lies in [1/2, 1]."""
    tau = geometric.steps_for_convexity(eta=eta_L, L=1.0, reading="corrected").value
    assert 0.5 <= tau <= 1
    slope = (1 + eta_L) ** tau * math.log1p(eta_L) - eta_L
    assert slope == pytest.approx(0, abs=1e-9 * eta_L)


def test_geo_printed_threshold_depends_on_units():
    assert geometric.steps_for_convexity(eta=0.5, L=0.1).value > 40
    assert mentions(geometric.steps_for_convexity(eta=0.5, L=0.1), "exceeds 1")
    assert mentions(geometric.steps_for_convexity(eta=0.01, L=10.0), "negative")


def second_derivative_43(M, A, vartheta, divisor):
    """The noise part of (43) up to a positive factor."""
    bracket = (
        vartheta**M * math.log(vartheta) ** 2
        - A**M * math.log(A) ** 2
        + (A / vartheta) ** M * math.log(A / vartheta) ** 2
    )
    return vartheta / ((vartheta - A) * divisor) * bracket


@pytest.mark.parametrize(
    ("reading", "divisor", "non_convex"), [("corrected", 0.95 - 1, range(7, 60)), ("printed", 99, range(2, 7))]
)
def test_geo_corollary_2_is_not_sufficient(reading, divisor, non_convex):
    """A = .8 < ϑ = .95: with (ϑ − 1) the noise is non-convex from M = 7, with the printed (U − 1) before it."""
    noise = GEO | {"A": 0.8, "vartheta": 0.95, "Theta": 0.0}
    for M in range(2, 60):
        found = geometric.curvature(M=M, reading=reading, **noise)
        assert (found.value < 0) is (M in non_convex)
        assert mentions(found, "Corollary 2 is not sufficient") is (M in non_convex)
        assert (second_derivative_43(M, 0.8, 0.95, divisor) < 0) is (M in non_convex)
    assert mentions(geometric.curvature(M=5, **GEO | {"vartheta": 0.8}), "below A")


@pytest.mark.parametrize("vartheta", [0.95, 1.0, 1.05])
@pytest.mark.parametrize("T", [None, 300.0])
def test_geo_optimal_rounds_is_the_brute_force_optimum(vartheta, T):
    setting = GEO | {"vartheta": vartheta}
    drift = dict(T=T, L_c=0.3, eta=0.1, gamma=0.5)
    found = geometric.optimal_rounds(max_rounds=150, **drift, **setting)
    best, least = None, math.inf
    for M in range(1, 151):
        sigma = theorem_1(vartheta, M, 0.1, 0.5, 10.0, 1e-3)
        value = 0.9**M * 2.0 + sum(0.9 ** (M - i) * vartheta ** (i - 1) for i in range(1, M + 1)) * sigma**2 / 2
        if T is not None:
            value += 0.3 * (0.5 * (1.1 ** (T / M) - 1) - 0.1 * 0.5 * T / M)
        if value < least:
            best, least = M, value
    assert found.value == best
    assert dict(found.curve)[best] == pytest.approx(least, rel=1e-10)
    assert len(found.curve) == 150


def test_geo_optimal_rounds_grow_with_epsilon_and_have_no_end_without_noise():
    best = [geometric.optimal_rounds(max_rounds=400, **GEO | {"epsilon": e}).value for e in (5, 10, 20, 40)]
    assert best == sorted(best) and best[0] < best[-1] < 400
    free = geometric.optimal_rounds(max_rounds=100, **GEO | {"epsilon": math.inf})
    assert free.value == 100 and mentions(free, "end of the scanned range")


def test_geo_equation_13_leaves_out_the_drift_that_14_has():
    plain = geometric.optimal_rounds(max_rounds=200, **GEO)
    drift = geometric.optimal_rounds(max_rounds=200, T=300.0, L_c=1.0, eta=0.1, gamma=1.0, **GEO)
    assert drift.value > plain.value
    with pytest.raises(ValueError, match="eta must be given with T"):
        geometric.optimal_rounds(max_rounds=10, T=300.0, **GEO)


def test_geo_best_schedule_is_the_root_of_the_contraction():
    """Among geometric schedules and among 200 random ones; the paper's own analysis never wants growing noise."""
    found = geometric.recommend_schedule(clients=100, participants=10, rounds=30, learning_rate=0.5, pl=0.4)
    A = geometric.contraction(eta=0.5, L=1.0, rho=0.4, B=1.0, U=100, K=10).value
    assert found.value == math.sqrt(A) < 1
    assert min(found.curve, key=lambda point: point[1])[0] == found.value
    assert dict(found.curve)[1.0] == pytest.approx(1.0)
    weights = A ** np.arange(29, -1, -1.0)
    best = (weights @ found.value ** np.arange(30)) * np.sum(found.value ** -np.arange(30.0))
    assert best == pytest.approx(np.sum(np.sqrt(weights)) ** 2)
    for variances in np.random.default_rng(0).lognormal(size=(200, 30)):
        assert (weights @ variances) * np.sum(1 / variances) > best


def test_geo_recommendation_names_constants_and_the_noise_really_added():
    setting = dict(
        epsilon=10, delta=1e-3, clip=5, samples=600, clients=100, participants=10, vartheta=1.05, dimension=25_450
    )
    found = geometric.recommend_rounds(**setting)
    assert found.remarks[0].startswith("Constants of the analysis, assumed")
    real = geometric.recommend_rounds(**setting | {"clip": 5 * math.sqrt(25_450 / 10)})
    assert mentions(found, f"M* = {real.value:g}.") and real.value < found.value


# ---------------------------------------------------------------------------------------------------- NbAFL (NBA)

NBA = dict(epsilon=50.0, delta=0.01, N=50, m=1000, C=1.0, Theta=2.0, rho=1.0, B=1.0, mu=3.0, l=0.5, beta=1.0)


@pytest.mark.parametrize(
    ("K", "L", "epsilon", "server"),
    [(50, 1, 50, 5.961e-5), (50, 25, 50, 0.0), (20, 1, 5, 4.333e-4), (20, 1, 50, 0.0)],
)
def test_nbafl_noise_on_the_aggregate_holds_the_golden_server_noise(K, L, epsilon, server):
    """σ_A² = σ_U²/K + σ_D² (C=1, m=1000, N=50, T=25, δ=.01)."""
    std = nbafl.aggregate_noise_std(T=25, N=50, K=K, m=1000, C=1.0, epsilon=epsilon, delta=0.01, L=L).value
    upload = 2 * math.sqrt(2 * math.log(125)) * L / (1000 * epsilon)
    assert math.sqrt(max(std**2 - upload**2 / K, 0)) == pytest.approx(server, rel=2e-4, abs=1e-9)


def test_nbafl_lemma_5_overspends_its_round_budget():
    """N=50, K=20, T=25, ε=5: .604 used, .441 allowed."""
    found = nbafl.aggregate_noise_std(T=25, N=50, K=20, m=1000, C=1.0, epsilon=5.0, delta=0.01)
    assert mentions(found, "0.604") and mentions(found, "0.441")


def test_nbafl_theorem_2_by_hand():
    """μ = 2, ρ = .5, B = 1, l = .5, T = 3, written out number by number."""
    found = nbafl.convergence(T=3, **NBA | {"mu": 2.0, "rho": 0.5})
    lambda_2 = -1 / 2 + 0.5 / 4 + 0.5 / 8
    P = 1 + 2 * 0.5 * lambda_2
    c = math.sqrt(2 * math.log(125))
    kappa_1 = (1 / 2 + 0.5 / 2) * c / (1000 * (1 - P)) * math.sqrt(2 / (50 * math.pi))
    kappa_0 = 0.25 * c**2 / (1000**2 * (1 - P) * 50)
    expected = P**3 * 2 + (kappa_1 * 3 / 50 + kappa_0 * 9 / 2500) * (1 - P**3)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert mentions(found, "should be 1 + ρB/μ")


def test_nbafl_correction_by_hand_and_its_doubled_and_quadrupled_noise():
    setting = NBA | {"mu": 2.0, "rho": 0.5}
    c = math.sqrt(2 * math.log(125))
    k_2, k_1 = -1 / 2 + 0.5 / 4 + 0.5 / 8, 2 * 1.25 * c / 1000 * math.sqrt(2 / (50 * math.pi))
    k_0 = 4 * 0.25 * c**2 / (1000**2 * 50)
    found = nbafl.convergence(T=3, reading="talaei", **setting)
    assert found.value == pytest.approx(2 + 3 * k_2 + 9 * k_1 / 50 + 27 * k_0 / 2500, rel=1e-12)
    # the printed noise of one round is half and a quarter of that (with μ = 1 the two λ1 agree)
    for beta, factor in ((1e9, 2), (0.0, 4)):
        one = {"mu": 1.0, "rho": 0.5, "Theta": 0.0, "beta": beta, "T": 1}
        printed = nbafl.convergence(**NBA | one).value
        talaei = (
            nbafl.convergence(reading="talaei", **NBA | one).value - nbafl.lambda_2(rho=0.5, B=1.0, mu=1.0) * beta**2
        )
        assert talaei / printed == pytest.approx(factor, rel=1e-3)


def test_nbafl_increment_is_one_round_of_the_correction():
    T, c = 7, math.sqrt(2 * math.log(125))
    noise = 2 * c * T / (1000 * 50) * math.sqrt(2 / (50 * math.pi))
    squared = 4 * c**2 * T**2 / (1000**2 * 50 * 2500)
    step = nbafl.increment(gradient=1.0, noise=noise, noise_squared=squared, rho=1.0, B=1.0, mu=3.0, reading="talaei")
    assert 2 + T * step.value == pytest.approx(nbafl.convergence(T=T, reading="talaei", **NBA).value)
    assert mentions(nbafl.increment(gradient=1.0, noise=2.0, noise_squared=1.0, rho=1.0, B=1.0, mu=3.0), "Jensen")


CURVATURES = np.array([0.6, 0.8, 1.0, 1.2, 1.4])


def federation_of_parabolas(T, K, epsilon, w0, mu):
    """E F − F* of NbAFL on f_k = h_k w²/2 (exact proximal steps, K of N without replacement), and its constants."""
    N, mean = len(CURVATURES), CURVATURES.mean()
    steps = mu / (mu + CURVATURES)
    spread = (N - K) / (K * (N - 1)) * steps.var()
    std = nbafl.aggregate_noise_std(T=T, N=N, K=K, m=100, C=1.0, epsilon=epsilon, delta=0.01).value
    second = w0**2
    for _ in range(T):
        second = (steps.mean() ** 2 + spread) * second + std**2
    B = math.sqrt(np.mean(CURVATURES**2)) / mean
    constants = dict(
        N=N,
        m=100,
        C=1.0,
        delta=0.01,
        epsilon=epsilon,
        Theta=mean * w0**2 / 2,
        rho=CURVATURES.max(),
        B=B,
        mu=mu,
        l=mean,
        beta=mean * w0,
    )
    return mean / 2 * second, constants


@pytest.mark.parametrize("mu", [1.0, 4.0, 20.0])
@pytest.mark.parametrize("epsilon", [1.0, 30.0, math.inf])
def test_nbafl_rederived_bound_holds_on_an_exact_problem(mu, epsilon):
    for T in (1, 3, 10, 40):
        exact, constants = federation_of_parabolas(T, 5, epsilon, 1.5, mu)
        assert exact <= nbafl.convergence(T=T, reading="rederived", **constants).value
        for K in (1, 2, 4, 5):
            exact, constants = federation_of_parabolas(T, K, epsilon, 1.5, mu)
            assert exact <= nbafl.sampled_convergence(T=T, K=K, reading="rederived", **constants).value


def test_nbafl_correction_is_no_bound_where_an_optimum_exists():
    """λ2 < 0, no noise: the corrected Theorem 2 falls below 0 and below the exact loss."""
    exact, constants = federation_of_parabolas(40, 5, math.inf, 1.5, 4.0)
    found = nbafl.convergence(T=40, reading="talaei", **constants)
    assert found.value < 0 <= exact
    assert mentions(found, "wrong way round") and mentions(found, "negative")
    assert exact <= nbafl.convergence(T=40, reading="printed", **constants).value


@pytest.mark.parametrize("reading", nbafl.READINGS)
def test_nbafl_more_privacy_costs_and_more_clients_help(reading):
    def at(**changes):
        return nbafl.convergence(T=25, reading=reading, **NBA | changes).value

    assert at(epsilon=5) > at(epsilon=50) > at(epsilon=500)
    assert at(N=20, epsilon=5) > at(N=50, epsilon=5) > at(N=200, epsilon=5)


@pytest.mark.parametrize("T", [2.0, 10.0, 80.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_nbafl_curvature_is_the_second_derivative_of_theorem_2(T, epsilon):
    setting = NBA | {"epsilon": epsilon}
    c, P = nbafl.noise_constant(0.01), 1 + 2 * 0.5 * nbafl.lambda_2(rho=1.0, B=1.0, mu=3.0)
    k_1 = (1 / 3 + 1 / 3) * c / (1000 * (1 - P)) * math.sqrt(2 / (50 * math.pi)) / epsilon
    k_0 = 0.5 * (c / (1000 * epsilon)) ** 2 / ((1 - P) * 50)

    def h(t):
        return P**t * 2.0 + (k_1 * t + k_0 * t**2) * (1 - P**t)

    assert h(4) == pytest.approx(nbafl.convergence(T=4, **setting).value)
    step = 1e-2
    numeric = (h(T + step) - 2 * h(T) + h(T - step)) / step**2
    assert nbafl.curvature(T=T, **setting).value == pytest.approx(numeric, rel=1e-3, abs=1e-7)
    assert math.isnan(nbafl.curvature(T=T, **setting | {"mu": 1.0}).value)


def test_nbafl_an_optimal_number_of_rounds_needs_a_negative_lambda_2():
    setting = NBA | {"epsilon": 0.5}
    found = nbafl.optimal_rounds(max_rounds=60, reading="rederived", **setting, d=10)
    values = [nbafl.convergence(T=T, reading="rederived", **setting, d=10).value for T in range(1, 61)]
    assert found.value == 1 + int(np.argmin(values)) and 1 < found.value < 60
    for reading in nbafl.READINGS:
        none = nbafl.optimal_rounds(max_rounds=60, reading=reading, **setting | {"mu": 1.2})
        assert none.value == 1 and mentions(none, "not negative")


def test_nbafl_q_follows_from_fedprox():
    """FedProx's Theorem 4 derivation with the variance B²/(Kμ²)‖∇F‖² of the mean of K drawn clients."""
    rho, B, mu, K = 1.3, 1.7, 6.0, 9
    drift = B / (mu * math.sqrt(K))
    per_gradient = nbafl.lambda_2(rho=rho, B=B, mu=mu) + (1 + 2 * rho * B / mu) * drift + rho * drift**2
    found = nbafl.sampled_contraction(rho=rho, B=B, mu=mu, l=0.2, K=K, N=50)
    assert found.value == pytest.approx(1 + 2 * 0.2 * per_gradient)
    all_in = nbafl.sampled_contraction(rho=rho, B=B, mu=mu, l=0.2, K=50, N=50, reading="rederived").value
    assert all_in == nbafl.contraction(rho=rho, B=B, mu=mu, l=0.2).value
    assert nbafl.sampled_contraction(rho=rho, B=B, mu=mu, l=0.2, K=50, N=50).value > all_in


def test_nbafl_theorem_3_is_undefined_where_lemma_5_needs_no_server_noise():
    edge = NBA | {"N": 50, "epsilon": 50.0}
    assert math.isnan(nbafl.sampled_convergence(T=25, K=20, **edge).value)  # ε/T = 2 ≥ −ln(.6)
    assert math.isfinite(nbafl.sampled_convergence(T=25, K=45, **edge).value)
    assert math.isfinite(nbafl.sampled_convergence(T=25, K=20, reading="rederived", **edge).value)


def test_nbafl_best_participants_is_the_brute_force_optimum_and_can_lie_inside():
    setting = {name: value for name, value in NBA.items() if name != "N"} | {"epsilon": 5.0, "T": 25, "d": 10_000}
    found = nbafl.optimal_participants(N=50, reading="rederived", **setting)
    values = [nbafl.sampled_convergence(N=50, K=K, reading="rederived", **setting).value for K in range(1, 51)]
    assert found.value == 1 + int(np.argmin(values)) and 1 < found.value < 50


# ------------------------------------------------------------------------------------------ iteration tuning (ITER)

ITER = dict(z=1.0, C_M=0.3, lam=1.0, mu=0.5, Gamma=0.2, G=0.7, N=20, b=5, Y_0=4.0)


@pytest.mark.parametrize("E", [1, 3, 10, 40])
@pytest.mark.parametrize("z", [0.5, 1.0, 2.0])
def test_iter_theorem_3_bounds_its_own_recursion(E, z):
    """(Appendix F) Y_{k+1} = (1 − μη_k)Y_k + η_k²(ω0 + [k+1 ends a round]·ω1)."""
    T_g, setting = 12, ITER | {"z": z}
    omega_0 = iteration.noise_free_weight(lam=1.0, Gamma=0.2, E=E, G=0.7, N=20, b=5).value
    omega_1 = 0.3 * E**2 * T_g**z
    gamma, Y = max(8 * 1.0 / 0.5, E), 4.0
    for k in range(E * T_g):
        eta = 2 / (0.5 * (k + gamma))
        Y = (1 - 0.5 * eta) * Y + eta**2 * (omega_0 + (omega_1 if (k + 1) % E == 0 else 0.0))
        assert iteration.convergence(k=k + 1, E=E, T_g=T_g, **setting).value >= Y


def test_iter_noise_free_weight_by_hand():
    # 6·2·.5 + 8·4·9 + 4·9·9·15/(19·5)
    assert iteration.noise_free_weight(lam=2.0, Gamma=0.5, E=3, G=3.0, N=20, b=5).value == pytest.approx(
        6 + 288 + 324 * 15 / 95
    )
    assert iteration.noise_free_weight(lam=2.0, Gamma=0.0, E=1, G=3.0, N=7, b=7).remarks == ()
    assert iteration.noise_free_weight(lam=2.0, Gamma=0.0, E=1, G=3.0, N=7, b=7).value == 0


def aggregate_variance(per_component, p, b, N, sizes):
    """E‖(N/b)Σ_{l∈P}(n_l/n)w_l‖² over a uniformly drawn b-subset, independent noises of p components."""
    shares = np.array(sizes) / sum(sizes)
    return p * per_component * (N / b) ** 2 * b * np.mean(shares**2)


def test_iter_corollary_2_1_is_twice_too_big_and_corollary_1_1_is_right():
    p, b, N, T_g, sizes, Xi, epsilon = 7, 4, 10, 20, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], 0.3, 2.0
    T_l = b * T_g / N
    common = dict(p=p, b=b, N=N, T_g=T_g, n=sum(sizes), n_bar2=float(np.mean(np.square(sizes))), Xi=Xi, epsilon=epsilon)
    laplace = aggregate_variance(2 * (T_l * Xi / epsilon) ** 2, p, b, N, sizes)
    assert iteration.noise_variance(mechanism="laplace", **common).value == pytest.approx(laplace)
    gaussian = aggregate_variance(1.3**2 * T_l * math.log(1e4) * Xi**2 / epsilon**2, p, b, N, sizes)
    printed = iteration.noise_variance(mechanism="gaussian", delta=1e-4, c2=1.3, **common)
    assert printed.value == pytest.approx(2 * gaussian) and mentions(printed, "twice too big")
    assert iteration.noise_variance(
        mechanism="gaussian", delta=1e-4, c2=1.3, reading="corrected", **common
    ).value == pytest.approx(gaussian)


@pytest.mark.parametrize(("mechanism", "z"), [("laplace", 2), ("gaussian", 1)])
def test_iter_noise_weight_is_the_corollary_at_twice_the_learning_rate(mechanism, z):
    p, b, N, E, T_g, eta = 11, 5, 50, 4, 30, 0.01
    weight = iteration.noise_weight(mechanism=mechanism, p=p, b=b, N=N, xi=3.0, epsilon=2.0, delta=1e-4).value
    variance = iteration.noise_variance(
        mechanism=mechanism, p=p, b=b, N=N, T_g=T_g, n=N * 8, n_bar2=64.0, Xi=2 * eta * E * 3.0, epsilon=2.0, delta=1e-4
    ).value
    assert eta**2 * weight * E**2 * T_g**z == pytest.approx(variance)
    assert iteration.POWER_OF_ROUNDS[mechanism] == z


@pytest.mark.parametrize("z", [1.2, 1.5, 2.0])
@pytest.mark.parametrize("T", [50.0, 1000.0])
@pytest.mark.parametrize("second", [0.5, 1.0, 40.0])
def test_iter_local_steps_minimise_equation_4_for_z_above_one(z, T, second):
    found = iteration.optimal_local_steps(T=T, z=z, second=second).value
    grid = np.geomspace(1, T, 4001)
    values = [iteration.asymptotic(T=T, E=E, z=z, second=second).value for E in grid]
    assert iteration.asymptotic(T=T, E=found, z=z, second=second).value <= min(values) * (1 + 1e-12)


@pytest.mark.parametrize("z", [0.0, 0.5, 1.0])
def test_iter_theorem_4_is_beaten_by_a_single_local_step(z):
    assert iteration.optimal_local_steps(T=1e4, z=z).value == 1
    paper = iteration.order_of_local_steps(T=1e4, z=z)
    at_paper, at_one = (iteration.asymptotic(T=1e4, E=E, z=z).value for E in (paper.value, 1.0))
    assert at_one <= at_paper
    if 0 < z < 1:
        assert mentions(paper, "E = 1 beats") and at_one < 0.2 * at_paper
    if z == 1:
        assert mentions(paper, "no interior minimum")


def test_iter_rates():
    """Laplace: E* = T^(2/3) diverges as T^(1/3), E = 1 as T; Gaussian: anything up to √T stays O(1)."""
    assert iteration.order_of_local_steps(T=8000, z=2).value == 400
    assert (
        iteration.rate(z=2).value == pytest.approx(1 / 3)
        and iteration.rate(z=1).value == 0
        and iteration.rate(z=0.5).value < 0
    )
    growth = [iteration.asymptotic(T=T, E=T ** (2 / 3), z=2).value for T in (1e3, 8e3)]
    assert growth[1] / growth[0] == pytest.approx(2)
    assert iteration.asymptotic(T=8e3, E=1, z=2).value / iteration.asymptotic(T=1e3, E=1, z=2).value == pytest.approx(
        8, rel=1e-4
    )
    for T in (1e3, 1e6):
        assert 1 <= iteration.asymptotic(T=T, E=math.sqrt(T), z=1).value <= 2


def test_iter_corollary_5_1():
    E, z = 5.0, 2.0
    best = iteration.optimal_iterations(E=E, z=z).value
    grid = np.geomspace(1, 1e4, 4001)
    assert iteration.asymptotic(T=best, E=E, z=z).value <= min(iteration.asymptotic(T=T, E=E, z=z).value for T in grid)
    assert best == pytest.approx(5**1.5)
    assert iteration.optimal_iterations(E=E, z=1.0).value == math.inf


def test_iter_the_bound_is_not_convex_in_iterations_between_one_and_two():
    """Corollary 5.1's proof says Y_T is convex in T."""
    left, middle, right = (iteration.asymptotic(T=T, E=1, z=1.5) for T in (100.0, 200.0, 300.0))
    assert left.value - 2 * middle.value + right.value < 0 and mentions(middle, "not convex in T")


@pytest.mark.parametrize(
    ("mechanism", "setting", "total", "most"),
    [
        ("laplace", dict(epsilon=3, clip=150, clients=5000, participants=500, dimension=11), 120, 12),
        ("gaussian", dict(epsilon=10, delta=1e-4, clip=3, clients=3500, participants=350, dimension=214_590), 240, 24),
    ],
)
def test_iter_recommended_local_steps_scan_the_papers_range(mechanism, setting, total, most):
    """Fig. 5 and 6 stop at E = 12 and 24, where each client takes part once."""
    found = iteration.recommend_local_steps(mechanism=mechanism, total_steps=total, **setting)
    scanned = [E for E, _ in found.curve]
    assert scanned == [E for E in range(1, most + 1) if total % E == 0]
    weight = iteration.noise_weight(
        mechanism=mechanism,
        p=setting["dimension"],
        b=setting["participants"],
        N=setting["clients"],
        xi=setting["clip"],
        epsilon=setting["epsilon"],
        delta=setting.get("delta"),
    ).value
    values = [
        iteration.convergence(
            k=total,
            E=E,
            T_g=total // E,
            z=iteration.POWER_OF_ROUNDS[mechanism],
            C_M=weight,
            lam=1.0,
            mu=0.1,
            Gamma=0.1,
            G=1.0,
            N=setting["clients"],
            b=setting["participants"],
            Y_0=1.0,
        ).value
        for E in scanned
    ]
    assert found.value == scanned[int(np.argmin(values))]
    assert (found.value > 1) is (mechanism == "laplace")
    assert not mentions(found, "less than a single round")


def test_iter_too_few_rounds_are_refused_in_advice_and_remarked_in_the_bound():
    assert mentions(iteration.convergence(k=2, E=1, T_g=2, **ITER), "less than a single round")
    with pytest.raises(ValueError, match="total_steps must be at least clients/participants = 10"):
        iteration.recommend_local_steps(
            mechanism="laplace", epsilon=1, clip=1, clients=50, participants=5, dimension=3, total_steps=9
        )


def test_iter_recommended_rounds_have_an_interior_optimum_for_laplace():
    setting = dict(epsilon=50.0, clip=1.0, clients=20, participants=20, dimension=3)
    found = iteration.recommend_rounds(mechanism="laplace", max_rounds=3000, **setting)
    assert 1 < found.value < 3000
    gaussian = iteration.recommend_rounds(mechanism="gaussian", delta=1e-4, max_rounds=3000, **setting)
    assert mentions(gaussian, "needs z > 1")


# --------------------------------------------------------------------------------------- component-adaptive (ADN)


@pytest.mark.parametrize(("epsilon", "sigma", "rounds"), [(0.5, 26.0, 7), (2.0, 26.0, 108), (8.0, 10.0, 208)])
def test_component_rounds_within_the_budget(epsilon, sigma, rounds):
    assert component.recommend_rounds(epsilon=epsilon, delta=1e-5, sigma=sigma).value == rounds


@pytest.mark.parametrize("L_i", [1, 7, 8, 100, 5000])
def test_component_spent_delta_is_the_minimum_over_all_orders(L_i):
    least = 1 + math.log(1e5) / 2.0
    brute = min(math.exp(min((a - 1) * (L_i * a / (2 * 676) - 2.0), 700)) for a in range(2, 5000) if a > least)
    assert component.spent_delta(L_i=L_i, sigma_0=26.0, epsilon=2.0, target_delta=1e-5).value == pytest.approx(
        brute, rel=1e-9
    )


def test_component_lemma_8_is_the_same_for_any_number_of_participants():
    """k of n equal clients a round: each uploads kT/n times, the mean divides the variance by k."""
    M, T, n, alpha = 50, 60, 10, 40
    found = component.global_variance(M=M, T=T, n=n, alpha=alpha, epsilon=2.0, delta=1e-5).value
    for k in (1, 2, 3, 5, 10):
        single = M * component.required_noise(L_i=k * T // n, alpha=alpha, epsilon=2.0, delta=1e-5).value
        assert single / k == pytest.approx(found)


def test_component_error_uses_the_free_order_and_is_no_three_sigma_rule():
    found = component.error(M=50, T=60, n=10, sigma_0=26.0, epsilon=2.0, delta=1e-5)
    alpha = (60 + 2 * 2.0 * 676) / 120
    room = 2.0 - math.log(1e5) / (alpha - 1)
    assert found.value == pytest.approx(math.sqrt(3 * 50 * 60 * alpha / (20 * room)))
    assert math.erf(math.sqrt(3 / 2)) == pytest.approx(0.917, abs=1e-3) and mentions(found, ".917")
    assert math.isnan(component.error(M=50, T=600, n=10, sigma_0=26.0, epsilon=2.0, delta=1e-5).value)
    assert math.isnan(component.required_noise(L_i=1, alpha=6, epsilon=2.0, delta=1e-5).value)


# ------------------------------------------------------------------------------------------- Fed-nore (THESIS 3.3)

NORE = dict(gap=2.0, beta=1.0, rho=1.0, lam=0.01, sigma=0.1, n=100, S=0.01)


def test_fednore_theorem_4_is_its_recursion_and_theorem_5_its_telescope():
    l1 = 1 / (1 + 0.01 * 0.1 * 10 / 0.01)
    assert fednore.pull(lam=0.01, sigma=0.1, n=100, S=0.01).value == pytest.approx(l1) == 0.5
    setting = NORE | {"lam": 0.03}
    l1, q1 = 1 / (1 + 0.03 * 0.1 * 10 / 0.01), 0.01 * (0.003 * 1000 - 1)
    floor = q1 * (1 - l1) + q1**2 / 2
    x = 2.0
    for T in range(1, 30):
        x = (0.2 * l1**2 - 2 * l1 * 0.2 + 1) * x + floor
        assert fednore.convergence(T=T, mu=0.2, **setting).value == pytest.approx(x)
        assert fednore.gradient_convergence(T=T, **setting).value == pytest.approx((2.0 / T + floor) / (l1 - l1**2 / 2))


def test_fednore_broken_assumptions_are_named():
    assert mentions(fednore.noise_norm(lam=0.0, sigma=1.0, n=100, beta=1.0), "negative, impossible for a norm")
    assert mentions(fednore.noise_norm(lam=0.01, sigma=0.1, n=100, beta=1.0), "q1 = 0 although there is noise")
    steep = fednore.convergence(T=5, mu=0.2, **NORE | {"rho": 9.0, "lam": 0.0})
    assert mentions(steep, "outside [0, 1)") and mentions(steep, "l1ρ = 9")
    assert mentions(fednore.gradient_convergence(T=5, **NORE | {"rho": 9.0, "lam": 0.0}), "is not positive")
    assert math.isnan(fednore.gradient_convergence(T=5, **NORE | {"rho": 2.0, "lam": 0.0}).value)
    assert mentions(fednore.convergence(T=5, mu=2.0, **NORE), "PL constant")


def test_fednore_without_its_term_is_the_plain_scheme():
    assert fednore.pull(lam=0.0, sigma=8.0, n=600, S=0.01).value == 1
    assert fednore.pull(lam=0.0, sigma=8.0, n=600, S=0.01).remarks == ()
    assert mentions(fednore.pull(lam=1.0, sigma=8.0, n=600, S=0.01), "∇S = 0")


def test_fednore_lemma_6_without_noise_is_descent_on_a_parabola():
    """F = ρw²/2, step l1·∇F: exactly (ρl1²/2 − l1)‖∇F‖²."""
    rho, l1, w = 1.5, 0.4, 2.0
    gradient = rho * w
    exact = rho / 2 * (w - l1 * gradient) ** 2 - rho / 2 * w**2
    assert fednore.expected_decrease(
        gradient=gradient, noise=0.0, noise_squared=0.0, l1=l1, rho=rho
    ).value == pytest.approx(exact)
    assert mentions(fednore.expected_decrease(gradient=1.0, noise=1.0, noise_squared=0.5, l1=0.5, rho=1.0), "Jensen")


def test_fednore_noise_ratio_has_the_wrong_root():
    """d draws of std σ‖∇W‖/n: the ratio is √d·σ/n; σ/√n only if d = n."""
    sigma, n, d = 8.0, 600, 20_000
    gradient = np.random.default_rng(0).normal(size=d)
    noise = np.random.default_rng(1).normal(size=(20, d)) * sigma * np.linalg.norm(gradient) / n
    measured = np.linalg.norm(noise, axis=1).mean() / np.linalg.norm(gradient)
    assert fednore.noise_to_gradient(sigma=sigma, n=n, d=d, reading="components").value == pytest.approx(
        measured, rel=0.01
    )
    printed = fednore.noise_to_gradient(sigma=sigma, n=n, d=d)
    assert printed.value == pytest.approx(8 / math.sqrt(600)) and mentions(printed, "d = 20000")
    assert fednore.noise_to_gradient(sigma=sigma, n=n, d=n, reading="components").value == pytest.approx(printed.value)
    assert fednore.output_change(a=0.7, y=1, sigma=8.0, n=400).value == pytest.approx(-0.12)


@pytest.mark.parametrize("strength", [0.0, 0.03, 1.0])
def test_fednore_theorem_4_has_no_interior_optimum(strength):
    found = fednore.recommend_rounds(sigma=0.1, samples=100, clip=1.0, strength=strength, max_rounds=80)
    assert found.value in (1, 80)
    steps = np.diff([value for _, value in found.curve])
    assert np.all(steps <= 0) or np.all(steps >= 0)


# ------------------------------------------------------------------------------ decentralised (THESIS chapter 5)

GOSSIP = dict(gap=2.0, zeta=0.5, C=1.0, sigma2=0.25, n=600)


def test_decentralised_noise_meets_its_own_conversion():
    """(A.56): 3.5Ts₁α/(m²σ²) + ln(1/δ)/(α−1) = ε at α = 1 + 2 ln(1/δ)/ε, split in halves."""
    for m_e in (None, 30):
        sigma2 = decentralised.noise_variance(T=50, epsilon=8, delta=1e-5, m=100, r_tcs=0.7, m_e=m_e).value
        alpha, s_1 = 1 + 2 * math.log(1e5) / 8, 0.49 * (m_e or 1)
        assert 3.5 * 50 * s_1 * alpha / (100**2 * sigma2) == pytest.approx(4)
        assert math.log(1e5) / (alpha - 1) == pytest.approx(4)


def test_decentralised_lemma_3_fails_at_the_papers_settings():
    for m_e in (None, 30):
        found = decentralised.noise_variance(T=50, epsilon=8, delta=1e-5, m=100, r_tcs=0.7, m_e=m_e)
        assert mentions(found, "below the .7") and mentions(found, "Lemma 3's limit") and mentions(found, "no proof")
    assert mentions(decentralised.noise_variance(T=1, epsilon=24, delta=1e-5, m=1, r_tcs=0.5), "not below 2 ln(1/δ)")


def test_decentralised_no_remark_where_lemma_3_holds():
    assert decentralised.noise_variance(T=10**6, epsilon=8, delta=1e-5, m=1, r_tcs=1e-3).remarks == ()


def test_decentralised_text_and_appendix_by_hand():
    """L = 1.5, ρ2 = .5, m_tcs = 10, m_e = 4, T = 20: D = .5 + .75 − 1.5 + 2 = 1.75."""
    common = dict(T=20, L=1.5, rho_2=0.5, m_tcs=10, m_e=4, **GOSSIP)
    sampling = 0.25 * 0.5 * 6 / (4 * 9)
    privacy = 4 * 1.5 * 0.25 * 0.5 / (600**2 * 4)
    text = 2 * 2 / (20 * 1.75) - 0.25 / 1.75 + 0.5 * sampling / 1.75 + privacy / 1.75
    appendix = 2 * 2 / (20 * -2.25) - 0.25 / 1.75 + 2.5 * sampling / 1.75 + privacy / -2.25
    rederived = (2 * 2 / 20 + 0.25 + 0.5 * sampling + privacy) / (1 - 0.5 * 0.5)
    for reading, value in (("text", text), ("appendix", appendix), ("rederived", rederived)):
        assert decentralised.gossip_convergence(reading=reading, **common).value == pytest.approx(value)
    found = decentralised.gossip_convergence(**common)
    assert found.value < 0 and mentions(found, "negative, impossible") and mentions(found, "denominator is negative")


def test_decentralised_leader_by_hand():
    common = dict(T=20, L=1.5, m=100, m_tcs=10, **GOSSIP)
    sampling, privacy = 0.25 * 90 / (10 * 99), 4 * 1.5 * 0.25 / (600**2 * 10)
    for reading, value in (
        ("text", (0.2 - 0.25 + 0.5 * sampling + privacy) / 0.5),
        ("appendix", (0.2 - 0.25 + 2.5 * sampling + privacy) / 0.5),
        ("rederived", (0.2 + 0.25 + 0.5 * sampling + privacy) / 0.5),
    ):
        assert decentralised.leader_convergence(reading=reading, **common).value == pytest.approx(value)
    assert mentions(decentralised.leader_convergence(**common | {"L": 2.5}), "not below 2")
    assert math.isnan(decentralised.leader_convergence(**common | {"L": 2.0}).value)
    assert mentions(decentralised.leader_convergence(reading="text", **common | {"L": 0.5}), "wrong side")


@pytest.mark.parametrize("reading", ["text", "appendix"])
def test_decentralised_more_divergence_lowers_the_printed_bound(reading):
    """The sign of ζ²/D; the re-derived bound rises."""

    def at(zeta, reading):
        return decentralised.leader_convergence(
            T=20, L=1.2, m=100, m_tcs=90, reading=reading, **GOSSIP | {"zeta": zeta}
        ).value

    assert at(1.0, reading) < at(0.1, reading)
    assert at(1.0, "rederived") > at(0.1, "rederived")


def test_decentralised_rederived_bound_holds_on_an_exact_problem():
    """Everyone takes part, with step 1, on f_i = Lw²/2 + c_i w: E‖∇F‖² is a recursion in E w²."""
    L, T, std = 1.4, 30, 0.02
    slopes = np.array([-0.3, 0.1, 0.2])  # f_i = L w²/2 + c_i w, mean slope 0; ζ² = mean c_i² ≥ 0
    w2, total = 1.0, 0.0
    for _ in range(T):
        total += L**2 * w2
        w2 = (1 - L) ** 2 * w2 + std**2
    mean = total / T
    # the privacy term is (L/2)·E‖noise‖²·2/D = 4LC²σ²/(n²m_tcs)/D for std = 2Cσ/(n√m_tcs)
    sigma2 = (std * math.sqrt(3) / 2) ** 2
    bound = decentralised.leader_convergence(
        T=T,
        gap=L / 2,
        zeta=math.sqrt(np.mean(slopes**2)),
        L=L,
        m=3,
        m_tcs=3,
        C=1.0,
        sigma2=sigma2,
        n=1,
        reading="rederived",
    )
    assert mean <= bound.value


def test_decentralised_claims_about_neighbours_and_mixing():
    """At a fixed ρ2 m_e leaves the privacy error alone (σ² ∝ m_e); better mixing raises it and the sampling error."""

    def privacy_error(m_e, rho_2, r=0.7):
        sigma2 = decentralised.noise_variance(T=50, epsilon=8, delta=1e-5, m=100, r_tcs=r, m_e=m_e).value
        setting = dict(T=50, gap=0.0, zeta=0.0, L=1.5, rho_2=rho_2, m_tcs=70, m_e=m_e, C=1.0, n=600, reading="text")
        return decentralised.gossip_convergence(sigma2=sigma2, **setting).value

    assert privacy_error(10, 0.3) == pytest.approx(privacy_error(60, 0.3))
    assert privacy_error(10, 0.3, r=0.9) > privacy_error(10, 0.3, r=0.5)
    assert privacy_error(10, 0.1) > privacy_error(10, 0.5)

    def sampling_error(rho_2):
        setting = dict(T=50, gap=0.0, L=1.5, rho_2=rho_2, m_tcs=70, m_e=10, C=1.0, sigma2=0.0, n=600, reading="text")
        drift = 1 / (rho_2 * 2.5 + 0.5)
        return decentralised.gossip_convergence(zeta=1.0, **setting).value + drift

    assert sampling_error(0.1) > sampling_error(0.5)
    backwards = decentralised.recommend_neighbours(
        epsilon=8, delta=1e-5, clip=1, samples=600, clients=100, participants=70, rounds=50
    )
    assert mentions(backwards, "stops mixing")


def test_decentralised_local_noise_of_the_equation_and_of_the_theorem():
    equation = decentralised.local_noise_std(sigma=0.5, C=1.0, n=600, m=100)
    assert equation.value == pytest.approx(1 / 600) and mentions(equation, "multiplier σ/n")
    assert decentralised.local_noise_std(sigma=0.5, C=1.0, n=600, m=100, reading="theorem").value == pytest.approx(
        1 / 100
    )


def test_decentralised_recommendations_are_brute_force_optima_inside_the_range():
    setting = dict(epsilon=8.0, delta=1e-5, clip=1.0, samples=100, clients=100, dimension=1_000_000)
    found = decentralised.recommend_participants(rounds=100, divergence=2.0, **setting)

    def at(T, m_tcs, zeta):
        sigma2 = 1_000_000 * decentralised.noise_variance(T=T, epsilon=8.0, delta=1e-5, m=100, r_tcs=m_tcs / 100).value
        return decentralised.leader_convergence(
            T=T,
            gap=math.log(10),
            zeta=zeta,
            L=1.5,
            m=100,
            m_tcs=m_tcs,
            C=1.0,
            sigma2=sigma2,
            n=100,
            reading="rederived",
        ).value

    assert found.value == 1 + int(np.argmin([at(100, k, 2.0) for k in range(1, 101)])) and 1 < found.value < 100
    rounds = decentralised.recommend_rounds(participants=70, max_rounds=300, **setting)
    assert rounds.value == 1 + int(np.argmin([at(T, 70, 1.0) for T in range(1, 301)])) and 1 < rounds.value < 300


# --------------------------------------------------------------------------- reconstruction (THESIS chapter 4)


def test_reconstruction_lemma_7_counts_records_where_it_should_count_parameters():
    """The mean norm of σC/n·N(0, I_d) is √d·σC/n, not √n·σC/n."""
    C, sigma, n, g, d = 1.0, 2.0, 100, 2.0, 2_500
    draws = np.random.default_rng(0).normal(size=(200, d)) * sigma * C / n
    measured = 0.5 + np.linalg.norm(draws, axis=1).mean() / g
    assert reconstruction.norm_ratio(C=C, sigma=sigma, n=n, g=g, d=d, reading="d").value == pytest.approx(
        measured, rel=2e-3
    )
    printed = reconstruction.norm_ratio(C=C, sigma=sigma, n=n, g=g, d=d)
    assert printed.value == pytest.approx(0.6) and mentions(printed, "k1 = 1")
    assert reconstruction.norm_ratio(C=C, sigma=sigma, n=n, g=g, d=n, reading="d").value == pytest.approx(0.6)


def test_reconstruction_without_privacy_is_the_noise_free_bound():
    k1 = reconstruction.norm_ratio(C=5.0, sigma=0.0, n=100, g=2.0)
    assert k1.value == 1 and k1.remarks == ()
    assert reconstruction.update_factor(k1=1.0, s=0.3).value == 1
    k5 = reconstruction.shift_factor(k4=reconstruction.gradient_shift(k1=1.0, ratio=2.0).value, beta_3=0.4).value
    assert k5 == 1
    cosine = reconstruction.cosine_convergence(T=10, L=2.0, gap=3.0, k3=1.0)
    assert (
        cosine.value == reconstruction.euclidean_convergence(T=10, L=2.0, gap=3.0, k5=1.0).value == pytest.approx(0.3)
    )


def test_reconstruction_clipping_alone_changes_a_cosine_that_cannot_change():
    k1 = reconstruction.norm_ratio(C=1.0, sigma=0.0, n=100, g=2.0)
    assert k1.value == 0.5 and mentions(k1, "Clipping alone")
    assert reconstruction.update_factor(k1=0.5, s=0.5).value == 2  # more than the whole step


@pytest.mark.parametrize("T", [1, 5])
def test_reconstruction_bounds_are_four_times_too_small(T):
    """Gradient descent with step k/L on J = Lx²/2: (A.43) and (A.54) hold, (4.10) and (4.16) do not."""
    L, x, k = 3.0, 1.0, 0.5
    gap, squares = L / 2, []
    for _ in range(T):
        squares.append((L * x) ** 2)
        x -= k * x
    mean = np.mean(squares)
    for function, name, value in (
        (reconstruction.cosine_convergence, "k3", k),
        (reconstruction.euclidean_convergence, "k5", math.sqrt(k)),
    ):
        printed, appendix = (function(T=T, L=L, gap=gap, reading=r, **{name: value}) for r in ("printed", "appendix"))
        assert appendix.value == pytest.approx(4 * printed.value) and appendix.value >= mean
        assert mentions(printed, "Four times smaller")
    if T == 1:
        assert reconstruction.cosine_convergence(T=T, L=L, gap=gap, k3=k).value < mean


def test_reconstruction_theorem_6_is_the_expectation_of_the_signs():
    k1, s = 1.6, 0.3
    flip = 1 - 1 / k1
    expected = s * 1 + (1 - s) * (-1) * flip + (1 - s) * (1 / k1)
    assert reconstruction.update_factor(k1=k1, s=s).value == pytest.approx(expected)
    assert mentions(reconstruction.update_factor(k1=0.8, s=s), "negative")
    assert mentions(reconstruction.update_factor(k1=9.0, s=0.0), "do not descend")


def test_reconstruction_more_noise_and_larger_clips_raise_the_bound():
    def cosine(C, sigma):
        k1 = reconstruction.norm_ratio(C=C, sigma=sigma, n=100, g=1.0).value
        return reconstruction.cosine_convergence(
            T=10, L=1.0, gap=1.0, k3=reconstruction.update_factor(k1=k1, s=0.6).value
        ).value

    assert cosine(1.0, 1.0) < cosine(1.0, 5.0) and cosine(1.0, 5.0) < cosine(2.0, 5.0)


def test_reconstruction_lemma_8_has_two_factors_and_a_third_in_its_derivative():
    """√2 in (4.13), 2 in (A.48); (4.15) is twice the derivative of the first, √2 times that of the second."""
    k1, g, true, h = 0.75, 3.0, 2.0, 1e-6
    text, appendix = (
        reconstruction.euclidean_loss(J=1.0, k1=k1, inner=g * true, reading=r).value - 1 for r in ("text", "appendix")
    )
    assert text == pytest.approx(math.sqrt(2 * 0.25 * 6)) and appendix == pytest.approx(math.sqrt(2) * text)
    k4 = reconstruction.gradient_shift(k1=k1, ratio=true / g).value
    for reading, factor in (("text", 2.0), ("appendix", math.sqrt(2))):
        up, down = (
            reconstruction.euclidean_loss(J=1.0, k1=k1, inner=(g + e) * true, reading=reading).value for e in (h, -h)
        )
        assert k4 == pytest.approx(factor * (up - down) / (2 * h), rel=1e-6)


def test_reconstruction_is_imaginary_for_k1_above_one():
    assert mentions(reconstruction.norm_ratio(C=1.0, sigma=20.0, n=100, g=1.0), "root of a negative")
    for found in (
        reconstruction.euclidean_loss(J=1.0, k1=3.0, inner=1.0),
        reconstruction.gradient_shift(k1=3.0, ratio=1.0),
    ):
        assert math.isnan(found.value) and mentions(found, "imaginary")
    k5 = reconstruction.shift_factor(k4=math.nan, beta_3=0.5)
    assert math.isnan(k5.value) and math.isnan(
        reconstruction.euclidean_convergence(T=1, L=1.0, gap=1.0, k5=k5.value).value
    )
    assert math.isnan(reconstruction.shift_factor(k4=1.0, beta_3=1.0, sign=-1).value)


# ------------------------------------------------------------------------------------------------ impossible input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: geometric.convergence(m=0, **GEO), "m must be a whole number ≥ 1, got 0."),
        (lambda: geometric.convergence(m=3, **GEO | {"vartheta": 0.0}), "vartheta must be > 0, got 0.0."),
        (
            lambda: geometric.convergence(m=3, **GEO | {"delta": 1.0}),
            "delta must lie strictly between 0 and 1, got 1.0.",
        ),
        (
            lambda: geometric.convergence(m=3, reading="ours", **GEO),
            "reading must be one of corrected, printed, got 'ours'.",
        ),
        (lambda: geometric.convergence(m=3, **GEO | {"epsilon": math.nan}), "epsilon must be > 0, got nan."),
        (lambda: geometric.contraction(eta=0.1, L=1.0, rho=0.1, B=1.0, U=5, K=6), "K must be at most U = 5, got 6."),
        (lambda: geometric.curvature(M=1, **GEO), "M must be at least 2"),
        (lambda: nbafl.convergence(T=2, **NBA | {"Theta": -1.0}), "Theta must be ≥ 0 and finite, got -1.0."),
        (
            lambda: nbafl.aggregate_noise_std(T=2, N=5, K=5, m=9, C=1.0, epsilon=1.0, delta=0.1, L=3),
            "L must be at most T = 2, got 3.",
        ),
        (
            lambda: iteration.noise_weight(mechanism="gaussian", p=1, b=1, N=1, xi=1.0, epsilon=1.0),
            "delta must be given",
        ),
        (
            lambda: iteration.noise_weight(mechanism="cauchy", p=1, b=1, N=1, xi=1.0, epsilon=1.0),
            "mechanism must be one of",
        ),
        (lambda: fednore.output_change(a=1.2, y=1, sigma=1.0, n=4), "a must lie in [0, 1]"),
        (
            lambda: decentralised.gossip_convergence(T=1, L=1.0, rho_2=0.5, m_tcs=4, m_e=4, **GOSSIP),
            "m_e must be below m_tcs = 4",
        ),
        (lambda: reconstruction.update_factor(k1=1.0, s=1.5), "s must be a probability"),
        (lambda: reconstruction.norm_ratio(C=1.0, sigma=1.0, n=4, g=1.0, reading="d"), "d must be given"),
    ],
)
def test_impossible_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(message) and str(error.value).endswith(".") and "\n" not in str(error.value)


# ---------------------------------------------------------------------------------------------------------- advice

SETTINGS = {
    "geometric": dict(epsilon=10, delta=1e-3, clip=5, samples=600, clients=100, participants=10, rounds=30),
    "nbafl": dict(epsilon=50, delta=0.01, clip=1, samples=1000, clients=50, rounds=25),
    "dpfedavg-laplace": dict(epsilon=3, clip=150, clients=5000, participants=500, dimension=11, total_steps=120),
    "dpfedavg-gaussian": dict(epsilon=9, delta=1e-4, clip=3, clients=70, participants=7, dimension=99, total_steps=240),
    "component": dict(epsilon=0.5, delta=1e-5, sigma=26),
    "fednore1": dict(sigma=8, samples=600, clip=1),
    "anonymous-gossip": dict(
        epsilon=8, delta=1e-5, clip=1, samples=600, clients=100, participants=70, neighbours=30, rounds=50
    ),
    "anonymous-leader": dict(epsilon=8, delta=1e-5, clip=1, samples=600, clients=100, participants=70, rounds=50),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_advice_for_every_scheme_with_a_theory(scheme):
    names = accepted(scheme)
    assert {name for name, needed in names.items() if needed} <= set(SETTINGS[scheme]) <= set(names)
    advice = advise(scheme, SETTINGS[scheme])
    assert advice == advise(scheme, dict(SETTINGS[scheme]))
    for found in advice:
        assert math.isfinite(found.value) and len(found.curve) > 1
        assert all(remark.endswith(".") for remark in found.remarks)
        if scheme != "component":
            assert found.remarks[0].startswith("Constants of the analysis, assumed and not measured:")
            assert dict(found.curve)[found.value] == min(value for _, value in found.curve if not math.isnan(value))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_advice_refuses_what_it_lacks_and_what_it_does_not_know(scheme):
    for name, needed in accepted(scheme).items():
        if needed:
            rest = {key: value for key, value in SETTINGS[scheme].items() if key != name}
            with pytest.raises(ValueError, match=f"The theory of {scheme} also needs {name}"):
                advise(scheme, rest)
    some = next(iter(accepted(scheme)))
    with pytest.raises(ValueError, match=f"did you mean {some}"):
        advise(scheme, SETTINGS[scheme] | {some + "x": 1})


def test_advice_for_a_scheme_without_theory_lists_those_with_one():
    with pytest.raises(ValueError, match="no convergence theory for the scheme 'fedavg', only for geometric, nbafl"):
        advise("fedavg", {})


def test_advice_uses_the_given_constants():
    given = SETTINGS["nbafl"] | {"smoothness": 2.0, "proximal": 2.5}
    rounds, participants = advise("nbafl", given)
    assert mentions(rounds, "smoothness = 2") and mentions(participants, "smoothness = 2")
    assert rounds.value == 1 and mentions(rounds, "needs μ > ρB(1 + B/2) = 3")
