"""What papers say of their schemes, and what our presets build: golden numbers, rounds by hand, torch as oracle."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, log, sqrt
from statistics import median

import pytest
import torch
from dpfl_audit.audit.proven.accounting import worst
from dpfl_audit.defenses.aggregate import PopulationMean, weighted_sum
from dpfl_audit.defenses.claims import anonymous_variance
from dpfl_audit.defenses.data.dataset import Dataset, make
from dpfl_audit.defenses.engine import batched, local_bound, looped
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import DistancePerLayer, LocalJob, LocalResult, LocalTraining, ScaleByRoot
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.presets.fednore import Fednore1Parameters, Fednore2Parameters
from dpfl_audit.defenses.releases import Release
from dpfl_audit.defenses.schedule import Geometric, HarmonicSteps, RoundPlan, Schedule
from dpfl_audit.defenses.scheme import Scheme
from dpfl_audit.defenses.steps import perturb
from dpfl_audit.defenses.steps.clip import ClipReceived
from dpfl_audit.defenses.steps.components import ClipComponents, PerturbComponents, repeated_step
from dpfl_audit.defenses.steps.momentum import Momentum
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.steps.side import WithNorm
from dpfl_audit.defenses.steps.sparsify import TopK
from dpfl_audit.defenses.update import OPTIMISERS, make_optimiser
from dpfl_audit.defenses.wire import SERVER, Parcel, Wire
from pydantic import ValidationError
from stated import in_round
from tiers import quick
from torch import Tensor, nn
from torch.nn import functional as F

LAYOUT = Layout(("a", "b"), ((3, 2), (4,)))
SGD = LocalTraining(optimiser="sgd", lr=0.1, batch_size=8)


def build(
    name: str, samples: tuple[int, ...], local: LocalTraining = SGD, layout: Layout = LAYOUT, **parameters
) -> Scheme:
    preset = PRESETS[name]
    return preset.scheme(preset.parameters(**parameters), local, Population(samples, layout))


context = partial(in_round, layout=LAYOUT)


def blobs(records: int = 40, dtype: torch.dtype = torch.float64) -> Dataset:
    rng = torch.Generator().manual_seed(5)
    x, y = torch.rand(records, 6, generator=rng), torch.randint(3, (records,), generator=rng)
    data = make("blobs", (x, y), (x[:6], y[:6]), (x[:0], y[:0]), 3, {}, published=([0.0] * 6, [1.0] * 6))
    return replace(data, inputs=data.inputs.to(dtype))


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def no_training(jobs: list[LocalJob]) -> list[LocalResult]:
    zeros = torch.zeros_like(jobs[0].start)
    return [LocalResult(zeros, zeros, j.start.clone(), local_bound(j)) for j in jobs]


def rounds_run(scheme: Scheme, clients: list[Tensor]) -> int:
    module = nn.Linear(1, 1)
    (state,) = run_many([Federation(scheme, module, blobs(), clients, 0, evaluate=False)], no_training)
    return state.round


def priced(scheme: Scheme, clients: list[Tensor], delta: float, unit: str) -> float:
    """What the accountant proves for the server, from the ledger of a run that trains nothing."""
    releases: set[Release] = set()
    wire = Wire(lambda m: releases.update(m.releases) if m.sender_party != SERVER else None)
    run_many([Federation(scheme, nn.Linear(1, 1), blobs(), clients, 0, wire, evaluate=False)], no_training)
    return worst(releases, range(len(clients)), unit=unit, adjacency="zero_out", delta=delta).epsilon


# --- claims ---

# Whom the paper's ε is towards, whose data it hides, from which neighbour, and which releases it counts.
CLAIMS: dict[str, tuple[str, str, str, str] | None] = {
    "fedavg": None,
    "local-gaussian": ("server", "client", "zero_out", "own"),
    "central-gaussian": ("downlink", "client", "zero_out", "own"),
    "adaptive-clip": ("downlink", "client", "zero_out", "own"),
    "dp-ftrl": ("downlink", "client", "zero_out", "own"),
    "band-mf": ("downlink", "client", "zero_out", "own"),
    "blt": ("downlink", "client", "zero_out", "own"),
    "distributed-gaussian": ("aggregate", "client", "zero_out", "own"),
    "ldp": ("server", "client", "zero_out", "own"),
    "cdp": ("downlink", "client", "zero_out", "rounds"),
    "lcdp": ("downlink", "client", "zero_out", "rounds"),
    "fednore1": ("server", "client", "zero_out", "own"),
    "fednore2": ("server", "client", "zero_out", "own"),
    "fednore12": ("server", "client", "zero_out", "own"),
    "nbafl": ("uplink(1)", "record", "replace_one", "own"),
    "naafl": ("downlink", "record", "replace_one", "rounds"),
    "geometric": ("server", "record", "zero_out", "rounds"),
    "laplace": ("server", "record", "zero_out", "own"),
    "component": ("server", "record", "replace_one", "own"),
    "iteration-laplace": ("server", "record", "replace_one", "own"),
    "iteration-gaussian": ("server", "record", "replace_one", "own"),
    "anonymous-gossip": ("peer", "record", "replace_one", "own"),
    "anonymous-leader": ("peer", "record", "replace_one", "own"),
    "thesis-baseline": ("server", "client", "zero_out", "own"),
    "dpsgd": ("server", "record", "zero_out", "own"),
    "adap-dpfl": ("server", "record", "zero_out", "own"),
    "ldp-fl": ("server", "client", "replace_one", "own"),
    "fed-cdp": ("server", "record", "zero_out", "rounds"),
    "fed-sdp": ("downlink", "client", "zero_out", "rounds"),
    "fed-alpha-cdp": ("server", "record", "zero_out", "rounds"),
    "dp-dyns": ("server", "record", "zero_out", "rounds"),
    "privatedl": ("server", "record", "zero_out", "own"),
}


def claimed(scheme: Scheme) -> tuple[str, str, str, str] | None:
    claim = scheme.claim
    return None if claim is None else (str(claim.observer), claim.unit, claim.adjacency, claim.counts)


def test_every_preset_claims_towards_whom_its_paper_does():
    """A claim is compared with proofs and demonstrations of the same observer, unit and adjacency only."""
    schemes = {name: build(name, (600,) * 100, **preset.example) for name, preset in PRESETS.items()}
    assert {name: claimed(scheme) for name, scheme in schemes.items()} == CLAIMS
    assert claimed(build("lcdp", (600,) * 100, sigma_cdp=0.0)) == ("server", "record", "zero_out", "rounds")
    assert claimed(build("nbafl", (600,) * 100, exposures=3)) == ("uplink(3)", "record", "replace_one", "own")


@pytest.mark.parametrize("name", ["anonymous-gossip", "anonymous-leader"])
def test_an_anonymous_claim_covers_the_whole_plan_and_grows_beyond_it(name):
    """The noise is drawn for ε = 8 over 50 rounds, whose clients train in 35: less is not claimed for fewer.

    Twice as many rounds cost the ε whose noise over 100 rounds is the noise drawn, by (5.5).
    """
    scheme = build(name, (600,) * 100, epsilon=8.0, delta=1e-5, rounds=50, train_share=0.7)
    neighbours = 30 if name == "anonymous-gossip" else 1
    epsilons = [scheme.claim.epsilon(releases, 1e-5) for releases in (1, 34, 35)]
    assert epsilons == pytest.approx([8.0] * 3)
    more = scheme.claim.epsilon(70, 1e-5)
    variances = [anonymous_variance(e, 1e-5, t, 0.7, 100, neighbours) for e, t in ((8.0, 50), (more, 100))]
    assert more > 8.0 and variances[0] == pytest.approx(variances[1])


# --- geometric ---


@pytest.mark.parametrize(
    ("ratio", "sigma"), [(0.9, 0.02793), (0.95, 0.01633), (1.0, 0.01073), (1.05, 0.00787), (1.1, 0.00631)]
)
def test_geometric_draws_eq_8_and_grows_by_the_ratio(ratio, sigma):
    """U = 100, K = 10, n = 600, C = 5, δ = 1e-3, M = 30, ε = 10; the variance of round m is ϑ^(m−1)σ²."""
    scheme = build("geometric", (600,) * 100, ratio=ratio, participants=10, rounds=30)
    clipped = scheme.client[0](Parcel(torch.ones(LAYOUT.dim)), context())
    for m in (1, 2, 30):
        plan = scheme.schedule.plan(m - 1, {})
        (release,) = scheme.client[1](clipped, context(plan=plan, num_examples=600)).releases
        assert release.noise_std == pytest.approx(sigma * ratio ** ((m - 1) / 2), rel=1e-3)
        assert release.bound_norm == pytest.approx(5.0, rel=1e-9)
    assert scheme.schedule.plan(30, {}) is None


def test_geometric_is_shortened_when_the_test_loss_stops_falling():
    """ϑ = 1, M = 30, α_d = .8: where the loss has not fallen M ← ⌈.8M⌉ (24, 20, 16), and σ' = σ√(M'/M) by (9)."""
    schedule = build("geometric", (600,) * 10, ratio=1.0, rounds=30, shorten=0.8).schedule
    losses = [3.0, 2.0, 2.0, 1.0, 1.5]
    noise = [schedule.plan(r, {"test_loss": losses}).noise for r in range(6)]
    assert noise == pytest.approx([1, 1, 1, sqrt(24 / 30), sqrt(24 / 30), sqrt(20 / 30)])
    bad = [1.0] * 40  # cut after rounds 2, 3, 4 … to 24, 20, 16, 13, 11, 9, 8: round 8 is the last
    ended = next(r for r in range(40) if schedule.plan(r, {"test_loss": bad[:r]}) is None)
    assert ended == 8
    never = [1 / (r + 1) for r in range(40)]
    assert (
        schedule.plan(29, {"test_loss": never[:29]}) == RoundPlan()
        and schedule.plan(30, {"test_loss": never[:30]}) is None
    )


def test_geometric_raises_the_noise_for_a_growing_ratio_as_the_paper_prints_it():
    """(9), ϑ = 1.1, M' = 24, m = 10 by hand: S(10) + 14 = 6.759 + 14 = 20.759 against S(30) = 10.370: σ'/σ = 1.4149."""
    schedule = build("geometric", (600,) * 10, ratio=1.1, rounds=30, shorten=0.8).schedule
    assert isinstance(schedule, Geometric)
    losses = [*(1 / (r + 1) for r in range(9)), 5.0]
    assert schedule.plan(10, {"test_loss": losses}).noise / 1.1**5 == pytest.approx(1.4149, abs=2e-4)


def test_weights_stay_clipped_at_every_local_step():
    for steps in (1, 2, 3):  # a run of k steps ends where a longer one stands after k
        scheme = build("geometric", (20, 20), replace(SGD, lr=50.0), Layout.of(net()), clip=0.7, tau=steps, rounds=1)
        kept = []
        scheme = replace(scheme, client=(lambda p, c, kept=kept: kept.append(p.vector.norm()) or p,))
        run_many([Federation(scheme, net(), blobs(), [torch.arange(20), torch.arange(20, 40)], 0)], looped)
        assert max(kept) <= 0.7 * (1 + 1e-9) and max(kept) > 0.69


# --- NbAFL ---


@pytest.mark.parametrize(
    ("epsilon", "exposures", "participants", "std"),
    [(50, 1, None, 5.961e-5), (50, 25, None, 0.0), (5, 1, 20, 4.333e-4), (50, 1, 20, 0.0)],
)
def test_nbafl_noises_the_broadcast_as_theorem_1_and_lemma_5_say(epsilon, exposures, participants, std):
    """C = 1, m = 1000, N = 50, T = 25, δ = .01; the smallest client counts."""
    samples = (1000, *(1500,) * 49)
    scheme = build("nbafl", samples, epsilon=epsilon, exposures=exposures, participants=participants)
    assert [step.noise_std for step in scheme.server] == ([pytest.approx(std, rel=1e-3)] if std else [])
    assert scheme.client[1].noise_std == pytest.approx(sqrt(2 * log(125)) * exposures * 2 / 1000 / epsilon)
    assert str(scheme.claim.observer) == f"uplink({exposures})"
    assert scheme.claim.epsilon(25, 0.01) == pytest.approx(epsilon)


def test_nbafl_with_its_own_sensitivity_proves_far_less_than_it_claims():
    """ε = 50, L = 25, δ = .01: linear composition is loose, the exact ε over 2C/m is 11.9. Over 2C nothing is left."""
    from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon

    scheme = build("nbafl", (1000,) * 3, epsilon=50, exposures=25)
    assert gaussian_epsilon(scheme.client[1].noise_std / (2 / 1000) / sqrt(25), 0.01) == pytest.approx(11.9, abs=0.05)
    assert priced(build("nbafl", (10, 10, 10), epsilon=50), [torch.arange(10)] * 3, 0.01, "record") > 1000


def test_nbafl_downlink_carries_the_uploads_noise_and_its_own(monkeypatch):
    """The broadcast minus its noise-free twin has variance Σ p_i²σ_U² + σ_D²."""
    data, clients = blobs(dtype=torch.float32), [torch.arange(10), torch.arange(10, 40)]
    module = nn.Linear(6, 400)
    scheme = build("nbafl", (10, 30), layout=Layout.of(module), epsilon=5, rounds=2, exposures=1, clip=50.0)
    ends = []
    for silent in (False, True):
        if silent:
            monkeypatch.setattr(perturb, "draw", lambda mechanism, noise_std, dim, rng: torch.zeros(dim))
        wire = Wire(lambda m: ends.append(m.vector) if m.sender_party == SERVER and m.round == 1 else None)
        run_many([Federation(scheme, module, data, clients, 0, wire)])
    up, down = scheme.client[1].noise_std, scheme.server[0].noise_std
    expected = sqrt((0.25**2 + 0.75**2) * up**2 + down**2)
    assert (ends[0] - ends[1]).std().item() == pytest.approx(expected, rel=0.04)


# --- component-adaptive noise ---


@pytest.mark.parametrize(("epsilon", "sigma", "within"), quick([(0.5, 26, 7), (2.0, 26, 108), (8.0, 10, 208)], 0))
def test_component_stops_one_release_late_as_algorithm_2_has_it(epsilon, sigma, within):
    clients = [torch.arange(5), torch.arange(5, 10)]
    for stop, rounds in (("before", within), ("after", within + 1)):
        # A threshold of its own, as the preset's diverge first.
        chosen = {"epsilon": epsilon, "sigma": sigma, "rounds": 300, "stop": stop, "threshold": 1e-3}
        scheme = build("component", (5, 5), layout=Layout.of(nn.Linear(1, 1)), **chosen)
        assert rounds_run(scheme, clients) == rounds


def test_component_clients_who_drop_out_spend_nothing():
    chosen = {"epsilon": 0.5, "rounds": 300, "stop": "before", "dropout": 0.5, "threshold": 1e-3}
    scheme = build("component", (5, 5), layout=Layout.of(nn.Linear(1, 1)), **chosen)
    clients = [torch.arange(5), torch.arange(5, 10)]
    (state,) = run_many([Federation(scheme, nn.Linear(1, 1), blobs(), clients, 0, evaluate=False)], no_training)
    assert max(state.participations.values()) == 7 and state.round > 7


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("engine", [looped, batched])
def test_the_repeated_step_is_the_optimisers_own(optimiser, engine):
    """G(g_{K−1}) from the engine's state at w_{K−1} against torch.optim stepping once more with the same gradient."""
    module, data = net(), blobs()
    kept: list[LocalResult] = []
    local = replace(SGD, optimiser=optimiser, lr=0.05)
    scheme = build("component", (40,), local, Layout.of(module), K=4, rounds=1)
    training = scheme.local
    scheme = replace(scheme, client=(lambda p, c: kept.append(c.result) or p,))
    run_many([Federation(scheme, module, data, [torch.arange(40)], 0)], engine)
    result = kept[0]

    weights = Layout.of(module).join({n: p.detach() for n, p in module.named_parameters()}).clone().requires_grad_()
    oracle = make_optimiser(optimiser, [weights], training.lr, training.momentum, training.smoothing)
    batches = batches_of(scheme, data, 0)
    for rows in batches[:-1]:
        weights.grad = mean_gradient(module, weights.detach(), data, rows)
        oracle.step()
    assert torch.allclose(result.last_start, weights.detach(), rtol=0, atol=1e-12)
    assert torch.allclose(result.last_gradient, weights.grad, rtol=0, atol=1e-12)
    before = weights.detach().clone()
    oracle.step()
    mine = repeated_step(result.last_gradient, result.optimiser, training, training.lr)
    # Table II has 1e-7 under the root, torch 1e-8 beside it: they agree where gradients are large.
    exact, large = before - weights.detach(), weights.grad.abs() > 1e-2
    assert torch.allclose(mine[large], exact[large], rtol=2e-3, atol=0)
    if optimiser in ("sgd", "momentum"):
        assert torch.allclose(mine, exact, rtol=1e-9, atol=1e-12)


def batches_of(scheme: Scheme, data: Dataset, client: int) -> Tensor:
    from dpfl_audit.defenses.local import batch_order
    from dpfl_audit.defenses.randomness import generator

    return batch_order(
        scheme.local, scheme.share, torch.arange(40), 0, lambda epoch: generator(0, "batches", client, epoch)
    )


def mean_gradient(module: nn.Module, weights: Tensor, data: Dataset, rows: Tensor) -> Tensor:
    layout = Layout.of(module)
    named = {n: v.clone().requires_grad_() for n, v in layout.split(weights).items()}
    loss = F.cross_entropy(torch.func.functional_call(module, named, (data.inputs[rows],)), data.targets[rows])
    return layout.join(dict(zip(named, torch.autograd.grad(loss, list(named.values())))))


def test_components_are_truncated_and_noised_by_their_own_threshold(monkeypatch):
    """β = 1.1, SGD: q = .55·|w_{K−1} − ηg|, weights in w0 ± q, noise std √M σ0·2q; by hand in two components."""
    local = LocalTraining(optimiser="sgd", lr=0.5, keep_last=True)
    start = torch.tensor([1.0, -1.0])
    # |w − ηg| = 2, 1
    result = LocalResult(torch.zeros(2), last_gradient=torch.tensor([2.0, 1.0]), last_start=torch.tensor([3.0, -0.5]))
    layout = Layout(("w",), ((2,),))
    at = context(start=start, result=result, layout=layout)
    parcel = ClipComponents(1.1, local, around_start=True)(Parcel(torch.tensor([9.0, -1.2])), at)
    assert parcel.vector.tolist() == pytest.approx([1 + 1.1, -1.2])
    drawn = {}
    monkeypatch.setattr(perturb, "draw", lambda mechanism, noise_std, dim, rng: drawn.setdefault("std", noise_std) * 0)
    (release,) = PerturbComponents(3.0)(parcel, at).releases
    assert drawn["std"].tolist() == pytest.approx([sqrt(2) * 3 * 2 * 1.1, sqrt(2) * 3 * 2 * 0.55])
    assert "private gradients" in release.problem
    public = ClipComponents(1.1, local, around_start=True, threshold=2.0)(Parcel(torch.tensor([9.0, -1.2])), at)
    (release,) = PerturbComponents(3.0)(public, at).releases
    # Multiplier 2σ0 for the client, σ0 for a record.
    assert release.problem == "" and 1 / release.ratio == pytest.approx(2 * 3.0)


def test_one_local_step_has_no_gradient_before_the_last():
    with pytest.raises(ValueError, match="K = 2"):
        ClipComponents(1.1, SGD, True)(Parcel(torch.zeros(2)), context(result=LocalResult(torch.zeros(2))))


# --- Fed-nore ---


def test_fednore1_penalty_is_the_gradient_of_its_term():
    """λσS_i, S_i = Σ over layers of ‖W_t − W‖/n (3.9, 3.13), by autograd; 0 where a layer has not moved."""
    weights, start = torch.randn(LAYOUT.dim, dtype=torch.float64), torch.randn(LAYOUT.dim, dtype=torch.float64)
    variable = weights.clone().requires_grad_()
    sum(((variable - start)[part].norm() / 30 for part in LAYOUT.slices), torch.zeros(())).mul(2.0 * 8.0).backward()
    scheme = build("fednore1", (30, 30), sigma=8.0, lam=2.0)
    (penalty,) = scheme.local.penalties
    examples = torch.tensor([30.0], dtype=torch.float64)
    assert torch.allclose(penalty.gradient(weights, start, LAYOUT, examples), variable.grad)
    start[LAYOUT.slices[1]] = weights[LAYOUT.slices[1]]
    assert penalty.gradient(weights, start, LAYOUT, examples)[LAYOUT.slices[1]].abs().max() == 0
    assert build("fednore1", (30, 30), sigma=8.0, sensitivity="past").local == SGD  # a constant: as ldp
    assert Fednore1Parameters(sigma=8.0).clip == "median" and Fednore1Parameters(sigma=8.0).per_layer


def test_fednore2_literally_is_plain_cross_entropy():
    """−ln(a_p(1 − λσ/√n)) has the gradient of −ln a_p (autograd), so the local training is untouched."""
    logits, factor = torch.randn(7, 4, dtype=torch.float64), 1 - 1.0 * 8.0 / sqrt(600)
    targets = torch.arange(7) % 4
    gradients = []
    for scale in (1.0, factor):
        variable = logits.clone().requires_grad_()
        (-(variable.softmax(1)[torch.arange(7), targets] * scale).log()).mean().backward()
        gradients.append(variable.grad)
    assert torch.allclose(*gradients)
    assert build("fednore2", (600,), sigma=8.0, lam=1.0).local == SGD
    with pytest.raises(ValueError, match=r"λσ below √n = 24\.49"):
        build("fednore2", (600, 700), sigma=8.0, lam=3.07)
    assert build("fednore2", (600,), sigma=8.0, lam=3.06).name == "fednore2"


@pytest.mark.parametrize(("form", "sign"), [("scaled", -1), ("scaled-plus", 1)])
@pytest.mark.parametrize("engine", [looped, batched])
def test_fednore2_scaled_multiplies_the_output_error_by_each_clients_own_factor(form, sign, engine):
    module, data = net(), blobs()
    clients = [torch.arange(16), torch.arange(16, 40)]
    local = LocalTraining(optimiser="sgd", lr=0.2, batch_size=64)
    scheme = build("fednore2", (16, 24), local, Layout.of(module), sigma=1.5, lam=2.0, form=form)
    assert scheme.local.gradient_scale == ScaleByRoot(sign * 3.0)
    kept: list[Tensor] = []
    scheme = replace(scheme, client=(lambda p, c: kept.append(p.vector) or p,))
    run_many([Federation(scheme, module, data, clients, 0)], engine)
    weights = Layout.of(module).join({n: p.detach() for n, p in module.named_parameters()})
    for value, rows in zip(kept, clients):
        expected = -0.2 * (1 + sign * 3.0 / sqrt(len(rows))) * mean_gradient(module, weights, data, rows)
        assert torch.allclose(value, expected, atol=1e-12)


def test_fednore12_has_both_changes():
    local = build("fednore12", (100,), sigma=1.0, lam=2.0, form="scaled").local
    assert local.penalties == (DistancePerLayer(2.0),) and local.gradient_scale == ScaleByRoot(-2.0)
    assert Fednore2Parameters(sigma=1.0).form == "literal"


# --- DP-FedAvg with tuned iteration times ---


@pytest.mark.parametrize(("epsilon", "client", "record"), [(10, 10.8, 27.5), (20, 27.5, 77.3), (30, 49.6, 149)])
def test_iteration_gaussian_proves_more_than_it_claims_at_c2_root_2(epsilon, client, record):
    """δ = 1e-4, E = 1, any T_l; the client's part is ≤ Σηζ (the paper's ξ = ζ), a record can turn it around (2ζ)."""
    clients = [torch.arange(10), torch.arange(10, 20), torch.arange(20, 30)]
    scheme = build(
        "iteration-gaussian", (10,) * 3, layout=Layout.of(nn.Linear(1, 1)), epsilon=epsilon, b=2, rounds=6, zeta=3.0
    )
    assert priced(scheme, clients, 1e-4, "client") == pytest.approx(client, abs=0.06)
    assert priced(scheme, clients, 1e-4, "record") == pytest.approx(record, rel=4e-3)
    assert scheme.claim.epsilon(4, 1e-4) == pytest.approx(epsilon)


def test_iteration_laplace_claim_is_half_of_what_a_record_can_do():
    clients = [torch.arange(10), torch.arange(10, 20)]
    scheme = build("iteration-laplace", (10,) * 2, layout=Layout.of(nn.Linear(1, 1)), epsilon=3.0, b=1, rounds=4)
    assert scheme.claim.epsilon(2, 1e-5) == pytest.approx(3.0)
    assert priced(scheme, clients, 0.0, "client") == pytest.approx(3.0)
    assert priced(scheme, clients, 0.0, "record") == pytest.approx(6.0)


def test_iteration_trains_as_algorithm_1_by_hand(monkeypatch):
    """Two rounds of E = 2 clipped full-batch steps, rates 2/(μ(k + γ)), θ ← (N/b) Σ (n_l/n) θ_l, b = 1 of 2 in turn."""
    monkeypatch.setattr(perturb, "draw", lambda mechanism, noise_std, dim, rng: torch.zeros(dim))
    module, data, clients = net(), blobs(), [torch.arange(10), torch.arange(10, 40)]
    scheme = build(
        "iteration-laplace", (10, 30), layout=Layout.of(module), E=2, b=1, mu=0.5, lam=1.0, zeta=0.4, rounds=2
    )
    weights = Layout.of(module).join({n: p.detach() for n, p in module.named_parameters()})
    for t, rows in enumerate(clients):
        for k in (2 * t, 2 * t + 1):
            gradient = mean_gradient(module, weights, data, rows)
            weights = weights - 2 / (0.5 * (k + 16)) * gradient * min(1.0, 0.4 / float(gradient.abs().sum()))
        weights = weights * (2 / 1) * len(rows) / 40
    (state,) = run_many([Federation(scheme, module, data, clients, 0)])
    assert torch.allclose(state.models[SERVER].vector, weights, atol=1e-12)


def test_iteration_noise_follows_the_rounds_largest_rate():
    schedule = HarmonicSteps(rounds=3, steps=4, mu=0.5, gamma=16)
    plans = [schedule.plan(t, {}) for t in range(3)]
    assert plans[1].lr_by_step == pytest.approx([4 / 20, 4 / 21, 4 / 22, 4 / 23])
    assert [plan.noise for plan in plans] == pytest.approx([1, 16 / 20, 16 / 24])
    assert schedule.plan(3, {}) is None
    scheme = build("iteration-laplace", (10,) * 4, b=2, E=4, mu=0.5, zeta=3.0, rounds=10, epsilon=5.0)
    scale = (2 * 10 / 4) / 5.0 * (2 / (0.5 * 16)) * 4 * 3.0  # T_l/ε · η̃ E ζ, γ = 8λ/μ = 16
    assert scheme.client[0].noise_std == pytest.approx(sqrt(2) * scale)


def test_population_weights_do_not_sum_to_one_over_unequal_senders():
    parcels = [Parcel(torch.ones(2)), Parcel(torch.ones(2))]
    merged = weighted_sum(parcels, PopulationMean(clients=4, records=100).weights([10, 60]))
    assert merged.vector.tolist() == pytest.approx([4 / 2 * 0.7] * 2)


# --- central DP, LCDP ---


def test_cdp_claims_the_published_epsilon():
    """σ = 1.18, q = .5, 11 rounds, δ = 1e-3: 8.15 (Geyer et al. 2017, table 1: 8)."""
    scheme = build("cdp", (10,) * 100, participants=50, sigma=1.18)
    assert scheme.claim.epsilon(11, 1e-3) == pytest.approx(8.15, abs=0.005)
    assert scheme.claim.counts == "rounds"


@pytest.mark.parametrize(("noise_on", "std"), [("sum", 4.0 * 1.5 / 3), ("mean", 4.0 * 1.5)])
def test_cdp_clips_to_the_median_of_the_round_and_noises_the_mean(noise_on, std):
    scheme = build("cdp", (10,) * 3, sigma=1.5, noise_on=noise_on)
    received = [Parcel(torch.full((4,), size / 2)) for size in (1.0, 4.0, 9.0)]  # norms 1, 4, 9
    at = context(senders=3)
    clipped = scheme.gather[0](received, at)
    assert [p.vector.norm().item() for p in clipped] == pytest.approx([1, 4, 4])
    (release,) = scheme.server[0](weighted_sum(clipped, scheme.aggregate.weights([10] * 3)), at).releases
    assert release.noise_std == pytest.approx(std) and "median" in release.problem


def test_what_has_no_default_is_what_a_paper_leaves_open():
    def builds(name: str) -> bool:
        try:
            PRESETS[name].parameters()
        except ValidationError:
            return False
        return True

    assert {name for name in PRESETS if not builds(name)} == {"ldp", "fednore1", "fednore2", "fednore12"}  # σ or noise


@pytest.mark.parametrize("name", PRESETS)
def test_defaults_lie_where_their_own_bounds_say(name):
    """pydantic looks at what is given, not at what is left out."""
    for field, info in PRESETS[name].parameters.model_fields.items():
        if info.default is not None and not info.is_required():
            try:
                PRESETS[name].parameters(**{field: info.default})
            except ValidationError as error:
                assert all(e["loc"][:1] != (field,) for e in error.errors()), field


@pytest.mark.parametrize(("lam", "sigma", "terms"), [(1.0, 0.0, 0), (1.0, 1.0, 1), (0.5, 4.0, 1)])
def test_fednore1_has_its_term_wherever_there_is_noise(lam, sigma, terms):
    scheme = build("fednore1", (10, 20), lam=lam, sigma=sigma)
    assert len(scheme.local.penalties) == terms
    assert [term.weight for term in scheme.local.penalties] == [lam * sigma] * terms


def test_laplace_noise_of_ones_own_claims_what_its_scale_does():
    """Laplace noise of scale b has std √2·b; T releases of a sensitivity Δ = 2C/n claim T·Δ/b."""
    scheme = build("laplace", (50,) * 10, clip=2.0, noise_std=0.3, rounds=7)
    assert scheme.claim.epsilon(7, 0) == pytest.approx(7 * (2 * 2.0 / 50) / (0.3 / sqrt(2)))


def test_nbafl_noise_of_ones_own_claims_what_draws_it():
    drawn = build("nbafl", (1000,) * 50, epsilon=7.0)
    (noise,) = [step for step in drawn.client if isinstance(step, Perturb)]
    again = build("nbafl", (1000,) * 50, noise_std=noise.noise_std)
    assert again.claim.epsilon(1, 1e-5) == pytest.approx(drawn.claim.epsilon(1, 1e-5), rel=1e-9)


def test_component_smooths_as_its_paper_does():
    """The experiments' RMSprop has γ = .9 (Table II settings); our own default is .99."""
    assert build("component", (600,) * 100).local.smoothing == 0.9


def test_ldp_says_the_same_of_a_multiplier_and_of_its_noise():
    """σ·C/n for the smallest client: 1.5·2/10 = .3."""
    by_sigma, by_std = (
        build("ldp", (10, 20), clip=2.0, **{key: value}).claim for key, value in (("sigma", 1.5), ("noise_std", 0.3))
    )
    assert by_sigma.epsilon(3, 1e-5) == pytest.approx(by_std.epsilon(3, 1e-5)) and by_std.epsilon(3, 1e-5) > 0.1


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_an_lcdp_client_trains_with_momentum_whatever_was_set(optimiser):
    assert build("lcdp", (600,) * 100, replace(SGD, optimiser=optimiser)).local.optimiser == "momentum"


@pytest.mark.parametrize("name", ["ldp", "thesis-baseline"])
def test_all_clients_means_those_that_are_left_and_a_cohort_means_a_cohort(name):
    assert build(name, (600,) * 100, sigma=1.0).min_clients == 1
    assert build(name, (600,) * 100, sigma=1.0, participants=30).min_clients == 30


def test_lcdp_accountants_stop_after_the_published_rounds():
    """Table 3.1, LDP only: 52 rounds, σ = 8, 50 of 100 clients at (0.5, 1e-6); 63 with σ = 2, 220 of 1,000 fit too."""
    common = {"sigma_cdp": 0.0, "ldp_epsilon": 0.5, "rounds": 200}
    assert build("lcdp", (600,) * 100, participants=50, **common).schedule.rounds == 52
    assert build("lcdp", (600,) * 1000, participants=220, sigma_ldp=2.0, **common).schedule.rounds >= 63
    both = build("lcdp", (600,) * 100, participants=50, sigma_cdp=1.18, cdp_epsilon=8.2, rounds=200)
    assert both.schedule.rounds == 11


@pytest.mark.parametrize("noise", ["before_momentum", "after_momentum"])
def test_an_lcdp_round_by_hand(noise, monkeypatch):
    """Top half by magnitude, own-norm noise on it, norms sent in the clear, median clip, weighted mean, noise,
    momentum; noise drawn as 1s.
    """
    stds = []

    def ones(mechanism, noise_std, dim, rng):
        stds.append(noise_std)
        return torch.ones(dim) * noise_std

    monkeypatch.setattr(perturb, "draw", ones)
    scheme = build("lcdp", (10, 20), sigma_ldp=2.0, sigma_cdp=0.5, top=0.5, beta=0.5, noise=noise)
    values = [torch.tensor([3.0, 0.1, -4.0, 0.2]), torch.tensor([0.0, 1.0, 0.0, -2.0])]
    sent = []
    for client, (value, n) in enumerate(zip(values, (10, 20))):
        parcel = Parcel(value)
        for step in scheme.client:
            parcel = step(parcel, context(party=client, num_examples=n))
        sent.append(parcel)
    norms = [5.0, sqrt(5)]
    assert sent[0].vector.tolist() == pytest.approx([4.0, 0.0, -3.0, 0.0])  # S = 5/10, std 1 on what is kept
    assert sent[1].vector.tolist() == pytest.approx([0, 1 + sqrt(5) / 10, 0, -2 + sqrt(5) / 10])
    assert [p.side["norm"] for p in sent] == pytest.approx(norms)
    problems = sorted({r.problem for p in sent for r in p.releases})
    assert len(problems) == 2 and "private norm" in problems[0] and "without noise" in problems[1]

    middle = median(norms)
    merged = torch.zeros(4, dtype=torch.float64)
    for parcel, n in zip(sent, (10, 20)):
        merged += n / 30 * parcel.vector * min(1.0, middle / float(parcel.vector.norm()))
    hub = context(party=SERVER, senders=2, kept={"momentum": torch.full((4,), 8.0)})
    value = weighted_sum(scheme.gather[0](sent, hub), scheme.aggregate.weights((10, 20)))
    for step in scheme.server:
        value = step(value, hub)
    noise_std = 0.5 * middle
    expected = (
        0.5 * 8 + 0.5 * (merged + noise_std) if noise == "before_momentum" else 0.5 * 8 + 0.5 * merged + noise_std
    )
    assert torch.allclose(value.vector, expected)
    assert hub.kept["momentum"].mean() == pytest.approx(
        float((expected if noise == "before_momentum" else expected - noise_std).mean())
    )
    assert scheme.local.optimiser == "momentum" and scheme.local.lr == pytest.approx(0.05)


def test_top_k_keeps_the_largest_and_says_nothing_of_a_bound():
    parcel = TopK(0.4)(Parcel(torch.tensor([1.0, -5.0, 3.0, 0.5, 2.0])), context())
    assert parcel.vector.tolist() == [0, -5, 3, 0, 0] and parcel.bound is None


def test_momentum_before_noise_gives_up_a_public_bound():
    clipped = ClipReceived(1.0)([Parcel(torch.ones(4))], context())[0]
    assert clipped.bound is not None and clipped.bound.norm == 1.0
    assert Momentum(0.5)(clipped, context(kept={})).bound is None


def test_a_norm_sent_in_the_clear_is_a_release_of_its_own():
    parcel = WithNorm(Perturb(noise_std=1.0))(Parcel(torch.full((4,), 2.0)), context())
    assert parcel.side == {"norm": 4.0}
    price = worst(parcel.releases, [0], unit="client", adjacency="zero_out", delta=1e-5)
    assert any("without noise" in reason for reason in price.reasons)


# --- the rest ---


@pytest.mark.parametrize(("sensitivity", "std"), [("C/n", 2 * 1.0 / 50), ("2C/n", 4 * 1.0 / 50)])
def test_thesis_baseline_noise(sensitivity, std):
    scheme = build("thesis-baseline", (50,) * 3, sensitivity=sensitivity)
    clipped = scheme.client[0](Parcel(torch.ones(LAYOUT.dim)), context())
    (release,) = scheme.client[1](clipped, context(num_examples=50)).releases
    assert release.noise_std == pytest.approx(std) and release.bound_norm == pytest.approx(1.0, rel=1e-9)
    assert scheme.claim.epsilon(1, 1e-5) == pytest.approx(1 / 8 + sqrt(2 * log(1e5)) / 2)


def test_naafl_noise_is_the_downlinks_own():
    """σ = cTΔ/ε with Δ = 2C/|D|: c·25·2/3000/50 with c = √(2 ln 125) = 3.1075."""
    scheme = build("naafl", (1000,) * 3)
    assert scheme.server[0].noise_std == pytest.approx(3.1075 * 25 * 2 / 3000 / 50, rel=1e-4)
    assert scheme.claim.epsilon(25, 0.01) == pytest.approx(50.0)
    assert build("naafl", (1000,) * 3, noise_std=0.2).server[0].noise_std == 0.2


def test_laplace_scale_composes_linearly():
    """qM = 10·30/100 = 3 releases expected, Δ = 2C/n = 10/600: scale 3·Δ/ε = .005."""
    scheme = build("laplace", (600,) * 100, participants=10, clip=5.0, epsilon=10.0)
    clipped = scheme.client[0](Parcel(torch.ones(LAYOUT.dim)), context())
    (release,) = scheme.client[1](clipped, context(num_examples=600)).releases
    assert release.noise_std == pytest.approx(sqrt(2) * 0.005)
    assert release.bound_order == 1 and scheme.claim.epsilon(3, 1e-5) == pytest.approx(10.0)


def test_dpsgd_proves_what_it_claims_for_a_record():
    """The same sampled Gaussian; the accountant may only be tighter (PLD)."""
    clients = [torch.arange(20), torch.arange(20, 40)]
    scheme = build("dpsgd", (20, 20), replace(SGD, batch_size=2), Layout.of(net(torch.float32)), sigma=1.2, rounds=2)
    releases: set[Release] = set()
    wire = Wire(lambda m: releases.update(m.releases) if m.sender_party != SERVER else None)
    run_many([Federation(scheme, net(torch.float32), blobs(dtype=torch.float32), clients, 0, wire)])
    price = worst(releases, range(2), unit="record", adjacency="zero_out", delta=1e-5)
    assert price.releases == 20 and price.epsilon <= scheme.claim.epsilon(2, 1e-5) < 1.2 * price.epsilon


@dataclass(frozen=True)
class Cut:
    """A schedule that stops after so many rounds."""

    inner: Schedule
    rounds: int

    def plan(self, round: int, history):
        return self.inner.plan(round, history) if round < self.rounds else None


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lcdp", {"noise": "after_momentum"}),
        ("geometric", {"shorten": 0.5, "rounds": 6}),
        ("fednore1", {"sigma": 1.0}),
        ("component", {"epsilon": 0.2, "K": 2}),
    ],
)
def test_lasting_state_goes_out_and_in(name, parameters):
    """A run cut after two rounds goes on exactly as if it had not been."""
    module, data, clients = net(torch.float32), blobs(dtype=torch.float32), [torch.arange(20), torch.arange(20, 40)]
    scheme = build(name, (20, 20), replace(SGD, lr=0.5), Layout.of(module), **{"rounds": 4, **parameters})

    def federation(of: Scheme) -> Federation:
        return Federation(of, module, data, clients, 7)

    (whole,) = run_many([federation(scheme)])
    (half,) = run_many([federation(replace(scheme, schedule=Cut(scheme.schedule, 2)))])
    (resumed,) = run_many([federation(scheme)], states=[copy.deepcopy(half)])
    assert whole.round == resumed.round and torch.equal(whole.models[SERVER].vector, resumed.models[SERVER].vector)


def test_budgets_count_rounds_where_the_claim_does():
    """σ = 1, q = 1: the moments accountant passes 8 in the third round, whoever took part."""
    scheme = build("cdp", (5, 5, 5), layout=Layout.of(nn.Linear(1, 1)), sigma=1.0, rounds=50, budget=8.0, dropout=0.3)
    within = next(t for t in range(50) if scheme.claim.epsilon(t + 1, 1e-5) > 8.0)
    assert rounds_run(scheme, [torch.arange(5)] * 3) == within > 0


# name -> values that mean nothing, values at the end of what means something; of every preset that has it
DOMAIN: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "delta": ((0.0, 1.0), (1e-12, 0.999)),
    "budget_delta": ((0.0, 1.0), (1e-12, 0.999)),
    "ldp_delta": ((0.0, 1.0), (1e-12, 0.999)),
    "cdp_delta": ((0.0, 1.0), (1e-12, 0.999)),
    "epsilon": ((0.0, -1.0), (1e-6,)),
    "ldp_epsilon": ((0.0,), (1e-6,)),
    "cdp_epsilon": ((0.0,), (1e-6,)),
    "rounds": ((0,), (1,)),
    "participants": ((0,), (1,)),
    "tau": ((0,), (1,)),  # local steps
    "top": ((0.0, 1.001), (1e-6, 1.0)),  # a share of the components
    "shorten": ((0.0, 1.0), (0.999,)),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_parameter_lies_where_it_means_something(name):
    def refused(field: str, value: float) -> bool:
        try:
            PRESETS[name].parameters(**{field: value})
        except ValidationError as error:
            return any(e["loc"][:1] == (field,) for e in error.errors())
        return False

    fields = PRESETS[name].parameters.model_fields
    for field, (outside, inside) in DOMAIN.items():
        if field in fields:
            assert all(refused(field, value) for value in outside), field
            assert not any(refused(field, value) for value in inside), field
    if "lam" in fields:  # at λ = 0 Fed-nore has no term of its own; where λ divides it is above 0
        assert refused("lam", 0.0) == (not name.startswith("fednore"))
        assert refused("lam", -1e-6) and not refused("lam", 1e-6)


@pytest.mark.parametrize(("clients", "dropout", "fits"), [(4, 0.0, True), (5, 0.0, False), (4, 0.1, False)])
def test_gossip_with_one_neighbour_needs_pairs(clients, dropout, fits):
    """A graph of degree 1 has an even number of members; of an odd one nobody sent to anybody, a division by zero."""
    preset = PRESETS["anonymous-gossip"]
    parameters = preset.parameters(neighbours=1, train_share=1.0, dropout=dropout)
    population = Population((10,) * clients)
    if fits:
        assert preset.scheme(parameters, LocalTraining(), population).topology.degree == 1
    else:
        with pytest.raises(ValueError, match="cannot all be paired"):
            preset.scheme(parameters, LocalTraining(), population)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("geometric", {"ratio": 0.5, "rounds": 1500}),  # 2^1500 and 2^(3000/2) were an OverflowError
        ("geometric", {"ratio": 2.0, "rounds": 3000}),
        ("adap-dpfl", {"beta": 1e-3, "rounds": 400}),
        ("dpsgd", {"sigma": 1e300}),
        ("dpsgd", {"sigma": 1e-300}),
        ("laplace", {"tau": 10**30}),
    ],
)
def test_what_no_float_holds_is_refused(name, parameters):
    with pytest.raises(ValidationError, match=next(iter(parameters))):
        PRESETS[name].parameters(**parameters)


def test_a_long_geometric_training_within_floats_is_priced():
    parameters = PRESETS["geometric"].parameters(ratio=1.05, rounds=3000)
    scheme = PRESETS["geometric"].scheme(parameters, LocalTraining(), Population((600,) * 100))
    assert isfinite(scheme.claim.epsilon(3000, 1e-3))
