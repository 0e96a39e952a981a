"""The mechanism audit: scores are likelihood ratios, thresholds never see tested scores, bounds hold and have power."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import exp, sqrt

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon, gaussian_multiplier
from dpfl_audit.audit.two_worlds.draws import audit_scores, audit_trials, delta_at
from dpfl_audit.audit.two_worlds.estimators import clopper_pearson
from dpfl_audit.audit.two_worlds.estimators.bound import GAUSSIAN
from dpfl_audit.audit.two_worlds.estimators.finding import VIOLATED_IF
from dpfl_audit.audit.two_worlds.estimators.separate import Separate, smoothed
from dpfl_audit.audit.two_worlds.likelihood import Expected, LikelihoodRatio, deviations
from dpfl_audit.audit.two_worlds.sequential import BoundRule
from dpfl_audit.audit.worlds.function import audit_mechanism
from dpfl_audit.defenses.randomness import generator
from scipy.stats import beta, binom, laplace, norm
from tiers import quick

DELTA = 1e-5


def gaussian_sum(shift: float, dim: int = 3):
    """Unit noise, and in world 1 the first number larger by `shift`: μ = shift."""

    def update(world: bool, seed: int) -> torch.Tensor:
        vector = torch.randn(dim, generator=torch.Generator().manual_seed(seed))
        vector[0] += shift * world
        return vector

    def noiseless(world: bool) -> torch.Tensor:
        return shift * world * torch.eye(dim)[0]

    return update, noiseless


# --- the score ---


@pytest.mark.parametrize("shape", [1.0, 2.5, "componentwise"])
@pytest.mark.parametrize(("mechanism", "law"), [("gaussian", norm), ("laplace", laplace)])
def test_the_score_is_the_log_likelihood_ratio(mechanism, law, shape):
    """Against scipy's densities, tensor by tensor, with noise of another size in every tensor and world."""
    rng = generator(0, "likelihood")
    sizes, count = (3, 2), 4
    scale = torch.rand(5, generator=rng) + 0.5 if shape == "componentwise" else torch.full((5,), shape)
    centres = [torch.randn(5, generator=rng) for _ in range(2)]
    factor = np.array([[0.7, 1.3], [0.9, 1.1]])  # of the scale, by world and tensor
    messages = torch.randn(count, 5, generator=rng)
    spread = factor**2 if mechanism == "gaussian" else factor
    ratio = LikelihoodRatio(np.column_stack([spread, np.ones(2)]), np.array([3.0, 2.0, 1.0]), mechanism)
    expected = [Expected(c, scale if shape == "componentwise" else shape) for c in centres]
    scores = ratio(*(deviations(messages, e, sizes, mechanism) for e in expected))
    by_world = [
        law(centres[w].numpy(), scale.numpy() * np.repeat(factor[w], sizes)).logpdf(messages.numpy()).sum(1)
        for w in (0, 1)
    ]
    assert scores == pytest.approx(by_world[1] - by_world[0], abs=1e-5)


def test_the_score_of_even_noise_is_the_projection():
    """⟨m − v₀, Δ⟩/(‖Δ‖·std) is (ratio + d²/2)/d with d = ‖Δ‖/std: N(0, 1) without, N(d, 1) with the canary."""
    rng = generator(1, "projection")
    change, std = torch.randn(2000, generator=rng) * 0.02, 0.5
    messages = torch.randn(300, 2000, generator=rng) * std
    ratio = LikelihoodRatio(np.array([[std**2, 1.0]] * 2), np.array([2000.0, 1.0]))
    d = float(change.norm()) / std
    scores = (
        ratio(deviations(messages, Expected(torch.zeros(2000)), [2000]), deviations(messages, Expected(change), [2000]))
        + d * d / 2
    ) / d
    assert scores == pytest.approx((messages @ change / (change.norm() * std)).numpy(), abs=2e-3)
    assert ratio.shift(deviations(change[None], Expected(torch.zeros(2000)), [2000])) == pytest.approx(d, rel=1e-5)


def test_sums_over_millions_of_components_stay_exact():
    messages = torch.randn(1, 3_000_001, generator=generator(0, "long"))
    ((total, _),) = deviations(messages, Expected(torch.zeros(3_000_001)), [3_000_001])
    assert total == pytest.approx(float(messages.double().square().sum()), abs=0.01)


def test_noise_of_one_size_is_not_mistaken_for_two():
    """Fitted to 60 draws the two worlds' sizes differ by chance; a real difference of 20 % is kept."""
    rng = generator(0, "sizes")
    own = [deviations(torch.randn(60, 500, generator=rng), Expected(torch.zeros(500)), [500]) for _ in range(2)]
    same = LikelihoodRatio.fitted(own[0], own[1], [500])
    assert same.spread[0, 0] == same.spread[1, 0] == pytest.approx(1.0, abs=0.03)
    other = LikelihoodRatio.fitted(own[0], 1.44 * own[1], [500])
    assert other.spread[1, 0] / other.spread[0, 0] == pytest.approx(1.44, rel=0.05)


def test_a_component_that_is_not_finite_gives_the_worlds_away():
    def update(world: bool, seed: int) -> torch.Tensor:
        vector = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        vector[2] = float("nan") if world else vector[2]
        return vector

    audit = audit_mechanism(
        update, delta=DELTA, noiseless=lambda world: [0, 0, float("nan") if world else 0, 0], draws=100
    )
    assert audit.counted.epsilon == audit.counted.ceiling > 2.5


# --- thresholds on separate scores ---


def test_smoothed_scores_are_quantiles_of_their_kernel_density():
    scores = norm.ppf((np.arange(2000) + 0.5) / 2000)
    blown = smoothed(scores, 100)
    width = 0.9 * 2000**-0.2
    assert blown == pytest.approx(sqrt(1 + width**2) * norm.ppf((np.arange(100) + 0.5) / 100), abs=0.02)
    assert (smoothed(np.ones(5), 7) == 1).all()


def test_a_perfect_separation_is_cut_in_the_middle():
    separate = Separate(np.linspace(9.9, 10.1, 50), np.linspace(-0.1, 0.1, 50))
    bound = audit_scores(
        np.full(100, 9.0), np.full(100, 1.0), separate, delta=DELTA, confidence=0.95, shift=10.0
    ).counted
    assert bound.epsilon == bound.ceiling
    assert separate.middle == pytest.approx(5.0)
    assert Separate(np.full(50, 3.0), np.full(50, 1.0)).middle == 2.0  # without any noise too


# --- audits ---


@pytest.mark.full
def test_a_gaussian_release_at_epsilon_four_is_shown_to_at_least_a_half():
    """Clopper-Pearson with 50,000 draws a side, the Gaussian bound with 1,000; neither exceeds the truth."""
    update, noiseless = gaussian_sum(1 / gaussian_multiplier(4.0, DELTA))
    many = audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=50_000, calibration=5000, gaussian=True)
    few = audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=1000, gaussian=True)
    assert 2.0 <= many.counted.epsilon <= 4.0 and 3.5 <= many.if_gaussian.epsilon <= 4.0
    assert 2.0 <= few.if_gaussian.epsilon <= 4.0
    assert many.finding(4.0).level == "consistent" and many.finding(1.9).level == "violated"


@pytest.mark.parametrize(("shift", "truth"), quick([(0.0, 0.0), (1.0, gaussian_epsilon(1.0, DELTA))], 1))
def test_bounds_exceed_the_truth_no_more_often_than_promised(shift, truth):
    """No leak at all, and ε = 4.38: at most 5 % of the bounds exceed the truth.

    An exact one-sided test at 1 % does not reject it: 8 of 60 do, which a bound that is wrong in one audit of five
    passes once in fifteen times.
    """
    update, noiseless = gaussian_sum(shift, dim=2)
    # A direction to look in, with nothing there; no draw is shared by the worlds, else the canary changes nothing.
    noiseless = noiseless if shift else (lambda world: [0.001 * world, 0.0])
    audits = [
        audit_mechanism(
            lambda world, seed, update=update: update(world, 2 * seed + world),
            delta=DELTA,
            noiseless=noiseless,
            draws=40,
            calibration=20,
            seed=seed,
            gaussian=True,
        )
        for seed in range(60)
    ]
    for name in ("counted", "if_gaussian"):
        high = sum(getattr(audit, name).epsilon > truth for audit in audits)
        assert binom.sf(high - 1, len(audits), 0.05) > 0.01, (shift, name, high)
    assert sum(audit.chance.epsilon > 0 for audit in audits) <= 3


def test_a_direction_can_be_learned_from_draws():
    update, _ = gaussian_sum(4.0, dim=20)
    audit = audit_mechanism(update, delta=DELTA, draws=300, calibration=200, gaussian=True)
    assert 5 < audit.if_gaussian.epsilon < gaussian_epsilon(1 / 4.0, DELTA)
    assert audit.shift == pytest.approx(4.0, abs=1.0)


def test_noise_that_depends_on_the_data_is_seen_without_any_shift():
    def update(world: bool, seed: int) -> torch.Tensor:
        return torch.randn(2000, generator=torch.Generator().manual_seed(seed)) * (1.2 if world else 1.0)

    audit = audit_mechanism(update, delta=DELTA, noiseless=lambda world: torch.zeros(2000), draws=200)
    assert audit.counted.epsilon > 3


def test_an_audit_is_the_same_again_and_other_with_another_seed():
    update, noiseless = gaussian_sum(2.0)
    first, again, other = (
        audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=100, seed=s).scores_in for s in (1, 1, 2)
    )
    assert (first == again).all() and (first != other).any()


@dataclass(frozen=True)
class Sampled:
    """A unit-noise sum that holds the canary with probability `rate`, drawn in secret."""

    shift: float
    rate: float
    sizes: tuple[int, ...] = (2,)
    mechanism: str = "gaussian"

    def expected(self):
        return Expected(torch.zeros(2)), Expected(torch.tensor([self.shift, 0.0]))

    def draw(self, world, seeds, drawn):
        messages = []
        for seed in seeds:
            rng = generator(seed, "sampled")
            here = world and (drawn or float(torch.rand(1, generator=rng)) < self.rate)
            messages.append(torch.randn(2, generator=rng) + torch.tensor([self.shift * here, 0.0]))
        return torch.stack(messages)


def test_secret_sampling_is_in_the_trials():
    """Drawn with rate ½ half of the trials tell nothing: TPR ≤ .5 at small FPR, and ε is the sampled mechanism's."""
    audit = audit_trials([Sampled(6.0, 0.5)], BoundRule(DELTA), draws=1000, calibration=300)
    assert 0.4 < (audit.scores_in > 9).mean() < 0.6
    assert audit.counted.epsilon > 3


def test_rounds_add_up():
    """Four rounds of shift 1 are one of shift 2."""
    audit = audit_trials([Sampled(1.0, 1.0)] * 4, BoundRule(DELTA), draws=400, calibration=200)
    assert audit.shift == pytest.approx(2.0, abs=0.1)
    assert np.mean(audit.scores_in) - np.mean(audit.scores_out) == pytest.approx(4.0, abs=0.5)  # d² of log-likelihood


def test_how_badly_a_claim_fails_in_delta():
    """50 of 50 recognised, no false alarm: limits .0711 each (1 − .025^(1/50)).

    So at ε = 1 δ ≥ .9289 − e·.0711 = .7356.
    """
    bound = clopper_pearson([1.0] * 50, [0.0] * 50, delta=DELTA, threshold=0.5)
    assert delta_at(bound, 1.0) == pytest.approx(0.7356, abs=1e-4)
    assert delta_at(bound, 10.0) == 0.0


def test_the_worlds_may_trade_places_in_delta():
    """No false alarm and every second one missed says as much as none missed and every second alarm false."""
    half = [1.0] * 50 + [0.0] * 50
    quiet = clopper_pearson(half, [0.0] * 100, delta=DELTA, threshold=0.5)
    alarmed = clopper_pearson([1.0] * 100, half, delta=DELTA, threshold=0.5)
    limits = 1 - 0.025 ** (1 / 100), float(beta.ppf(0.975, 51, 50))
    expected = 1 - limits[1] - exp(0.5) * limits[0]
    assert delta_at(quiet, 0.5) == pytest.approx(delta_at(alarmed, 0.5)) == pytest.approx(expected)


def test_the_bound_to_judge_by_follows_from_the_ceilings():
    update, noiseless = gaussian_sum(5.0)
    audit = audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=100, gaussian=True)
    assert audit.chosen(1.0) is audit.counted
    assert audit.chosen(10.0) is audit.if_gaussian  # counting could show 3.2 at most
    assert audit.chosen(1e6) is audit.if_gaussian  # any number of draws could, if the noise is


# --- no shape is assumed ---


def laplace_sum(true_epsilon: float):
    """One number of L1 sensitivity 1 with Laplace noise of scale 1/ε, and two of noise alone: (ε, 0)-DP exactly."""

    def update(world: bool, seed: int) -> np.ndarray:
        noise = np.random.default_rng(seed).laplace(scale=1 / true_epsilon, size=3)
        return noise + np.array([float(world), 0.0, 0.0])

    return update, lambda world: [float(world), 0.0, 0.0]


def randomised_response(true_epsilon: float):
    """The true bit with probability e^ε/(1 + e^ε), else the other: (ε, 0)-DP exactly."""
    truth = 1 / (1 + exp(-true_epsilon))

    def update(world: bool, seed: int) -> list[float]:
        return [float((np.random.default_rng(seed).random() < truth) == world)]

    return update, lambda world: [float(world)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "true_epsilon", "delta"), quick(product((laplace_sum, randomised_response), (1.0, 6.0), (0.0, DELTA)), 5)
)
def test_a_true_claim_of_pure_dp_is_refuted_no_more_often_than_promised(make, true_epsilon, delta):
    """A bound with 95 % confidence exceeds the truth in at most 5 % of audits, whatever the noise. At ε = 1 the audit
    could show more (4.0), so that it had its chance; an exact test at 1 % does not reject 5 %.
    """
    update, noiseless = make(true_epsilon)
    audits = [
        audit_mechanism(update, delta=delta, noiseless=noiseless, draws=100, calibration=30, seed=seed)
        for seed in range(25)
    ]
    levels = [audit.finding(true_epsilon).level for audit in audits]
    assert binom.sf(levels.count("violated") - 1, len(levels), 0.05) > 0.01, levels
    assert VIOLATED_IF not in levels and all(audit.if_gaussian is None for audit in audits)


def test_pure_dp_can_be_audited():
    """At δ = 0 too a false claim is caught: ε = 4 where .5 is claimed. No Gaussian ε is finite there."""
    update, noiseless = laplace_sum(4.0)
    audit = audit_mechanism(update, delta=0.0, noiseless=noiseless, draws=500, gaussian=True)
    assert audit.finding(0.5).level == "violated" and 0.5 < audit.counted.epsilon <= 4.0
    assert audit.if_gaussian is None


@pytest.mark.full
def test_whoever_assumes_a_shape_gets_a_finding_on_that_condition_alone():
    """Laplace noise at its true ε = 6 taken for Gaussian: the excess stands on the condition that is false, in the
    level and in the sentence, with what holds without it.
    """
    update, noiseless = laplace_sum(6.0)
    found = audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=1000, gaussian=True).finding(6.0)
    assert found.level == VIOLATED_IF
    assert GAUSSIAN in found.sentence and "counting alone" in found.sentence


# --- code that keeps a state ---


class AdaptiveClip:
    """`world` is ignored, so ε = 0; the clip norm follows the norms of earlier calls (Andrew et al. 2021)."""

    clip = 1.0

    def __call__(self, world: bool, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        update = rng.normal(size=20) * 3
        size = float(np.linalg.norm(update))
        self.clip += 0.002 * (1 if size > self.clip else -1)
        return update * min(1, self.clip / size) + rng.normal(size=20) * 0.1


class Counter:
    """Noise that falls from call to call, after `still` calls of equal noise."""

    def __init__(self, still: int) -> None:
        self.calls, self.still = 0, still

    def __call__(self, world: bool, seed: int) -> torch.Tensor:
        self.calls += 1
        noise = torch.randn(5, generator=torch.Generator().manual_seed(seed))
        return world + noise / max(self.calls - self.still, 1) ** 0.25


def own_randomness(world: bool, seed: int) -> torch.Tensor:
    return torch.randn(3)


@pytest.mark.parametrize("noiseless", [None, lambda world: [float(world), *[0.0] * 19]], ids=["learned", "given"])
def test_a_mechanism_that_keeps_a_state_is_refused(noiseless):
    with pytest.raises(ValueError, match="gave another result when it was called again; it must follow from world"):
        audit_mechanism(AdaptiveClip(), delta=DELTA, noiseless=noiseless, draws=1000)


@pytest.mark.parametrize("mechanism", [Counter(0), Counter(30), Counter(200), own_randomness])
def test_a_state_that_shows_late_is_refused_too(mechanism):
    """Some calls are made again at the very end, before anything is reported."""
    with pytest.raises(ValueError, match="gave another result"):
        audit_mechanism(mechanism, delta=DELTA, noiseless=lambda world: [0.0] * 5, draws=100)


def test_worlds_are_drawn_in_random_order():
    """Of a world's tested draws about as many come in the first half of the calls as in the second."""
    order: list[bool] = []

    def update(world: bool, seed: int) -> list[float]:
        order.append(world)
        return (world + np.random.default_rng(seed).normal(size=2)).tolist()

    audit_mechanism(update, delta=DELTA, noiseless=lambda world: [float(world), 0.0], draws=400, calibration=10)
    tested = np.array(order[-810:-10])  # the last calls are some of the first once more
    assert tested.sum() == 400 and 0.01 < binom.cdf(int(tested[:400].sum()), 400, 0.5) < 0.99


def test_a_pure_function_that_hands_out_one_buffer_is_fine():
    buffer = torch.zeros(3)

    def update(world: bool, seed: int) -> torch.Tensor:
        buffer.copy_(torch.randn(3, generator=torch.Generator().manual_seed(seed)))
        buffer[0] += 5.0 * world
        return buffer

    audit = audit_mechanism(update, delta=DELTA, noiseless=lambda world: [5.0 * world, 0, 0], draws=100)
    assert audit.scores_in.std() > 0 and audit.counted.epsilon > 2


# --- numbers as they are sent ---


def test_a_count_without_noise_gives_the_worlds_away_however_large_it_is():
    """1e9 and 1e9 + 3 are two numbers: ε = ∞. In float32 they are one."""
    audit = audit_mechanism(lambda world, seed: [1e9 + 3 * world], delta=DELTA, draws=100)
    assert audit.counted.epsilon == audit.counted.ceiling > 2.5


@pytest.mark.full
def test_what_is_demonstrated_does_not_depend_on_a_public_offset():
    """Laplace noise of scale ¼ beside 0 and beside 2^20: the same mechanism, ε = 4."""
    plain, far = (
        audit_mechanism(
            lambda world, seed, offset=offset: np.array(
                [offset + world + round(np.random.default_rng(seed).laplace(scale=0.25) * 2**10) / 2**10]
            ),
            delta=0.0,
            draws=400,
        )
        for offset in (0.0, 2.0**20)
    )
    assert far.scores_in == pytest.approx(plain.scores_in) and plain.counted.epsilon > 1


@pytest.mark.parametrize("offset", [2**53, -(2**60)])
def test_whole_numbers_that_float64_cannot_hold_are_refused(offset):
    with pytest.raises(ValueError, match="whole numbers beyond 9,007,199,254,740,991"):
        audit_mechanism(lambda world, seed: np.array([offset + world]), delta=DELTA, draws=50)


def test_complex_numbers_are_refused():
    """Their imaginary part would go unseen."""
    with pytest.raises(ValueError, match="real numbers"):
        audit_mechanism(lambda world, seed: np.array([1j * world]), delta=DELTA, draws=50)


@pytest.mark.few(1)
@pytest.mark.parametrize("stray", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_few_draws_that_are_not_finite_do_not_blind_the_audit(stray):
    """A shift of 5 with unit noise, ε = 18.45 and more; in either world 2 % of the draws are thrown away. The centre is
    that of the others.
    """

    def update(world: bool, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        vector = np.array([5.0 * world, 0.0]) + rng.normal(size=2)
        if rng.random() < 0.02:
            vector[0] = stray
        return vector

    learned = audit_mechanism(update, delta=DELTA, draws=400)
    given = audit_mechanism(update, delta=DELTA, draws=400, noiseless=lambda world: [5.0 * world, 0.0])
    assert learned.shift == pytest.approx(given.shift, rel=0.1) and learned.counted.epsilon > 2.5
    assert learned.finding(1.0).level == "violated"
    assert learned.not_finite and f"finite: {learned.not_finite}" in learned.finding(1.0).sentence
    drawn = 2 * (400 + 100 + 100)  # tested, calibration, centre
    assert 0.005 < binom.cdf(learned.not_finite, drawn, 0.02) < 0.995


def test_a_world_that_is_never_finite_differs_from_one_that_is():
    def update(world: bool, seed: int) -> list[float]:
        return [float("inf") if world else float(np.random.default_rng(seed).normal())]

    audit = audit_mechanism(update, delta=DELTA, draws=100)
    assert audit.counted.epsilon == audit.counted.ceiling


# --- a canary without effect ---


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("noiseless", [None, lambda world: [1.0, 1.0]], ids=["learned", "given"])
def test_a_canary_that_changes_nothing_is_refused(noise, noiseless):
    """Nothing was tested, so nothing may be called consistent."""

    def update(world: bool, seed: int) -> np.ndarray:
        return 1.0 + noise * np.random.default_rng(seed).normal(size=2)

    with pytest.raises(ValueError, match="the same with the canary as without it for each of 50 seeds"):
        audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=100)


def test_a_canary_that_rarely_changes_something_is_audited():
    """Drawn with rate 1/20: of 100 seeds some have it (all but .6 %)."""

    def update(world: bool, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return rng.normal(size=1) + 8.0 * (world and rng.random() < 0.05)

    audit = audit_mechanism(update, delta=DELTA, draws=400, calibration=100)
    assert audit.finding(5.0).level == "nothing shown"


# --- mixtures, and what thresholds follow from ---


def test_the_score_under_a_secret_draw_is_that_of_the_mixture():
    """At rate q: ln(((1 − q)·p₀ + q·p₁)/p₀), by scipy's densities."""
    rng, rate = generator(0, "mixture"), 0.2
    messages, centres = torch.randn(6, 3, generator=rng), torch.randn(2, 3, generator=rng)
    ratio = LikelihoodRatio(np.ones((2, 2)), np.array([3.0, 1.0]), rate=rate)
    scores = ratio(*(deviations(messages, Expected(centre), [3]) for centre in centres))
    p0, p1 = (np.exp(norm(centre.numpy()).logpdf(messages.numpy()).sum(1)) for centre in centres)
    assert scores == pytest.approx(np.log(((1 - rate) * p0 + rate * p1) / p0), abs=1e-5)


@dataclass
class OtherTested:
    """A unit-noise sum whose first `calibration` draws a world are always the same, and all others follow `salt`."""

    salt: int
    calibration: int
    sizes: tuple[int, ...] = (2,)
    mechanism: str = "gaussian"
    rate: float = 1.0

    def __post_init__(self) -> None:
        self.given = [0, 0]

    def expected(self):
        return Expected(torch.zeros(2)), Expected(torch.tensor([2.0, 0.0]))

    def draw(self, world, seeds, drawn):
        salts = [0 if self.given[world] + i < self.calibration else self.salt for i in range(len(seeds))]
        self.given[world] += len(seeds)
        noise = [torch.randn(2, generator=generator(seed, "noise", salt)) for seed, salt in zip(seeds, salts)]
        return torch.stack(noise) + torch.tensor([2.0 * world, 0.0])


def test_no_threshold_follows_from_tested_draws():
    """In the first block, that is; in later ones it follows from the blocks before. Each ε has a threshold of its own,
    and the one that is told is that of the ε that was refuted."""
    tested = [
        audit_trials([OtherTested(salt, 100)], BoundRule(DELTA, gaussian=True), draws=10, calibration=100)
        for salt in (1, 2, 3, 4)
    ]
    assert len({tuple(each.scores_in) for each in tested}) == 4
    by_epsilon: dict[float, set[float]] = {}
    for each in tested:
        by_epsilon.setdefault(each.counted.epsilon, set()).add(each.counted.threshold)
    assert len(by_epsilon) == 2 and all(len(thresholds) == 1 for thresholds in by_epsilon.values())
    assert len({each.if_gaussian.threshold for each in tested}) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 5}, "from 10 to"),
        ({"sizes": [1, 1]}, "add up to 2"),
        ({"noiseless": lambda world: [[0.0]]}, "must give a vector"),
        ({"noiseless": lambda world: [0.0] * (2 + world)}, "2 and 3 numbers"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    update, noiseless = gaussian_sum(1.0)
    with pytest.raises(ValueError, match=message):
        audit_mechanism(update, **{"delta": DELTA, "noiseless": noiseless, "draws": 50, **change})
