"""The schemes that the papers compare themselves with: their authors' goldens, rounds by hand, and what is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import comb, exp, fsum, inf, log, sqrt, tanh
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from dpfl_audit.audit.proof.theorems.composition import epsilon
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proof.theorems.response import response_epsilon, response_renyi
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.defenses import claims, engine
from dpfl_audit.defenses.claims.gaussian import TF_PRIVACY_ORDERS, sampled_renyi
from dpfl_audit.defenses.data.dataset import Dataset, make
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalResult, LocalTraining, NoiseInside, PerExample
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.presets.adap_dpfl import ORDERS
from dpfl_audit.defenses.releases import Release, ResponseLaw, Sampling
from dpfl_audit.defenses.schedule import DecayWhileFalling, RoundPlan
from dpfl_audit.defenses.scheme import Context, Scheme
from dpfl_audit.defenses.steps.adapt import AdaptClip
from dpfl_audit.defenses.steps.clip import SampledSpread
from dpfl_audit.defenses.steps.components import ClipComponents, PerturbComponents
from dpfl_audit.defenses.steps.perturb import local_release
from dpfl_audit.defenses.steps.respond import ClipRange, Respond
from dpfl_audit.defenses.wire import SERVER, Message, Parcel, Wire
from stated import changed, in_round, stated
from tiers import quick
from torch import Tensor, nn

SGD = LocalTraining(optimiser="sgd", lr=0.1, batch_size=4)
ENGINES = pytest.mark.parametrize("engine", [looped, batched], ids=["looped", "batched"])


context = partial(in_round, num_examples=8)


def flat(numbers: int) -> Layout:
    return Layout(("w",), ((numbers,),))


def blobs(records: int = 16) -> Dataset:
    rng = torch.Generator().manual_seed(5)
    x, y = torch.rand(records, 6, generator=rng), torch.randint(3, (records,), generator=rng)
    return make("blobs", (x, y), (x[:6], y[:6]), (x[:0], y[:0]), 3, {}, published=([0.0] * 6, [1.0] * 6))


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def build(name: str, clients: int = 2, local: LocalTraining = SGD, **parameters: Any) -> Scheme:
    preset = PRESETS[name]
    return preset.scheme(preset.parameters(**parameters), local, Population((8,) * clients, Layout.of(net())))


def uploads(scheme: Scheme, seed: int = 0, key: str = "") -> list[Message]:
    messages: list[Message] = []
    wire = Wire(lambda m: messages.append(m) if m.sender_party != SERVER else None)
    run_many([Federation(scheme, net(), blobs(), [torch.arange(8), torch.arange(8, 16)], seed, wire, key=key)])
    return messages


def price(messages: Sequence[Message], unit: str, delta: float = 1e-5, adjacency: str = "zero_out") -> float:
    releases = frozenset[Release]().union(*(m.releases for m in messages))
    return proven(releases, subject=0, unit=unit, adjacency=adjacency, delta=delta).epsilon


# --- Fed-CDP: its authors' accountant, and what it guarantees


@pytest.mark.parametrize(
    ("rate", "steps", "golden"),
    [
        (0.01, 10_000, 0.8227),
        (0.01, 6_000, 0.6356),
        (0.01, 1_000, 0.2760),
        (0.01, 300, 0.1467),
        (0.1, 101, 0.8536),
        (0.1, 61, 0.6677),
        (0.1, 11, 0.3025),
    ],
)
def test_fed_cdp_spends_what_its_accountant_says(rate, steps, golden):
    assert claims.sampled_gaussians_epsilon(rate, [(6.0, steps)], 1e-5) == pytest.approx(golden, abs=6e-5)


def test_three_layers_clipped_apart_have_root_three_times_the_norm():
    """σ/√3: 1.468 as the code converts RDP, 1.219 as it is converted today; the claim of .8227 ignores √Λ."""
    sigma = 6 / sqrt(3)
    assert claims.sampled_gaussians_epsilon(0.01, [(sigma, 10_000)], 1e-5) == pytest.approx(1.468, abs=5e-4)
    draw = Draw("gaussian", 1 / sigma, "poisson", 1, 100, 1 / sigma)
    assert epsilon(((draw, 10_000),), 1e-5, use_pld=False)[0] == pytest.approx(1.219, abs=2e-3)


@pytest.mark.parametrize(
    ("schedule", "golden"),
    quick(
        [
            ("linear", 0.5748),
            ("exponential", 0.6372),
            ("cyclic", 0.4996),
            ("staircase", 0.5355),
            ("staircase-coded", 0.6158),
            ("exponential-epsilon", 0.9007),
        ],
        *(3, 4),
    ),
)
def test_schedules_spend_what_the_accounting_file_says(schedule, golden):
    """10,000 steps at q = .01; the coded staircase falls by rounds of 100 steps."""
    middle = 0 if schedule == "staircase-coded" else 50  # of the hundred steps that are taken as one
    sigmas = {claims.alpha_sigma(schedule, (t + middle) / 10_000): 0 for t in range(0, 10_000, 100)}
    for t in range(0, 10_000, 100):
        sigmas[claims.alpha_sigma(schedule, (t + middle) / 10_000)] += 100
    spent = claims.sampled_gaussians_epsilon(0.01, list(sigmas.items()), 1e-5, tuple(range(2, 64)))
    assert spent == pytest.approx(golden, abs=2e-4)


def test_schedules_begin_at_15_and_end_where_the_code_has_them():
    starts = {name: claims.alpha_sigma(name, 0.0) for name in ("linear", "staircase", "exponential", "cyclic")}
    assert all(value == pytest.approx(15.0, abs=0.04) for value in starts.values())
    ends = [claims.alpha_sigma(name, 1.0) for name in ("linear", "exponential", "cyclic")]
    assert ends == pytest.approx([4.85, 4.85, 4.87], abs=6e-3)
    assert claims.alpha_sigma("staircase", 0.9999) == pytest.approx(5.865)
    coded = [claims.alpha_sigma("staircase-coded", r / 100) for r in (0, 1, 9, 10, 99)]
    assert coded == [15, 14, 14, 13, 4]
    assert [claims.alpha_sigma("exponential-epsilon", x) for x in (0, 1)] == pytest.approx([15.78, 2.99], abs=0.005)
    with pytest.raises(ValueError, match="from 0 to 1"):
        claims.alpha_sigma("linear", 1.01)


@pytest.mark.parametrize("rounds", [1, 3])
def test_disjoint_batches_cost_a_record_one_gaussian_an_epoch_and_a_client_its_batches(rounds):
    """Four tensors, σ = 6: multiplier 6/√4 for each epoch of a record. A client's step holds 4 of its 8 records."""
    sent = uploads(build("fed-cdp", rounds=rounds, local=replace(SGD, epochs=2)))
    assert price(sent, "record") == pytest.approx(gaussian_epsilon(3 / sqrt(2 * rounds), 1e-5), rel=1e-6)
    assert price(sent, "client") == pytest.approx(gaussian_epsilon(3 / (4 * sqrt(4 * rounds)), 1e-5), rel=1e-6)
    assert price(sent, "record", adjacency="replace_one") == pytest.approx(
        gaussian_epsilon(1.5 / sqrt(2 * rounds), 1e-5), rel=1e-6
    )


def test_a_partition_that_ends_within_an_epoch_counts_its_ends():
    """Two batches an epoch: three steps may begin with the second one, and hold a record three times at most; here
    ceil(3/2) + 1.
    """
    (one,) = uploads(build("fed-cdp", rounds=1))[0].releases
    assert one.sampling == Sampling("partition", 8, 4, "record") and one.steps == 2

    def cost(steps: int) -> float:
        return proven([changed(one, steps=steps)], subject=0, unit="record", adjacency="zero_out", delta=1e-5).epsilon

    assert [cost(s) for s in (1, 2, 3, 4, 5)] == pytest.approx(
        [gaussian_epsilon(3 / sqrt(times), 1e-5) for times in (1, 1, 3, 2, 4)], rel=1e-6
    )


@pytest.mark.full
def test_poisson_batches_are_amplified_as_the_claim_assumes():
    sent = uploads(build("fed-cdp", rounds=2, batches="poisson"))
    draw = Draw("gaussian", 1 / 3, "poisson", 4, 8, 1 / 3)
    assert price(sent, "record") == pytest.approx(epsilon(((draw, 4),), 1e-5)[0], rel=1e-3)


def test_fed_cdp_needs_whole_epochs():
    with pytest.raises(ValueError, match="give epochs instead"):
        build("fed-cdp", local=replace(SGD, epochs=None, steps=3))


def test_fed_sdps_server_adds_noise_over_one_tensors_clip():
    """std σC/K_t on the mean of K_t updates whose whole norm is C√Λ: multiplier σ/√4."""
    scheme, messages = build("fed-sdp", rounds=1, clip=2.0), []
    federation = Federation(scheme, net(), blobs(), [torch.arange(8), torch.arange(8, 16)], 0, Wire(messages.append))
    run_many([federation])
    last = messages[-1]
    (noise,) = [r for r in Parcel(last.vector, inherits=last.inherits).revealed if r.mechanism == "gaussian"]
    assert noise.noise_std == pytest.approx(6 * 2 / 2) and noise.bound_norm == pytest.approx(2 * sqrt(4) / 2)
    assert 1 / noise.ratio == pytest.approx(3)


# --- Fed-αCDP and DP-dynS: noise by a private norm


class Two(nn.Module):
    """Two tensors whose gradients by record are the record's own halves, with a loss of −2·target·w·x at w = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(1, 2)), nn.Parameter(torch.zeros(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :2] @ self.a.T + x[:, 2:] @ self.b.T


def job(rule: PerExample, **changes: Any) -> LocalJob:
    """½(w·x − 1)² at w = 0 has gradient −x: records (3, 4 | 0, 1) and (0, 0 | 6, 8), so norms 5, 1 and 0, 10."""
    module = Two()
    x = torch.tensor([[3.0, 4.0, 0.0, 1.0], [0.0, 0.0, 6.0, 8.0]])
    training = LocalTraining(optimiser="sgd", lr=1.0, batch_size=2, loss="squared_error", per_example=rule)
    layout = Layout.of(module)
    return LocalJob(
        module, layout, training, torch.zeros(4), x, torch.ones(2), torch.tensor([[0, 1]]), "update", 1.0, **changes
    )


@ENGINES
@pytest.mark.parametrize(
    ("rule", "stds"),
    [
        (PerExample(4.0, 3.0, per_layer=True), (12, 12)),  # σC
        (PerExample(4.0, 3.0, per_layer=True, scale="largest"), (3 * 4, 3 * 4)),  # norms clipped to 4, 1, 0, 4
        (PerExample(7.0, 3.0, per_layer=True, scale="largest"), (3 * 5, 3 * 7)),
        (PerExample(7.0, 3.0, scale="largest"), (21, 21)),  # whole norms √26 and 10, clipped to 7
        (PerExample(32.0, 3.0, per_layer=True, scale="mean", least=0.1), (22.5, 22.5)),  # 3·(5 + 10)/2
        (PerExample(8.0, 3.0, per_layer=True, scale="mean", least=6.0), (21, 21)),  # 3·(6 + 8)/2
    ],
)
def test_noise_is_scaled_by_the_norms_of_its_batch(rule, stds, engine, monkeypatch):
    """Drawn std of each tensor; the mean of a step's two records is noised by half of it."""
    drawn: list[Tensor] = []

    def draw(mechanism: str, noise_std: Any, dim: int, rng: Any) -> Tensor:
        drawn.append(torch.as_tensor(noise_std, dtype=torch.float64).expand(dim))
        return torch.zeros(dim, dtype=torch.float64)

    monkeypatch.setattr("dpfl_audit.defenses.engine.draw", draw)
    (result,) = engine([job(rule, noise=0.5)])
    assert drawn[0].tolist() == pytest.approx([stds[0] / 2] * 2 + [stds[1] / 2] * 2)
    if rule.scale == "clip":
        assert result.inside is None
    else:
        assert result.inside.noise_std == pytest.approx(sqrt((stds[0] ** 2 + stds[1] ** 2) / 2) / 4)


@ENGINES
def test_each_tensor_is_clipped_by_itself(engine):
    """To 4: (3, 4)·.8 | (0, 1) and 0 | (6, 8)·.4; the step is their mean."""
    (result,) = engine([job(PerExample(4.0, 0.0, per_layer=True))])
    assert result.value.tolist() == pytest.approx([1.2, 1.6, 1.2, 2.1], rel=1e-5)


def test_a_private_scale_proves_nothing_and_the_ledger_has_the_noise_drawn():
    for sensitivity, words in (("code", "mean gradient norm"), ("paper", "largest gradient norm")):
        (sent, _) = uploads(build("fed-alpha-cdp", rounds=1, sensitivity=sensitivity))
        (release,) = sent.releases
        assert words in release.problem and price([sent], "record") == inf
        assert 0 < release.noise_std < 15 * 4 / 4  # σ·S/B with S far below C


def test_sigma_falls_from_round_to_round():
    """Linear, T = 4: 15, 12.4625, 9.925, 7.3875, over a public clip what is drawn."""
    scheme = build("fed-alpha-cdp", rounds=4)
    assert scheme.local.per_example is not None and scheme.local.per_example.noise_multiplier == 15.0
    factors = [scheme.schedule.plan(t, {}).noise for t in range(4)]
    assert [15 * f for f in factors] == pytest.approx([15, 12.4625, 9.925, 7.3875])
    public = replace(scheme, local=replace(scheme.local, per_example=PerExample(4.0, 15.0, per_layer=True)))
    stds = {m.round: next(iter(m.releases)).noise_std for m in uploads(public)}
    assert [stds[t] for t in range(4)] == pytest.approx([15, 12.4625, 9.925, 7.3875])


def test_dp_dyns_with_noise_on_the_clip_is_dp_sgd():
    ours, theirs = (
        uploads(build(name, rounds=1, clip=4.0, sigma=6.0, **more))
        for name, more in (("dp-dyns", {"noise_on": "clip"}), ("dpsgd", {}))
    )
    assert [m.vector.tolist() for m in ours] == [m.vector.tolist() for m in theirs]
    assert price(ours, "record") == price(theirs, "record")


# --- LDP-FL: one of two values


@pytest.mark.parametrize(("eps", "golden"), [(0.1, 20.0167), (0.5, 4.0830), (1.0, 2.163953), (4.0, 1.03731)])
def test_the_spread_of_two_values(eps, golden):
    within, at = ClipRange(0.0, 1.0), context(flat(100))
    sent = Respond(within, eps)(Parcel(torch.zeros(100)), at)
    assert sorted(set(sent.vector.tolist())) == pytest.approx([-golden, golden], rel=1e-5)


def test_sent_weights_are_the_two_values_with_their_probabilities():
    """40,000 of each weight: within 4.5 deviations of p, and the mean of what is sent is the weight, with the variance
    r²K² − w². The largest and the least p have Theorem 1's ratio e.
    """
    weights = torch.tensor([0.0, 0.03, 0.075, -0.2, 0.5]).repeat_interleave(40_000)
    within = ClipRange(0.0, 0.075)
    at = context(flat(len(weights)))
    sent = Respond(within, 1.0)(within(Parcel(weights), at), at)
    low, high = sorted(set(sent.vector.tolist()))  # on a grid, where their sums are exact
    assert high == -low == pytest.approx(0.075 / tanh(0.5), rel=1e-12) == pytest.approx(0.162297, abs=1e-6)
    chances = (0.5, 0.592423, 0.731059, 0.268941, 0.731059)
    for w, p, values in zip((0.0, 0.03, 0.075, -0.075, 0.075), chances, sent.vector.view(5, -1)):
        assert abs((values == high).double().mean().item() - p) < 4.5 * sqrt(p * (1 - p) / 40_000)
        assert values.mean().item() == pytest.approx(w, abs=4.5 * sqrt((high**2 - w**2) / 40_000))


def test_every_upload_of_ldp_fl_holds_two_values_in_float32_too():
    centre, radius = 0.01, 0.1
    for message in uploads(build("ldp-fl", rounds=1, centre=centre, radius=radius, epsilon=0.5)):
        spread = radius / tanh(0.25)
        low, high = (torch.tensor(v).float().item() for v in (centre - spread, centre + spread))
        assert set(message.vector.tolist()) == {low, high}


def test_an_adaptive_range_is_each_tensors_own():
    layout, start = Layout(("a", "b"), ((2,), (3,))), torch.tensor([1.0, 3.0, -0.01, 0.0, 0.01])
    centre, radius = ClipRange(9.0, 0.075, adaptive=True).of(context(layout, start=start))
    assert centre.tolist() == pytest.approx([2, 2, 0, 0, 0]) and radius.tolist() == pytest.approx([1, 1, *[0.075] * 3])


def test_a_weight_that_is_no_number_is_answered_too():
    within, at = ClipRange(0.0, 1.0), context(flat(3))
    sent = Respond(within, 1.0)(within(Parcel(torch.tensor([float("nan"), inf, -inf])), at), at)
    assert bool(torch.isfinite(sent.vector).all())


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_an_upload_of_ldp_fl_costs_epsilon_for_each_of_its_weights(unit, adjacency):
    """53 weights, two rounds, ε = .5: pure DP of 2·53·.5, and at δ = 1e-5 the exact ε of 106; against 106 fair coins
    where a client is left out, as weights are about 0.
    """
    sent = uploads(build("ldp-fl", rounds=2, epsilon=0.5))
    assert len(sent[0].vector) == 53
    coins = (unit, adjacency) == ("client", "zero_out")
    pure = 106 * log((exp(0.5) + 1) / 2) if coins else 53.0
    assert price(sent, unit, 0.0, adjacency) == pytest.approx(pure)
    assert price(sent, unit, 1e-5, adjacency) == pytest.approx(response_epsilon(0.5, 106, 1e-5, coins), rel=1e-6)
    assert build("ldp-fl", rounds=2, epsilon=0.5).claim.epsilon(2, 1e-5) == 0.5


def test_responses_compose_as_dp_accounting_has_it():
    """On a grid of multiples of ε nothing is rounded."""
    one = pld.from_randomized_response(2 / (1 + exp(1)), 2, value_discretization_interval=1.0)
    expected = one.self_compose(100).get_epsilon_for_delta(1e-5)
    assert response_epsilon(1.0, 100, 1e-5) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("eps", "count"), [(1.0, 100), (0.5, 40), (2.0, 7)])
def test_responses_compose_as_kairouz_has_it(eps, count):
    """Theorem 3.3 term by term: δ at the ε given is the δ asked for."""
    reached = response_epsilon(eps, count, 1e-5)
    truth = exp(eps) / (1 + exp(eps))
    delta = fsum(
        comb(count, k) * truth**k * (1 - truth) ** (count - k) * (1 - exp(reached - (2 * k - count) * eps))
        for k in range(count + 1)
        if (2 * k - count) * eps > reached
    )
    assert 0.999e-5 < delta <= 1e-5


@pytest.mark.parametrize(("eps", "count"), [(2.0, 2), (1.0, 9), (6.0, 6), (0.1, 12)])
def test_responses_about_zero_against_fair_coins(eps, count):
    """All outcomes are counted, in both orders. With many numbers it is about half of what any two values cost."""
    p = exp(eps) / (1 + exp(eps))
    ups = np.arange(count + 1)
    answers = np.array([comb(count, k) * p**k * (1 - p) ** (count - k) for k in ups])
    coins = np.array([comb(count, k) * 0.5**count for k in ups])

    def excess(at):
        return max(np.maximum(a - exp(at) * b, 0).sum() for a, b in ((answers, coins), (coins, answers)))

    release = stated(ResponseLaw(1.0, eps, about_zero=True), steps=count)
    found = proven([release], subject=0, unit="client", adjacency="zero_out", delta=1e-3).epsilon
    assert excess(found) <= 1e-3 * (1 + 1e-6) and (found == 0 or excess(found * (1 - 1e-6)) > 1e-3)
    orders = np.array([1.5, 4.0])
    renyi = [np.log((a**o * b ** (1 - o)).sum()) / (o - 1) for o in orders for a, b in ((answers, coins),)]
    other = [np.log((b**o * a ** (1 - o)).sum()) / (o - 1) for o in orders for a, b in ((answers, coins),)]
    assert count * response_renyi(eps, orders, fair=True) == pytest.approx(np.maximum(renyi, other))


def test_whoever_is_not_at_zero_without_the_subject_costs_any_two_values():
    many = {"steps": 400}
    about = stated(ResponseLaw(1.0, 0.05, about_zero=True), **many)
    asked = {"subject": 0, "unit": "client", "adjacency": "zero_out", "delta": 1e-5}
    half, whole = proven([about], **asked).epsilon, proven([about], **{**asked, "adjacency": "replace_one"}).epsilon
    assert half == pytest.approx(gaussian_epsilon(1 / (0.025 * sqrt(400)), 1e-5), rel=0.03)
    assert whole == pytest.approx(response_epsilon(0.05, 400, 1e-5), rel=1e-6) and whole > 2 * half
    assert proven([about], **{**asked, "unit": "record"}).epsilon == whole
    assert proven([changed(about, anywhere=True)], **asked).epsilon == whole
    assert proven([stated(ResponseLaw(1.0, 0.05), **many)], **asked).epsilon == whole
    beside = [about, stated(10.0)]  # with Gaussian noise, by PLD in both orders
    assert half < proven(beside, **asked).epsilon < whole + gaussian_epsilon(10.0, 1e-5)


def test_responses_at_the_ends():
    assert response_epsilon(1.0, 7, 0.0) == 7.0 and response_epsilon(1.0, 1, 0.9) == 0.0
    assert response_epsilon(0.1, 3, 1e-12) == pytest.approx(0.3, rel=1e-6)
    mean = response_renyi(0.7, np.array([1 + 1e-7]))[0]  # the KL divergence
    assert mean == pytest.approx(0.7 * tanh(0.35), rel=1e-3)
    assert response_renyi(0.7, np.array([1e6]))[0] == pytest.approx(0.7, rel=1e-5)


def test_no_factor_on_noise_is_asked_of_a_response():
    from dpfl_audit.audit.proven.accounting import Exposure

    exposed = Exposure.of(uploads(build("ldp-fl", rounds=1))[0].releases, [0])
    with pytest.raises(ValueError, match="lower the ε"):
        exposed.worst_noise_scale_for(unit="client", adjacency="zero_out", delta=1e-5, target_epsilon=1.0)


# --- adap DP-FL


@pytest.mark.full
@pytest.mark.parametrize(("share", "rounds", "golden"), [(0.4, 17_079, 2.12), (0.45, 15_181, 2.0), (0.5, 13_663, 1.89)])
def test_adap_dpfls_own_figures_fit_together(share, rounds, golden):
    """q = 78/6000, σ from 6 to 3.03 by .9999 where that share of the rounds decays evenly: ε near the 2 printed."""
    falls = Counter(int(share * t) // 40 * 40 + 20 for t in range(rounds))
    assert 6 * 0.9999 ** (share * rounds) == pytest.approx(3.03, abs=1e-3)
    total = sum(n * sampled_renyi(78 / 6000, 6 * 0.9999**k, ORDERS) for k, n in falls.items())
    assert float((total + log(1e5) / (np.array(ORDERS) - 1)).min()) == pytest.approx(golden, abs=0.012)


def test_sigma_falls_after_three_falls_of_the_loss_in_a_row():
    """J(w_0..2) = ∞, so J(w_3..5) falling make σ_6 = βσ; J(w_t) is the loss after t rounds."""
    schedule = DecayWhileFalling(20, 0.5)
    falling = [10.0 - t for t in range(20)]  # J(w_1), J(w_2), …
    noise = [schedule.plan(t, {"test_loss": falling[:t]}).noise for t in range(9)]
    assert noise == [1, 1, 1, 1, 1, 1, 0.5, 0.25, 0.125] == [plan.noise for plan in schedule.least()[:9]]
    bent = [9.0, 8.0, 7.0, 6.0, 6.5, 6.0, 5.0, 4.0, 3.0]  # J(w_5) rises: the next three falls end at J(w_8)
    assert [schedule.plan(t, {"test_loss": bent[:t]}).noise for t in range(10)] == [1] * 9 + [0.5]
    assert schedule.plan(20, {"test_loss": falling}) is None and schedule.worst([3]) == schedule.least()
    assert DecayWhileFalling(3, 1.0).plan(1, {}) == RoundPlan()


def adapting(of: str, inside: NoiseInside | None, noise: float = 1.0) -> tuple[Context, Parcel]:
    rule = PerExample(2.0, 3.0, adapts=True)
    training = replace(SGD, per_example=rule)
    module = Two()
    at = context(Layout.of(module), result=LocalResult(torch.zeros(4), inside=inside), plan=RoundPlan(noise))
    parcel = Parcel(torch.zeros(4), releases=frozenset({local_release(job(rule), at)}))
    return at, AdaptClip(training, 0.5, of)(parcel, at)  # type: ignore[arg-type]


def test_the_next_clip_is_alpha_times_the_mean_norm():
    """Σ of clipped norms 6 over L = 4, α = .5: .75 without noise; its noise has std σC/L."""
    inside = NoiseInside(0.1, 6.0, 8.0)
    quiet, _ = adapting("norms", inside, 0.0)
    assert quiet.memory == {"clip_norm": pytest.approx(0.75)}
    after, _ = adapting("gradient", inside)
    assert after.memory == {"clip_norm": pytest.approx(4.0)}
    noisy, _ = adapting("norms", inside)
    assert noisy.memory["clip_norm"] != pytest.approx(0.75, rel=1e-3)


def test_the_second_release_of_a_lot_is_priced():
    one, two = (adapting(of, None)[1] for of in ("gradient", "norms"))
    (single,), (joint,) = one.releases, two.releases
    assert 1 / single.ratio == pytest.approx(3.0) and 1 / joint.ratio == pytest.approx(3 / sqrt(2))


@pytest.mark.parametrize("engine", [looped, batched], ids=["looped", "batched"])
def test_a_client_clips_to_the_norm_that_it_remembers(engine):
    """Round 1's clip is α times round 0's mean of clipped norms, computed here from the records' own gradients."""
    kept: list[tuple[int, float]] = []
    scheme = build("adap-dpfl", rounds=2, clip=0.05, sigma=1e-9, alpha=2.0, beta=1.0, local=replace(SGD, batch_size=8))
    federation = Federation(scheme, net(), blobs(), [torch.arange(8), torch.arange(8, 16)], 0)
    jobs_of: list[LocalJob] = []

    def spy(jobs: Sequence[LocalJob]) -> list[LocalResult]:
        jobs_of.extend(jobs)
        return engine(jobs)

    run_many([federation], spy)
    for made in jobs_of:
        assert made.training.per_example is not None
        kept.append((len(made.batches), made.training.per_example.clip_norm))
    assert [clip for _, clip in kept] == pytest.approx([0.05, 0.05, 0.1, 0.1], rel=1e-3)  # every gradient is clipped


# --- ADN's own code, and PrivateDL


def test_components_by_the_code_of_their_authors():
    """β = 1.1: s = 1.1·|w − ηg − w_0|, updates within ± s, noise √m·σ0·s/B by tensor; by hand."""
    local = LocalTraining(optimiser="sgd", lr=0.5, batch_size=10, keep_last=True)
    layout = Layout(("a", "b"), ((1,), (4,)))
    start = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    # w − ηg = 2, and 1 in the second tensor
    result = LocalResult(
        torch.zeros(5), last_gradient=torch.tensor([2.0, 0, 0, 0, 0]), last_start=torch.tensor([3.0, 1, 1, 1, 1])
    )
    at = context(layout, start=start, result=result)
    parcel = ClipComponents(1.1, local, True, of_update=True)(Parcel(torch.tensor([9.0, 0.5, -9, 0, 0])), at)
    assert parcel.vector.tolist() == pytest.approx([1 + 1.1, 0.5, -1.1, 0, 0])
    noised = PerturbComponents(22.0, 10)(parcel, at)
    assert torch.as_tensor(noised.noise_std).tolist() == pytest.approx([22 * 1.1 / 10] + [2 * 22 * 1.1 / 10] * 4)
    (release,) = noised.releases
    assert "private gradients" in release.problem
    public = ClipComponents(1.1, local, True, 2.0, of_update=True)(Parcel(torch.zeros(5)), at)
    (release,) = PerturbComponents(22.0, 10)(public, at).releases
    assert release.problem == "" and 1 / release.ratio == pytest.approx(22 / (10 * sqrt(2)))


@pytest.mark.parametrize(("epsilon", "sigma", "rounds"), [(0.5, 22.0, 6), (2.0, 22.0, 94), (8.0, 8.0, 157)])
def test_the_lengths_of_the_stored_curves_fit_sigma_22_and_8(epsilon, sigma, rounds):
    """δ = 1e-4, α up to 64, one release more than the budget: 6, 94 and 157 rounds."""
    spent = [min(n * a / (2 * sigma**2) + log(1e4) / (a - 1) for a in range(2, 65)) for n in range(1, 300)]
    assert next(n for n, value in enumerate(spent, 1) if value > epsilon) == rounds + (spent[rounds - 1] <= epsilon)


def test_the_estimated_sensitivity_is_three_deviations_of_a_sample():
    vector = torch.arange(1000.0)
    parcel = SampledSpread(1.0)(Parcel(vector), context(flat(1000)))
    assert parcel.clip_norm == pytest.approx(3 * vector.std(correction=0).item())
    some = SampledSpread(0.1)(Parcel(vector), context(flat(1000))).clip_norm
    assert some != parcel.clip_norm and some == pytest.approx(parcel.clip_norm, rel=0.2)
    assert "private components" in parcel.bound.private


def test_privatedl_has_the_classical_noise_over_its_batch():
    """ε = 2 over 5 rounds: .4 each, z = √(2 ln(1.25·5/δ))/.4 over batches of 4 times 2."""
    step = build("privatedl", rounds=5, epsilon=2.0, virtual=2.0).client[1]
    assert step.noise_multiplier == pytest.approx(sqrt(2 * log(1.25 * 5 / 1e-5)) / 0.4 / 8)
    assert build("privatedl", rounds=5, epsilon=2.0, mechanism="laplace").client[1].noise_multiplier == pytest.approx(
        1 / 0.4 / 4
    )


def test_orders_are_tf_privacys():
    assert len(TF_PRIVACY_ORDERS) == 72 and TF_PRIVACY_ORDERS[0] == 1.25 and TF_PRIVACY_ORDERS[-1] == 512
    assert engine.ENGINES["batched"] is batched
