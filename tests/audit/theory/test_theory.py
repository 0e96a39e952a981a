"""The papers' bounds against hand arithmetic, direct recursions and exact problems: claims checked or refuted."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from dpfl_audit.audit.theory.advise import SCHEMES, scheme_advice, theory_of
from dpfl_audit.audit.theory.component import ComponentConstants
from dpfl_audit.audit.theory.decentralised import DecentralisedConstants
from dpfl_audit.audit.theory.fednore import FednoreConstants
from dpfl_audit.audit.theory.formula import FormulaValue, Recommendation, geometric_sum, mixed_sum, scan
from dpfl_audit.audit.theory.geometric import GeometricConstants
from dpfl_audit.audit.theory.iteration import POWER_OF_ROUNDS, IterationConstants
from dpfl_audit.audit.theory.nbafl import NbaflConstants
from dpfl_audit.audit.theory.reconstruction import ReconstructionConstants
from dpfl_audit.defenses.claims import component_rounds


def mentions(bound: FormulaValue | Recommendation, words: str) -> bool:
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


def test_scan_takes_the_first_minimum_skips_nan_and_reports_the_ends():
    values = {1: math.nan, 2: 3.0, 3: 1.0, 4: 1.0, 5: 2.0}
    found = scan("x", lambda x: FormulaValue(values[int(x)], (f"at {x}",)), list(values), ("note",))
    assert (found.value, found.remarks) == (3, ("note", "at 3"))
    assert len(found.curve) == 5
    assert mentions(scan("x", lambda x: FormulaValue(x), [1, 2, 3]), "end of the scanned range (1 to 3)")
    assert mentions(scan("x", lambda x: FormulaValue(2.0), [1, 2, 3]), "the same at every")
    assert math.isnan(scan("x", lambda x: FormulaValue(math.nan), [1, 2]).value)


# -------------------------------------------------------------------------------------------- geometric noise (GEO)


def geo(A: float = 0.9, **changes) -> GeometricConstants:
    """U = 100, q = .1, Δs = .5, and the PL constant that gives the contraction A."""
    fields = dict(
        epsilon=10.0,
        delta=1e-3,
        clip=150.0,
        samples=600,
        clients=100,
        participants=10,
        vartheta=1.05,
        initial_gap=2.0,
        lipschitz=0.0,
    )
    base = GeometricConstants(**fields | changes | {"pl": 1.0})
    return GeometricConstants(**fields | changes | {"pl": (A - 1) / (base.contraction().value - 1)})


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
    assert geo(vartheta=vartheta).convergence(M).value == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize(("U", "K"), [(5, 1), (5, 2), (5, 4), (5, 5), (2, 1)])
def test_geo_contraction_against_the_mean_over_all_subsets(U, K):
    """E‖mean of K gradients‖² over every K-subset, exactly: equation (36) needs U² in its second term."""
    gradients = np.random.default_rng(U * 10 + K).normal(size=(U, 3)) + 1.0
    central = gradients.mean(0)
    B = math.sqrt(np.mean((gradients**2).sum(1)) / (central @ central))
    exact = np.mean([np.sum(gradients[list(S)].mean(0) ** 2) for S in combinations(range(U), K)]) / (central @ central)
    eta, L, rho = 0.1, 2.0, 0.5
    A = 1 + 2 * rho * (eta**2 * L / 2 * exact - eta)
    fields = dict(learning_rate=eta, smoothness=L, pl=rho, dissimilarity=B, clients=U, participants=K)
    constants = GeometricConstants(epsilon=1.0, delta=1e-3, clip=1.0, samples=1, **fields)
    printed = constants.contraction()
    assert bool(printed.value < A - 1e-6) is (K > 1)
    assert mentions(printed, f"A = {A:.6g}") is mentions(printed, "U²") is (K > 1)


def test_geo_contraction_names_the_broken_assumptions():
    fields = dict(epsilon=1.0, delta=1e-3, clip=1.0, samples=1, clients=10)
    wrong = GeometricConstants(learning_rate=2.0, pl=3.0, dissimilarity=0.5, participants=5, **fields).contraction()
    for words in ("exceeds 1/L", "PL constant", "dissimilarity", "outside (0, 1)"):
        assert mentions(wrong, words)
    assert GeometricConstants(participants=1, **fields).contraction().remarks == ()


def test_geo_local_drift():
    constants = geo(smoothness=2.0, divergence=1.0, lipschitz=3.0)
    assert constants.local_drift(0).value == constants.local_drift(1).value == 0
    # two steps by hand: (1/2)(1.2² − 1) − .1·2 = .02
    assert constants.local_drift(2).value == pytest.approx(0.02)
    assert constants.final_convergence(20, 2).value - constants.convergence(20).value == pytest.approx(0.06)


@pytest.mark.parametrize("vartheta", [0.95, 1.0, 1.05])
@pytest.mark.parametrize("T", [None, 300.0])
def test_geo_optimal_rounds_is_the_brute_force_optimum(vartheta, T):
    constants = geo(vartheta=vartheta, lipschitz=0.3, divergence=0.5)
    found = constants.optimal_rounds(150, T)
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


def test_geo_best_schedule_is_the_root_of_the_contraction():
    """Among geometric schedules and among 200 random ones; the paper's own analysis never wants growing noise."""
    fields = dict(epsilon=1.0, delta=1e-3, clip=1.0, samples=1, clients=100, participants=10)
    constants = GeometricConstants(learning_rate=0.5, pl=0.4, **fields)
    found, A = constants.recommend_schedule(rounds=30), constants.contraction().value
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
    found = GeometricConstants(**setting).recommend_rounds()
    assert found.remarks[0].startswith("Constants of the analysis, assumed")
    real = GeometricConstants(**setting | {"clip": 5 * math.sqrt(25_450 / 10)}).recommend_rounds()
    assert mentions(found, f"M* = {real.value:g}.") and real.value < found.value


# ---------------------------------------------------------------------------------------------------- NbAFL (NBA)

NBA = dict(epsilon=50.0, delta=0.01, N=50, m=1000, C=1.0, Theta=2.0, rho=1.0, B=1.0, mu=3.0, l=0.5, beta=1.0)
NBA_LETTERS = {
    **{"N": "clients", "K": "participants", "m": "samples", "C": "clip", "L": "exposures", "d": "dimension"},
    **{"Theta": "initial_gap", "rho": "smoothness", "B": "dissimilarity", "mu": "proximal", "l": "pl"},
    "beta": "lipschitz",
}


def nba(**letters) -> NbaflConstants:
    """The paper's letters, N = 50 where nothing else is given."""
    return NbaflConstants(**{NBA_LETTERS.get(name, name): value for name, value in (NBA | letters).items()})


@pytest.mark.parametrize(
    ("K", "L", "epsilon", "server"), [(50, 1, 50, 5.961e-5), (50, 25, 50, 0.0), (20, 1, 5, 4.333e-4), (20, 1, 50, 0.0)]
)
def test_nbafl_noise_on_the_aggregate_holds_the_golden_server_noise(K, L, epsilon, server):
    """σ_A² = σ_U²/K + σ_D² (C=1, m=1000, N=50, T=25, δ=.01)."""
    std = nba(epsilon=epsilon, L=L).aggregate_noise_std(25, K).value
    upload = 2 * math.sqrt(2 * math.log(125)) * L / (1000 * epsilon)
    assert math.sqrt(max(std**2 - upload**2 / K, 0)) == pytest.approx(server, rel=2e-4, abs=1e-9)


def test_nbafl_theorem_2_by_hand():
    """μ = 2, ρ = .5, B = 1, l = .5, T = 3, written out number by number."""
    found = nba(mu=2.0, rho=0.5).convergence(3)
    lambda_2 = -1 / 2 + 0.5 / 4 + 0.5 / 8
    P = 1 + 2 * 0.5 * lambda_2
    c = math.sqrt(2 * math.log(125))
    kappa_1 = (1 / 2 + 0.5 / 2) * c / (1000 * (1 - P)) * math.sqrt(2 / (50 * math.pi))
    kappa_0 = 0.25 * c**2 / (1000**2 * (1 - P) * 50)
    expected = P**3 * 2 + (kappa_1 * 3 / 50 + kappa_0 * 9 / 2500) * (1 - P**3)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert mentions(found, "should be 1 + ρB/μ")


CURVATURES = np.array([0.6, 0.8, 1.0, 1.2, 1.4])


def federation_of_parabolas(T, K, epsilon, w0, mu):
    """E F − F* of NbAFL on f_k = h_k w²/2 (exact proximal steps, K of N without replacement), and its constants."""
    N, mean = len(CURVATURES), CURVATURES.mean()
    steps = mu / (mu + CURVATURES)
    spread = (N - K) / (K * (N - 1)) * steps.var()
    B = math.sqrt(np.mean(CURVATURES**2)) / mean
    constants = nba(
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
    std = constants.aggregate_noise_std(T, K).value
    second = w0**2
    for _ in range(T):
        second = (steps.mean() ** 2 + spread) * second + std**2
    return mean / 2 * second, constants


@pytest.mark.parametrize("mu", [1.0, 4.0, 20.0])
@pytest.mark.parametrize("epsilon", [1.0, 30.0, math.inf])
def test_nbafl_rederived_bound_holds_on_an_exact_problem(mu, epsilon):
    for T in (1, 3, 10, 40):
        exact, constants = federation_of_parabolas(T, 5, epsilon, 1.5, mu)
        assert exact <= constants.convergence(T, "rederived").value
        for K in (1, 2, 4, 5):
            exact, constants = federation_of_parabolas(T, K, epsilon, 1.5, mu)
            assert exact <= constants.sampled_convergence(T, K).value


def test_nbafl_contraction_of_all_clients_is_the_limit_of_some():
    constants = nba(rho=1.3, B=1.7, mu=6.0, l=0.2)
    assert constants.sampled_contraction(50).value == constants.contraction().value
    assert constants.sampled_contraction(49).value > constants.contraction().value


def test_nbafl_best_participants_is_the_brute_force_optimum_and_can_lie_inside():
    constants = nba(epsilon=5.0, d=10_000)
    found = constants.recommend_participants(rounds=25)
    values = [constants.sampled_convergence(25, K).value for K in range(1, 51)]
    assert found.value == 1 + int(np.argmin(values)) and 1 < found.value < 50


# ------------------------------------------------------------------------------------------ iteration tuning (ITER)


def iteration(mechanism: str = "laplace", **changes) -> IterationConstants:
    fields = dict(epsilon=2.0, delta=1e-4, clip=0.5, clients=20, participants=5, dimension=3)
    fields |= dict(smoothness=1.0, convexity=0.5, noniid=0.2, gradient_norm=0.7, initial_distance=4.0)
    return IterationConstants(mechanism=mechanism, **fields | changes)


@pytest.mark.parametrize("E", [1, 3, 10, 40])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_iter_theorem_3_bounds_its_own_recursion(E, mechanism):
    """(Appendix F) Y_{k+1} = (1 − μη_k)Y_k + η_k²(ω0 + [k+1 ends a round]·ω1)."""
    T_g, constants = 12, iteration(mechanism)
    omega_0 = constants.noise_free_weight(E).value
    omega_1 = constants.noise_weight().value * E**2 * T_g**constants.z
    gamma, Y = max(8 * 1.0 / 0.5, E), 4.0
    for k in range(E * T_g):
        eta = 2 / (0.5 * (k + gamma))
        Y = (1 - 0.5 * eta) * Y + eta**2 * (omega_0 + (omega_1 if (k + 1) % E == 0 else 0.0))
        assert constants.convergence(k + 1, E, T_g).value >= Y


def test_iter_theorem_3_by_hand():
    """No noise, no drift: Y_10 ≤ γY_0/(k + γ) = 8·9/18."""
    still = dict(clip=0.0, convexity=1.0, noniid=0.0, gradient_norm=0.0, participants=20, initial_distance=9.0)
    assert iteration(**still).convergence(10, 1, 10.0).value == 4.0


def test_iter_noise_free_weight_by_hand():
    # 6·2·.5 + 8·4·9 + 4·9·9·15/(19·5)
    fields = dict(smoothness=2.0, gradient_norm=3.0)
    assert iteration(noniid=0.5, **fields).noise_free_weight(3).value == pytest.approx(6 + 288 + 324 * 15 / 95)
    everyone = iteration(noniid=0.0, clients=7, participants=7, **fields).noise_free_weight(1)
    assert everyone.remarks == () and everyone.value == 0


@pytest.mark.parametrize(("mechanism", "z"), [("laplace", 2), ("gaussian", 1)])
def test_iter_noise_weight_is_the_corollary_at_twice_the_learning_rate(mechanism, z):
    E, T_g, eta = 4, 30, 0.01
    constants = iteration(mechanism, dimension=11, participants=5, clients=50, clip=3.0)
    variance = constants.noise_variance(T_g, 2 * eta * E * 3.0).value
    weight = constants.noise_weight().value
    assert eta**2 * weight * E**2 * T_g**z == pytest.approx(variance)
    assert POWER_OF_ROUNDS[mechanism] == constants.z == z
    # 8pbξ²/(N²ε²) and 8pc2² ln(1/δ)ξ²/(Nε²)
    by_hand = {1: 8 * 11 * 2 * math.log(1e4) * 9 / (50 * 4), 2: 8 * 11 * 5 * 9 / (2500 * 4)}
    assert weight == pytest.approx(by_hand[z])


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_iter_equation_4_is_the_limit_of_theorem_3(mechanism):
    """Large E and T, E ≪ T: the two orders with Theorem 3's constants, here for both E and T times 10."""
    constants = iteration(mechanism, noniid=0.0)
    (first, second), z = constants.orders(), constants.z
    for E, T, rel in ((300, 3_000_000, 1e-2), (3_000, 300_000_000, 1e-3)):
        equation = first * E**2 / T + second * E ** (1 - z) * T ** (z - 1)
        assert constants.convergence(T, E, T / E).value == pytest.approx(equation, rel=rel)


@pytest.mark.parametrize(
    ("mechanism", "setting", "total", "most"),
    [
        ("laplace", dict(epsilon=3, clip=150, clients=5000, participants=500, dimension=11), 120, 12),
        ("gaussian", dict(epsilon=10, delta=1e-4, clip=3, clients=3500, participants=350, dimension=214_590), 240, 24),
    ],
)
def test_iter_recommended_local_steps_scan_the_papers_range(mechanism, setting, total, most):
    """Fig. 5 and 6 stop at E = 12 and 24, where each client takes part once."""
    constants = IterationConstants(mechanism=mechanism, **setting)
    found = constants.recommend_local_steps(total_steps=total)
    scanned = [E for E, _ in found.curve]
    assert scanned == [E for E in range(1, most + 1) if total % E == 0]
    values = [constants.convergence(total, E, total // E).value for E in scanned]
    assert found.value == scanned[int(np.argmin(values))]
    assert (found.value > 1) is (mechanism == "laplace")
    assert not mentions(found, "less than a single round")
    assert mentions(found, "right variance") is (mechanism == "gaussian")
    assert mentions(found, "T^0.333") is (mechanism == "laplace")


@pytest.mark.parametrize(("epsilon", "least"), [(10, 1.50), (20, 1.78), (30, 1.99)])
def test_iter_advice_names_the_c2_from_which_the_noise_is_enough(epsilon, least):
    """schemes.md: the claim is sound from c2 = 1.50, 1.78, 1.99 at δ = 1e-4."""
    small, enough = (iteration("gaussian", epsilon=epsilon, c2=c2) for c2 in (least - 0.01, least + 0.01))
    assert mentions(small.recommend_local_steps(total_steps=20), "is too small")
    assert not mentions(enough.recommend_local_steps(total_steps=20), "is too small")


def test_iter_too_few_rounds_are_refused_in_advice_and_remarked_in_the_bound():
    assert mentions(iteration().convergence(2, 1, 2.0), "less than a single round")
    few = iteration(epsilon=1, clip=1, clients=50, participants=5)
    with pytest.raises(ValueError, match="total_steps must be at least clients/participants = 10"):
        few.recommend_local_steps(total_steps=9)


# --------------------------------------------------------------------------------------- component-adaptive (ADN)


@pytest.mark.parametrize(("epsilon", "sigma", "rounds"), [(0.5, 26.0, 7), (2.0, 26.0, 108), (8.0, 10.0, 208)])
def test_component_rounds_within_the_budget(epsilon, sigma, rounds):
    found = ComponentConstants(epsilon=epsilon, delta=1e-5, sigma=sigma).recommend_rounds()
    assert found.value == rounds and [T for T, _ in found.curve] == list(range(1, rounds + 2))
    fits = [10**power <= 1e-5 for _, power in found.curve]
    assert all(fits[:-1]) and not fits[-1]


@pytest.mark.parametrize("T", [1, 7, 8, 100, 109])
def test_component_curve_is_the_minimum_over_all_orders(T):
    """log10 of (12), and at most δ* = 1e-5 up to the 108 rounds that fit."""
    least = 1 + math.log(1e5) / 2.0
    brute = min((a - 1) * (T * a / (2 * 676) - 2.0) for a in range(2, 5000) if a > least)
    curve = dict(ComponentConstants(epsilon=2.0, delta=1e-5, sigma=26.0).recommend_rounds().curve)
    assert curve[T] == pytest.approx(brute / math.log(10), rel=1e-9)


def test_component_noise_for_the_planned_rounds_is_the_least_that_fits_them():
    for rounds in (1, 30, 500):
        constants = ComponentConstants(epsilon=2.0, delta=1e-5, sigma=26.0)
        [remark] = [r for r in constants.recommend_rounds(rounds=rounds).remarks if "planned" in r]
        alpha = int(remark.split("α = ")[1].rstrip("."))
        sigma = math.sqrt(constants.required_noise(rounds, alpha).value)
        assert f"σ0 = {sigma:.4g} on" in remark
        assert component_rounds(2.0, sigma * (1 + 1e-9), 1e-5) >= rounds
        assert component_rounds(2.0, sigma * (1 - 1e-6), 1e-5) < rounds


# ------------------------------------------------------------------------------------------- Fed-nore (THESIS 3.3)


def nore(**changes) -> FednoreConstants:
    """β = ρ = 1, λ = .01, σ = .1, n = 100, S = C/n = .01."""
    fields = dict(sigma=0.1, samples=100, clip=1.0, strength=0.01, smoothness=1.0, pl=0.2, lipschitz=1.0)
    return FednoreConstants(**fields | {"initial_gap": 2.0} | changes)


def test_fednore_theorem_4_is_its_recursion_and_theorem_5_its_telescope():
    assert nore().pull().value == pytest.approx(1 / (1 + 0.01 * 0.1 * 10 / 0.01)) == 0.5
    l1, q1 = 1 / (1 + 0.03 * 0.1 * 10 / 0.01), 0.01 * (0.003 * 1000 - 1)
    floor = q1 * (1 - l1) + q1**2 / 2
    x = 2.0
    for T in range(1, 30):
        x = (0.2 * l1**2 - 2 * l1 * 0.2 + 1) * x + floor
        assert nore(strength=0.03).convergence(T).value == pytest.approx(x)
        expected = (2.0 / T + floor) / (l1 - l1**2 / 2)
        assert nore(strength=0.03).gradient_convergence(T).value == pytest.approx(expected)


def test_fednore_broken_assumptions_are_named():
    assert mentions(nore(strength=0.0, sigma=1.0).noise_norm(), "negative, impossible for a norm")
    assert mentions(nore().noise_norm(), "q1 = 0 although there is noise")
    steep = nore(smoothness=9.0, strength=0.0)
    assert mentions(steep.convergence(5), "outside [0, 1)") and mentions(steep.convergence(5), "l1ρ = 9")
    assert mentions(steep.gradient_convergence(5), "is not positive")
    assert math.isnan(nore(smoothness=2.0, strength=0.0).gradient_convergence(5).value)
    assert mentions(nore(pl=2.0).convergence(5), "PL constant")


# ------------------------------------------------------------------------------ decentralised (THESIS chapter 5)


def anonymous(**changes) -> DecentralisedConstants:
    """gap = 2, ζ = .5, C = 1, n = 600, m = 100; ε = 8, δ = 1e-5."""
    fields = dict(epsilon=8, delta=1e-5, clip=1.0, samples=600, clients=100, participants=10)
    return DecentralisedConstants(**fields | dict(divergence=0.5, initial_gap=2.0) | changes)


def test_decentralised_noise_meets_its_own_conversion():
    """(A.56): 3.5Ts₁α/(m²σ²) + ln(1/δ)/(α−1) = ε at α = 1 + 2 ln(1/δ)/ε, split in halves."""
    for m_e in (None, 30):
        sigma2 = anonymous().noise_variance(50, 0.7, m_e).value
        alpha, s_1 = 1 + 2 * math.log(1e5) / 8, 0.49 * (m_e or 1)
        assert 3.5 * 50 * s_1 * alpha / (100**2 * sigma2) == pytest.approx(4)
        assert math.log(1e5) / (alpha - 1) == pytest.approx(4)


def test_decentralised_leader_by_hand():
    sampling, privacy = 0.25 * 90 / (10 * 99), 4 * 1.5 * 0.25 / (600**2 * 10)
    for reading, value in (
        ("text", (0.2 - 0.25 + 0.5 * sampling + privacy) / 0.5),
        ("appendix", (0.2 - 0.25 + 2.5 * sampling + privacy) / 0.5),
        ("rederived", (0.2 + 0.25 + 0.5 * sampling + privacy) / 0.5),
    ):
        assert anonymous(smoothness=1.5).leader_convergence(20, 10, 0.25, reading).value == pytest.approx(value)
    assert mentions(anonymous(smoothness=2.5).leader_convergence(20, 10, 0.25), "not below 2")
    assert math.isnan(anonymous(smoothness=2.0).leader_convergence(20, 10, 0.25).value)
    assert mentions(anonymous(smoothness=0.5).leader_convergence(20, 10, 0.25, "text"), "wrong side")


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
    zeta = math.sqrt(np.mean(slopes**2))
    fields = dict(smoothness=L, divergence=zeta, initial_gap=L / 2, clients=3, participants=3, samples=1)
    assert mean <= anonymous(**fields).leader_convergence(T, 3, sigma2, "rederived").value


def test_decentralised_local_noise_of_the_equation_and_of_the_theorem():
    equation = anonymous().local_noise_std(0.5)
    assert equation.value == pytest.approx(1 / 600) and mentions(equation, "multiplier σ/n")
    assert mentions(equation, "m = 100 clients: 0.01.")
    found = anonymous(participants=70).recommend_rounds(max_rounds=50)
    assert mentions(found, "T* of the other readings of Theorem 9") and mentions(found, "multiplier σ/n")


def test_decentralised_recommendations_are_brute_force_optima_inside_the_range():
    setting = dict(epsilon=8.0, delta=1e-5, clip=1.0, samples=100, clients=100, dimension=1_000_000, participants=70)
    spread = DecentralisedConstants(**setting, divergence=2.0)
    found = spread.recommend_participants(rounds=100)

    def at(constants, T, m_tcs):
        sigma2 = 1_000_000 * constants.noise_variance(T, m_tcs / 100).value
        return constants.leader_convergence(T, m_tcs, sigma2, "rederived").value

    assert found.value == 1 + int(np.argmin([at(spread, 100, k) for k in range(1, 101)])) and 1 < found.value < 100
    constants = DecentralisedConstants(**setting)
    rounds = constants.recommend_rounds(max_rounds=300)
    assert rounds.value == 1 + int(np.argmin([at(constants, T, 70) for T in range(1, 301)])) and 1 < rounds.value < 300


# --------------------------------------------------------------------------- reconstruction (THESIS chapter 4)


def attacked(**changes) -> ReconstructionConstants:
    """σ = 2, C = 1, n = 100, g = 2."""
    return ReconstructionConstants(**dict(sigma=2.0, clip=1.0, samples=100, gradient_norm=2.0) | changes)


def test_reconstruction_without_privacy_is_the_noise_free_bound():
    free = attacked(clip=5.0, sigma=0.0, agreement=0.3, attack_steps=10, smoothness=2.0, initial_gap=3.0)
    assert free.norm_ratio().value == 1 and free.norm_ratio().remarks == ()
    assert free.update_factor().value == 1
    assert free.convergence().value == pytest.approx(0.3)


def test_reconstruction_theorem_6_is_the_expectation_of_the_signs():
    k1, s = 1.6, 0.3
    flip = 1 - 1 / k1
    expected = s * 1 + (1 - s) * (-1) * flip + (1 - s) * (1 / k1)
    noisy = attacked(clip=2.0, sigma=6.0, agreement=s)  # k1 = 1 + 6/10
    assert noisy.norm_ratio().value == pytest.approx(k1)
    assert noisy.update_factor().value == pytest.approx(expected)
    assert mentions(attacked(clip=2.0, sigma=80.0, agreement=0.0).update_factor(), "do not descend")


@pytest.mark.parametrize("reading", ["n", "d"])
def test_reconstruction_stops_where_nothing_of_a_step_survives(reading):
    sigma = attacked(dimension=2_500).stopping_scale(reading)
    for factor, sign in ((1 - 1e-6, 1), (1 + 1e-6, -1)):
        assert sign * attacked(dimension=2_500, sigma=sigma * factor).update_factor(reading).value > 0
    assert attacked(agreement=0.5).stopping_scale() == math.inf
    assert attacked(agreement=0.5, sigma=1e9).update_factor().value > 0


def test_reconstruction_advice_is_the_stopping_scale_and_its_curve_rises_towards_it():
    found = attacked(dimension=2_500).recommend_noise()
    assert found.value == attacked().stopping_scale()
    sigmas, bounds = zip(*found.curve)
    assert max(sigmas) < found.value and list(bounds) == sorted(bounds)
    assert mentions(found, f"σ = {attacked(dimension=2_500).stopping_scale('d'):.4g} is enough")
    endless = attacked(agreement=0.5).recommend_noise()
    assert math.isnan(endless.value) and mentions(endless, "no noise stops the attack")


# ------------------------------------------------------------------------------------------------ impossible input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: geo(vartheta=0.0), "vartheta is 0.0; it must be above 0"),
        (lambda: geo(delta=1.0), "delta is 1.0; it must lie strictly between 0 and 1"),
        (lambda: geo(epsilon=math.nan), "epsilon is nan; it must be above 0"),
        (lambda: geo(clients=5, participants=6), "participants is 6; it must be at most clients = 5"),
        (lambda: nba(Theta=-1.0), "initial_gap is -1.0; it must be finite and at least 0"),
        (lambda: nba(N=5, L=3).aggregate_noise_std(2, 5), "exposures is 3; it must be at most T = 2"),
        (lambda: iteration("gaussian", delta=None), "delta must be given"),
        (lambda: iteration("cauchy"), "mechanism is 'cauchy'; it must be one of"),
        (lambda: anonymous().gossip_convergence(1, 4, 4, 0.25), "m_e must be below m_tcs = 4"),
        (lambda: anonymous(eigenvalue=1.5), "eigenvalue must lie in [0, 1]"),
        (lambda: attacked(agreement=1.5), "agreement must be a probability"),
    ],
)
def test_impossible_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(message) and "\n" not in str(error.value) and ". " not in str(error.value)


# ---------------------------------------------------------------------------------------------------------- advice

SETTINGS = {
    "geometric": dict(epsilon=10, delta=1e-3, clip=5, samples=600, clients=100, participants=10, rounds=30),
    "nbafl": dict(epsilon=50, delta=0.01, clip=1, samples=1000, clients=50, rounds=25),
    "iteration-laplace": dict(epsilon=3, clip=150, clients=5000, participants=500, dimension=11, total_steps=120),
    "iteration-gaussian": dict(
        epsilon=9, delta=1e-4, clip=3, clients=70, participants=7, dimension=99, total_steps=240
    ),
    "component": dict(epsilon=0.5, delta=1e-5, sigma=26),
    "fednore1": dict(sigma=8, samples=600, clip=1),
    "anonymous-gossip": dict(
        epsilon=8, delta=1e-5, clip=1, samples=600, clients=100, participants=70, neighbours=30, rounds=50
    ),
    "anonymous-leader": dict(epsilon=8, delta=1e-5, clip=1, samples=600, clients=100, participants=70, rounds=50),
    "ldp": dict(sigma=8, samples=600, clip=1),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_advice_for_every_scheme_with_a_theory(scheme):
    names = theory_of(scheme).accepted()
    assert {name for name, needed in names.items() if needed} <= set(SETTINGS[scheme]) <= set(names)
    advised = scheme_advice(scheme, SETTINGS[scheme])
    assert advised == scheme_advice(scheme, dict(SETTINGS[scheme]))
    for found in advised:
        assert math.isfinite(found.value) and len(found.curve) > 1
        assert all(remark.endswith(".") for remark in found.remarks)
        if scheme != "component":
            assert found.remarks[0].startswith("Constants of the analysis, assumed and not measured:")
        if scheme not in ("component", "ldp"):  # these two curves are no loss
            assert dict(found.curve)[found.value] == min(value for _, value in found.curve if not math.isnan(value))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_advice_refuses_what_it_lacks_and_what_it_does_not_know(scheme):
    for name, needed in theory_of(scheme).accepted().items():
        if needed:
            rest = {key: value for key, value in SETTINGS[scheme].items() if key != name}
            with pytest.raises(ValueError, match=f"The theory of {scheme} also needs {name}"):
                scheme_advice(scheme, rest)
    some = next(iter(theory_of(scheme).accepted()))
    with pytest.raises(ValueError, match=f"did you mean {some}"):
        scheme_advice(scheme, SETTINGS[scheme] | {some + "x": 1})
    for name in theory_of(scheme).accepted().keys() - {"epsilon", "clip"}:
        with pytest.raises(ValueError, match=f"{name} is inf"):
            scheme_advice(scheme, SETTINGS[scheme] | {name: math.inf})


def test_advice_for_a_scheme_without_theory_lists_those_with_one():
    with pytest.raises(ValueError, match="no convergence theory for the scheme 'fedavg', only for geometric, nbafl"):
        scheme_advice("fedavg", {})


def test_advice_uses_the_given_constants():
    given = SETTINGS["nbafl"] | {"smoothness": 2.0, "proximal": 2.5}
    rounds, participants = scheme_advice("nbafl", given)
    assert mentions(rounds, "smoothness = 2") and mentions(participants, "smoothness = 2")
    assert rounds.value == 1 and mentions(rounds, "needs μ > ρB(1 + B/2) = 3")


def test_component_takes_what_its_analysis_uses():
    names = theory_of("component").accepted()
    assert names == {
        **{"epsilon": True, "delta": True, "sigma": True},
        **{"clients": False, "dimension": False, "max_rounds": False, "rounds": False},
    }


def test_advice_takes_whole_numbers_as_the_theory_table_gives_them():
    """Every number of a config's [theory] table is a float."""
    found = scheme_advice("geometric", {name: float(value) for name, value in SETTINGS["geometric"].items()})
    assert found == scheme_advice("geometric", SETTINGS["geometric"])
    assert len(scheme_advice("geometric", SETTINGS["geometric"] | {"max_rounds": 7.0})[0].curve) == 7
    with pytest.raises(ValueError, match=r"max_rounds is 7\.5; it must be a whole number"):
        scheme_advice("geometric", SETTINGS["geometric"] | {"max_rounds": 7.5})
