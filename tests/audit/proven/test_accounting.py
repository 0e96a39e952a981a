"""Proven ε: golden numbers, dp_accounting's traps pinned, and the rules that decide what a release gives."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from dp_accounting import (
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    UnsupportedEventError,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from dpfl_audit.audit.proof.theorems import composition
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven import accounting
from dpfl_audit.audit.proven.accounting import Exposure, proven, worst
from dpfl_audit.audit.setup.ledger import release_of, release_row
from dpfl_audit.audit.setup.planned import _no_training
from dpfl_audit.defenses import claims
from dpfl_audit.defenses.data.dataset import Dataset, make
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.releases import GaussianLaw, LaplaceLaw, Release, Sampling, Silent
from dpfl_audit.defenses.schedule import RoundPlan, Schedule
from dpfl_audit.defenses.scheme import Claim, Context
from dpfl_audit.defenses.steps import perturb
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.wire import SERVER, Bound, Message, Parcel, Wire
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm as normal
from stated import changed, stated
from tiers import quick

DELTA = 1e-5
ADD_REMOVE, REPLACE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
HALF_OF_SIX = Sampling("without_replacement", 6, 3)
TENTH = Sampling("poisson", 10, 1.0)
ROUNDS = itertools.count()


def release(noise=2.0, *, bound=1.0, mechanism="gaussian", subjects=(0,), **facts) -> Release:
    """A release whose noise multiplier over the bound is `noise` (Laplace: scale over L1 bound), of a round of its
    own.
    """
    laws = {
        "gaussian": GaussianLaw(noise * bound),
        "laplace": LaplaceLaw(noise * bound * math.sqrt(2)),
        "none": Silent(),
    }
    return stated(laws[mechanism], bound, subjects=frozenset(subjects), **{"round": next(ROUNDS), **facts})


def price(releases, *, subject=0, unit="client", adjacency="zero_out", delta=DELTA):
    return proven(releases, subject=subject, unit=unit, adjacency=adjacency, delta=delta)


def noise_factor(releases, target, *, adjacency="zero_out", delta=DELTA):
    exposed = Exposure.of(releases, [0])
    return exposed.worst_noise_scale_for(unit="client", adjacency=adjacency, delta=delta, target_epsilon=target)


def accountant_epsilon(accountant, event, count=1, delta=DELTA):
    return accountant.compose(event, count).get_epsilon(delta)


# --- what a bound gives


@pytest.mark.parametrize(
    "bound_of, unit, adjacency, sensitivity",
    [
        ("client", "client", "zero_out", 1),
        ("client", "client", "replace_one", 2),
        ("client", "record", "zero_out", 2),
        ("client", "record", "replace_one", 2),
        ("record", "record", "zero_out", 1),
        ("record", "record", "replace_one", 2),
        ("record", "client", "zero_out", 50),
        ("record", "client", "replace_one", 100),
    ],
)
def test_the_sensitivity_law(bound_of, unit, adjacency, sensitivity):
    found = price([release(3.0, bound_of=bound_of, records=50)], unit=unit, adjacency=adjacency)
    assert found.multiplier == pytest.approx(3.0 / sensitivity)
    assert found.epsilon == pytest.approx(gaussian_epsilon(3.0 / sensitivity, DELTA))


@pytest.mark.parametrize("facts", [{}, {"mechanism": "laplace"}, {"sampling": TENTH}, {"steps": 4}])
def test_what_is_released_several_times_costs_as_much_as_several_releases(facts):
    again = proven([release(3.0, **facts)], subject=0, unit="client", adjacency="zero_out", delta=DELTA, times=5)
    assert again == price([release(3.0, **facts) for _ in range(5)])


@pytest.mark.parametrize("noise", [1e-200, 1e-160, 1e160, 1e200])
def test_noise_beyond_what_a_square_can_hold_ends_in_no_error(noise):
    """Noise of 1e-200 times the bound was a division by zero, as was noise of 1e200 times."""
    found = price([release(noise), release(noise)])
    assert found.epsilon == (math.inf if noise < 1 else 0.0)
    assert found.mu == pytest.approx(math.sqrt(2) / noise, rel=1e-12)


def test_bound_and_noise_by_component_and_noise_that_was_there():
    """Bounds (3, 4) behind noise (1, 2): √(9 + 4). Behind √(1 + 3) and √(4 + 12): √((3/2)² + (4/4)²)."""
    context = Context(0, 0, 0, RoundPlan(), Layout(("w",), ((2,),)), 1, frozenset({0}), torch.zeros(2))
    noise = torch.tensor([1.0, 2.0], dtype=torch.float64)
    for earlier, ratio in ((0.0, math.sqrt(13)), (noise * math.sqrt(3), math.sqrt(3.25))):
        value = Parcel(torch.zeros(2, dtype=torch.float64), Bound(torch.tensor([3.0, 4.0])), noise_std=earlier)
        (made,) = perturb.release(value, noise, "gaussian", context).releases
        assert made.ratio == pytest.approx(ratio, rel=1e-6)
        assert changed(made, parents=frozenset()).ratio == made.ratio == release_of(release_row(made)).ratio


def test_an_l1_bound_holds_for_gaussian_noise_too():
    assert price([release(4.0, bound_order=1)]).epsilon == pytest.approx(gaussian_epsilon(4.0, DELTA))


def perturbed(order, **perturb) -> list[Release]:
    """What one client's `Clip(2)` and `Perturb` write into the ledger."""
    context = Context(0, 0, 0, RoundPlan(), Layout(("w",), ((6,),)), 10, frozenset({0}), torch.zeros(6))
    return list(Perturb(**perturb)(Clip(2.0, order)(Parcel(torch.ones(6)), context), context).releases)


def test_the_pipelines_gaussian_release():
    assert price(perturbed(2, noise_multiplier=3.0)).multiplier == pytest.approx(3.0)
    assert price(perturbed(2, noise_multiplier=3.0, divided_by="records")).multiplier == pytest.approx(0.3)
    assert price(perturbed(2, noise_std=3.0)).multiplier == pytest.approx(1.5)


def test_the_pipelines_laplace_release():
    """Laplace of std 8 on an L1 bound of 2 has scale 8/√2: ε = 2√2/8, not 2/8."""
    assert price(perturbed(1, noise_std=8.0, mechanism="laplace"), delta=0.0).epsilon == pytest.approx(
        2 * math.sqrt(2) / 8
    )


# --- golden numbers


def test_golden_unsampled():
    assert price([release(4.0)]).epsilon == pytest.approx(0.926, abs=5e-4)
    assert price([release(4.0)]).accountant == "closed form"
    assert price([release(6 * 0.97**t) for t in range(20)]).epsilon == pytest.approx(4.510771, abs=1e-6)
    assert price([release(1.0)]).epsilon == pytest.approx(4.38, abs=5e-3)
    assert price([release(1.0)] + [release(1.0) for _ in range(14)]).epsilon == pytest.approx(23.35, abs=5e-3)


def test_golden_laplace():
    found = price([release(4.0, mechanism="laplace") for _ in range(10)])
    assert found.epsilon == pytest.approx(2.49, abs=5e-4)
    assert found.accountant == "PLD"
    pure = price([release(4.0, mechanism="laplace") for _ in range(10)], delta=0.0)
    assert pure.epsilon == pytest.approx(2.5) and pure.accountant == "linear composition"


def test_golden_fixed_cohort_of_the_sketch():
    """3 of 6 clients, 3 rounds, multiplier 2: 7.47 by RDP and 5.85 by PLD, not the 3.11 of an undoubled bound."""
    found = price([release(2.0, sampling=HALF_OF_SIX) for _ in range(3)], adjacency="replace_one")
    assert found.epsilon == pytest.approx(5.846, abs=5e-3)
    assert found.accountant == "PLD"
    draws = ((Draw("gaussian", 1.0, "fixed", 3, 6, 1.0), 3),)
    assert composition.epsilon(draws, DELTA, False) == (pytest.approx(7.47, abs=5e-3), "RDP")


def test_golden_thesis_local_dp():
    """σ = 1, n = 100, C = 1: the thesis's 1 is a multiplier of 1/100 for a client and 1/200 for a record."""
    rounds = [release(0.01) for _ in range(15)]
    client, record = price(rounds), price(rounds, unit="record")
    assert client.multiplier == pytest.approx(1 / 100) and record.multiplier == pytest.approx(1 / 200)
    assert client.epsilon == pytest.approx(7.665e4, rel=1e-4)
    assert record.epsilon == pytest.approx(gaussian_epsilon(1 / 200 / math.sqrt(15), DELTA), rel=1e-12)
    assert "record count" in " ".join(client.reasons + record.reasons)


@pytest.mark.parametrize("noise, rounds", [(4.0, 1), (2.0, 7), (1.0, 3)])
def test_the_closed_form_is_what_pld_converges_to(noise, rounds):
    found = price([release(noise) for _ in range(rounds)]).epsilon
    assert found == pytest.approx(accountant_epsilon(PLDAccountant(), GaussianDpEvent(noise), rounds), abs=1e-4)


def test_golden_poisson():
    found = price([release(6 * 0.97**t, sampling=TENTH) for t in range(20)])
    assert found.epsilon == pytest.approx(0.393, abs=1e-3)
    assert found.accountant == "PLD"


# --- dp_accounting's traps, pinned: if these change, `composition` must


def test_trap_rdp_does_not_double_under_replace_one_and_pld_does():
    by = {
        (kind, relation): accountant_epsilon(kind(neighboring_relation=relation), GaussianDpEvent(4.0))
        for kind in (RdpAccountant, PLDAccountant)
        for relation in (ADD_REMOVE, REPLACE_ONE)
    }
    assert by[RdpAccountant, REPLACE_ONE] == by[RdpAccountant, ADD_REMOVE] == pytest.approx(1.013, abs=1e-3)
    assert by[PLDAccountant, ADD_REMOVE] == pytest.approx(gaussian_epsilon(4.0, DELTA), abs=1e-4)
    assert by[PLDAccountant, REPLACE_ONE] == pytest.approx(gaussian_epsilon(2.0, DELTA), abs=1e-4)
    assert price([release(4.0)], adjacency="replace_one").epsilon == pytest.approx(
        by[PLDAccountant, REPLACE_ONE], abs=1e-4
    )


def test_trap_rdp_without_replacement_does_not_double_either():
    event = SampledWithoutReplacementDpEvent(6, 3, GaussianDpEvent(2.0))
    undoubled = accountant_epsilon(RdpAccountant(neighboring_relation=REPLACE_ONE), event, 3)
    assert undoubled == pytest.approx(3.11, abs=5e-3)  # if this becomes 7.47, `Draw.inner` must no longer double


@pytest.mark.parametrize(
    "kind, relation, event",
    [
        (RdpAccountant, REPLACE_ONE, PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0))),
        (RdpAccountant, ADD_REMOVE, SampledWithoutReplacementDpEvent(6, 3, GaussianDpEvent(1.0))),
        (PLDAccountant, REPLACE_ONE, SampledWithoutReplacementDpEvent(6, 3, GaussianDpEvent(1.0))),
        (PLDAccountant, ADD_REMOVE, SampledWithoutReplacementDpEvent(6, 3, GaussianDpEvent(1.0))),
        (PLDAccountant, REPLACE_ONE, LaplaceDpEvent(1.0)),
        (RdpAccountant, ADD_REMOVE, PoissonSampledDpEvent(0.1, LaplaceDpEvent(1.0))),
    ],
)
def test_trap_what_each_accountant_refuses(kind, relation, event):
    with pytest.raises(UnsupportedEventError):
        kind(neighboring_relation=relation).compose(event)


# --- sampling


@pytest.mark.parametrize("adjacency, relation", [("zero_out", ADD_REMOVE), ("replace_one", REPLACE_ONE)])
def test_poisson_is_plds_own_number_with_the_bound_as_it_is(adjacency, relation):
    event = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))
    expected = accountant_epsilon(PLDAccountant(neighboring_relation=relation), event, 5)
    found = price([release(2.0, sampling=TENTH) for _ in range(5)], adjacency=adjacency)
    assert found.epsilon == pytest.approx(expected, abs=1e-3)


def hockey_stick(p, q, alpha, cell):
    return float(np.maximum(p - alpha * q, 0).sum() * cell)


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_poisson_against_integration(adjacency):
    """One round: δ at the priced ε, integrated directly from the two mixtures, is the δ asked for."""
    rate, noise = 0.1, 1.0
    epsilon = price([release(noise, sampling=TENTH)], adjacency=adjacency).epsilon
    x = np.linspace(-14, 14, 400_001)
    out = normal.pdf(x, 0, noise)
    member = (1 - rate) * out + rate * normal.pdf(x, 1, noise)
    other = out if adjacency == "zero_out" else (1 - rate) * out + rate * normal.pdf(x, -1, noise)
    delta = max(hockey_stick(p, q, math.exp(epsilon), x[1] - x[0]) for p, q in [(member, other), (other, member)])
    assert delta == pytest.approx(DELTA, rel=0.02) and delta <= DELTA


def test_the_poisson_pair_dominates_every_other_two_vectors():
    """Two vectors in the unit disc, not only opposite ones: the opposite pair has the largest δ at every ε."""
    rate, noise = 0.3, 0.8
    grid = np.linspace(-6, 6, 241)
    x, y = np.meshgrid(grid, grid)
    cell = (grid[1] - grid[0]) ** 2

    def mixture(u):
        out, member = normal.pdf(x, 0, noise), normal.pdf(x, u[0], noise) * normal.pdf(y, u[1], noise)
        return (1 - rate) * out * normal.pdf(y, 0, noise) + rate * member

    opposite = mixture((1, 0)), mixture((-1, 0))
    others = [
        (mixture((radius * math.cos(a), radius * math.sin(a))), mixture((-1, 0)))
        for radius in (0.5, 1.0)
        for a in np.linspace(0, math.pi, 7)
    ]
    for alpha in (0.6, 1.0, 1.5, 3.0):
        largest = hockey_stick(*opposite, alpha, cell)
        assert all(hockey_stick(*pair, alpha, cell) <= largest + 1e-9 for pair in others)


def least_epsilon_of_the_pair(rate: float, inner: float, draws: int) -> float:
    """A lower bound on ε of (1−q)N(0, 1) + qN(±inner, 1), composed: privacy losses rounded down, δ by FFT."""
    step, cells = 1e-4, 1 << 18
    edges = np.linspace(-8 - inner, 8 + inner, 400_001)

    def mixture(of, x, sign):
        return (1 - rate) * of(x) + rate * of(x - sign * inner)

    losses = np.log(mixture(normal.pdf, edges, 1) / mixture(normal.pdf, edges, -1))  # increasing
    at = np.floor(losses[:-1] / step).astype(int)
    mass = np.bincount(at % cells, weights=np.diff(mixture(normal.cdf, edges, 1)), minlength=cells)
    composed = np.fft.irfft(np.fft.rfft(mass) ** draws, cells)
    loss = step * np.where(np.arange(cells) < cells // 2, np.arange(cells), np.arange(cells) - cells)

    def delta(epsilon: float) -> float:
        above = loss > epsilon
        return float((composed[above] * -np.expm1(epsilon - loss[above])).sum())

    return float(brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, 12.0))


@pytest.mark.parametrize("use_pld", [True, False], ids=["PLD", "RDP"])
@pytest.mark.parametrize(("ratio", "inner", "rate", "draws"), [(1.0, 0.5, 0.1, 100), (0.4, 0.2, 0.3, 300)])
def test_no_accountant_proves_less_of_the_poisson_pair_than_its_privacy_losses_say(ratio, inner, rate, draws, use_pld):
    """The first case's ε is 4.368, a PLD of the pair; half of the way from one vector to the other would cost 4.342."""
    draw = Draw("gaussian", ratio, "poisson_pair", 1000 * rate, 1000, inner)
    found, _ = composition.epsilon(((draw, draws),), DELTA, use_pld)
    least = least_epsilon_of_the_pair(rate, inner, draws)
    assert found >= least and (draws != 100 or least > 4.36)


@pytest.mark.parametrize("unit", ["client", "record"])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_a_fixed_cohort_is_never_priced_as_poisson(unit, adjacency):
    fixed = [release(4.0, sampling=Sampling("without_replacement", 10, 1)) for _ in range(3)]
    poisson = [release(4.0, sampling=TENTH) for _ in range(3)]
    found = price(fixed, unit=unit, adjacency=adjacency)
    assert found.epsilon > price(poisson, unit=unit, adjacency=adjacency).epsilon
    assert "not Poisson" in " ".join(found.reasons)


def test_zeroing_out_of_a_fixed_cohort_is_the_less_of_two_sound_numbers():
    rounds = [release(2.0, sampling=HALF_OF_SIX) for _ in range(3)]
    unsampled = gaussian_epsilon(2.0 / math.sqrt(3), DELTA)  # 3.71 < 7.47: sampling proves nothing here
    assert price(rounds).epsilon == pytest.approx(unsampled) and price(rounds).accountant == "closed form"
    few = [release(2.0, sampling=Sampling("without_replacement", 1000, 3)) for _ in range(3)]
    assert price(few).epsilon == price(few, adjacency="replace_one").epsilon < unsampled


def test_sampling_records_amplifies_for_records_only():
    batches = Sampling("poisson", 100, 10.0, unit="record")
    run = [release(1.0, bound_of="record", records=100, sampling=batches, steps=50)]
    event = PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0))
    expected = accountant_epsilon(PLDAccountant(), event, 50)
    assert price(run, unit="record").epsilon == pytest.approx(expected, rel=1e-3)
    client = price(run)
    assert client.epsilon == pytest.approx(gaussian_epsilon(1 / 100 / math.sqrt(50), DELTA))
    assert "a record" in " ".join(client.reasons)


def test_a_poisson_batch_can_hold_all_of_a_clients_records():
    batches = Sampling("poisson", 100, 10.0, unit="record")
    assert price([release(1.0, bound_of="record", records=10, sampling=batches)]).multiplier == pytest.approx(1 / 100)


def test_one_cohort_for_several_steps_is_sampled_once():
    """Three steps under one draw of the cohort cost more than three cohorts, and what a Gaussian of std σ/√3 costs."""
    together = price([release(3.0, sampling=TENTH, steps=3)]).epsilon
    assert together > price([release(3.0, sampling=TENTH) for _ in range(3)]).epsilon
    assert together == pytest.approx(price([release(math.sqrt(3.0), sampling=TENTH)]).epsilon)


@pytest.mark.full
def test_sampling_never_costs_more_than_none():
    for noise, adjacency in itertools.product((0.05, 5.0), ("zero_out", "replace_one")):
        for sampling in (TENTH, HALF_OF_SIX):
            with_it = price([release(noise, sampling=sampling) for _ in range(4)], adjacency=adjacency).epsilon
            assert with_it <= price([release(noise) for _ in range(4)], adjacency=adjacency).epsilon * (1 + 1e-6)


def test_epsilon_above_a_million_goes_by_rdp_or_closed_form():
    found = price([release(1 / 2000, sampling=TENTH) for _ in range(10)])
    assert found.accountant != "PLD" and 1e6 < found.epsilon <= gaussian_epsilon(1 / 2000 / math.sqrt(10), DELTA)


def test_rounding_in_the_rdp_series_is_not_taken_for_privacy():
    """A divergence of 4.5e-20 comes out a few ulps below 0, in dp_accounting ε = 0; 10¹³ of them are not 0."""
    draws = ((Draw("gaussian", 1e-5, "poisson", 3, 100_000, 1e-5), 10**13),)
    by_central_limit = gaussian_epsilon(1 / (3e-5 * 1e-5 * math.sqrt(1e13)), 1e-9)
    assert composition.epsilon(draws, 1e-9, False)[0] > by_central_limit > 0.004


@pytest.mark.few(2)
@pytest.mark.parametrize("sampling", [TENTH, HALF_OF_SIX, Sampling("without_replacement", 100_000, 3)])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_extreme_multipliers_are_priced(sampling, adjacency):
    found = [
        price([release(z, sampling=sampling)], adjacency=adjacency).epsilon for z in (1e12, 3e5, 1e5, 1e-4, 1e-6, 1e-12)
    ]
    assert found[:3] == [0, 0, 0] and sorted(found) == found and found[-1] > 1e23


def test_noise_of_the_members_own_amplifies_nothing():
    """Multiplier 4, 2 of it drawn here: the rest comes and goes with the member, so the cohort's size would show."""
    own = stated(GaussianLaw(2.0, earlier=math.sqrt(12)), sampling=TENTH)
    found = price([own])
    assert found.epsilon == pytest.approx(gaussian_epsilon(4.0, DELTA))
    assert "the members" in " ".join(found.reasons)


# --- what was seen


def test_what_is_computed_from_seen_releases_is_free():
    uplinks = [release(2.0, subjects=(c,)) for c in range(3)]
    down = release(1.0, subjects=range(3), parents=frozenset(u.id for u in uplinks))
    assert price([*uplinks, down]).epsilon == price(uplinks[:1]).epsilon
    assert "from others" in " ".join(price([*uplinks, down]).reasons)
    assert price([down]).epsilon == pytest.approx(gaussian_epsilon(1.0, DELTA))
    assert price([*uplinks[1:], down]).epsilon == price([down]).epsilon


def test_free_even_without_noise_but_only_with_parents():
    uplink = release(2.0)
    relayed = release(mechanism="none", parents=frozenset({uplink.id}))
    assert price([uplink, relayed]).epsilon == price([uplink]).epsilon
    assert price([uplink, changed(relayed, parents=frozenset())]).epsilon == math.inf
    assert price([changed(uplink, parents=frozenset({uplink.id}))]).epsilon == price([uplink]).epsilon


def test_seeing_some_members_ends_the_amplification():
    member, hidden = release(50.0, subjects=(3,)), release(2.0, subjects=range(6), sampling=HALF_OF_SIX)
    down = changed(hidden, parents=frozenset({member.id, "another"}))
    assert price([member, down]).epsilon == pytest.approx(gaussian_epsilon(2.0, DELTA))
    assert "the sample" in " ".join(price([member, down]).reasons)


def test_nothing_about_the_subject_costs_nothing():
    found = price([release(subjects=(1,)), release(mechanism="none", subjects=(2,))])
    assert (found.epsilon, found.releases, found.multiplier) == (0.0, 0, None)
    assert price([]).epsilon == 0


def test_the_same_release_in_many_messages_is_one():
    one = release(2.0)
    assert price([one, one, changed(one)]).releases == 1


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"problem": "the clip norm is a median of private norms"}, "median of private norms"),
        ({"law": Silent()}, "without noise"),
        ({"bound_norm": None}, "nothing bounds"),
        ({"law": GaussianLaw(0.0)}, "no noise where the bound"),
        ({"law": LaplaceLaw(1.0)}, "L1 bound"),
    ],
)
def test_what_cannot_be_priced_is_infinite_and_says_why(facts, words):
    found = price([release(), changed(release(), **facts)])
    assert found.epsilon == math.inf and found.accountant == "none" and found.multiplier is None
    assert any(words in reason for reason in found.reasons)
    with pytest.raises(ValueError, match="no noise gives epsilon 1"):
        noise_factor([changed(release(), **facts)], 1.0)


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"bound_norm": -1.0}, "ratio -0.5"),
        ({"steps": 0}, "steps 0"),
        ({"records": 0}, "records 0"),
        ({"sampling": Sampling("poisson", 10, 11.0)}, "11.0 of 10"),
    ],
)
def test_facts_that_cannot_be_are_refused(facts, words):
    with pytest.raises(ValueError, match=words):
        price([changed(release(), **facts)])


@pytest.mark.parametrize(
    "question, words", [({"unit": "user"}, "'user'"), ({"adjacency": "add"}, "'add'"), ({"delta": 1.0}, "delta is 1.0")]
)
def test_questions_that_cannot_be_are_refused(question, words):
    with pytest.raises(ValueError, match=words):
        price([release()], **question)


# --- composition


@pytest.mark.parametrize("facts", [{}, {"sampling": Sampling("poisson", 50, 5.0, unit="record"), "bound_of": "record"}])
def test_n_steps_at_once_are_n_releases(facts):
    at_once, one_by_one = [release(3.0, steps=8, **facts)], [release(3.0, **facts) for _ in range(8)]
    for unit in ("client", "record"):
        assert price(at_once, unit=unit) == price(one_by_one, unit=unit)


def test_mixed_mechanisms():
    gaussian, laplace = [release(3.0)], [release(4.0, mechanism="laplace")]
    mixed = price(gaussian + laplace).epsilon
    assert max(price(gaussian).epsilon, price(laplace).epsilon) < mixed < price(gaussian).epsilon + 1 / 4
    slow = PLDAccountant().compose(GaussianDpEvent(3.0)).compose(LaplaceDpEvent(4.0)).get_epsilon(DELTA)
    assert mixed == pytest.approx(slow, abs=1e-3)
    vast = price([release(0.01), release(0.001, mechanism="laplace")])
    assert vast.epsilon == pytest.approx(gaussian_epsilon(0.01, DELTA) + 1000)
    assert vast.accountant.split(" + ") == ["closed form", "linear composition"]


def test_sampled_laplace_is_amplified_only_where_an_accountant_says_so():
    rounds = [release(2.0, mechanism="laplace", sampling=TENTH) for _ in range(3)]
    expected = accountant_epsilon(PLDAccountant(), PoissonSampledDpEvent(0.1, LaplaceDpEvent(2.0)), 3)
    assert price(rounds).epsilon == pytest.approx(expected, abs=1e-3)
    plain = [release(2.0, mechanism="laplace") for _ in range(3)]
    assert price(rounds, adjacency="replace_one").epsilon == price(plain, adjacency="replace_one").epsilon


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.05, 50.0), min_size=1, max_size=6), st.floats(1.0, 5.0), st.floats(1e-12, 0.1))
def test_more_noise_or_a_larger_delta_never_costs_more(noises, factor, delta):
    def at(noises, delta):
        return price([release(z) for z in noises], delta=delta).epsilon

    now = at(noises, delta)
    assert at([z * factor for z in noises], delta) <= now * (1 + 1e-9)
    assert at(noises, min(0.5, delta * factor)) <= now * (1 + 1e-9)
    assert at([*noises, 1.0], delta) >= now
    assert at(noises[::-1], delta) == now


@pytest.mark.full
@settings(max_examples=3, deadline=None)
@given(st.floats(0.1, 10.0), st.floats(0.01, 0.9), st.sampled_from(["poisson", "without_replacement"]))
def test_the_same_under_sampling(noise, rate, kind):
    def at(noise, rate, delta=DELTA):
        sampling = Sampling(kind, 100, max(1, round(100 * rate)))
        draws = accounting._draws(accounting._seen([release(noise, sampling=sampling)])[0], "client", "replace_one")
        return composition.epsilon(draws, delta, False)[0]  # RDP: fast, and without PLD's grid

    now = at(noise, rate) * (1 + 1e-9)
    assert at(1.5 * noise, rate) <= now and at(noise, rate / 2) <= now and at(noise, rate, 1e-3) <= now


# --- the worst-off, and the noise for a target


def test_worst_is_the_largest_of_all_and_composes_equal_facts_once():
    releases = [release(100.0, round=r, subjects=(c,)) for c in range(100) for r in range(15)]
    releases += [release(70.0, subjects=(42,))]
    composition.epsilon.cache_clear()
    found = worst(releases, range(100), unit="client", adjacency="zero_out", delta=DELTA)
    assert composition.epsilon.cache_info().misses == 2
    assert found.epsilon == max(price(releases, subject=c).epsilon for c in range(0, 100, 6))
    assert "Client 42" in found.reasons[0]


def test_worst_of_a_secret_cohort_and_of_somebody_unpriceable():
    hidden = [release(4.0, subjects=range(10), sampling=TENTH) for _ in range(3)]
    same = worst(hidden, range(10), unit="client", adjacency="zero_out", delta=DELTA)
    assert same == price(hidden)
    broken = [*hidden, release(mechanism="none", subjects=(7,))]
    assert worst(broken, range(10), unit="client", adjacency="zero_out", delta=DELTA).epsilon == math.inf
    with pytest.raises(ValueError, match="no subject"):
        worst(hidden, [], unit="client", adjacency="zero_out", delta=DELTA)


def scaled(releases, factor):
    return [changed(r, law=replace(r.law, std=r.law.std * factor)) for r in releases]


DECAYING = [release(6 * 0.97**t) for t in range(20)]
FIXED = [release(2.0, sampling=HALF_OF_SIX) for _ in range(3)]
POISSON = [release(2.0, sampling=TENTH) for _ in range(5)]
LAPLACE = [release(4.0, mechanism="laplace") for _ in range(10)]


@pytest.mark.parametrize(
    "releases, adjacency, target, slack",
    [
        (DECAYING, "zero_out", 0.5, 1e-12),
        (DECAYING, "replace_one", 1000.0, 1e-12),
        pytest.param(FIXED, "replace_one", 20.0, 1e-3, marks=pytest.mark.full),
        pytest.param(POISSON, "zero_out", 3.0, 1e-3, marks=pytest.mark.full),
        (POISSON, "zero_out", 1000.0, 1e-3),
        (LAPLACE, "zero_out", 8.0, 1e-3),
        (LAPLACE, "replace_one", 0.5, 1e-3),
    ],
)
def test_the_noise_for_a_target(releases, adjacency, target, slack):
    question = {"subject": 0, "unit": "client", "adjacency": adjacency, "delta": DELTA}
    factor = noise_factor(releases, target, adjacency=adjacency)
    assert target * (1 - slack) <= proven(scaled(releases, factor), **question).epsilon <= target
    assert (factor > 1) == (proven(releases, **question).epsilon > target)


def test_the_noise_for_a_target_says_when_there_is_none():
    assert noise_factor([release(subjects=(1,))], 1.0) == 0
    with pytest.raises(ValueError, match="delta above 0"):
        noise_factor([release()], 1.0, delta=0.0)
    with pytest.raises(ValueError, match="target epsilon is 0"):
        noise_factor([release()], 0)
    assert noise_factor([release(4.0, mechanism="laplace")], 0.125, delta=0.0) == pytest.approx(2.0, rel=2e-4)


# --- geometric noise (GEO): what its real ledger gives the busiest client beside eq. 8


GEO_DELTA, GEO_ROUNDS, GEO_CLIENTS, GEO_RECORDS = 1e-3, 30, 100, 600


@dataclass(frozen=True)
class Told:
    """A schedule that is told the test losses instead of reading them from training."""

    schedule: Schedule
    losses: tuple[float, ...]

    def plan(self, round: int, history) -> RoundPlan | None:
        return self.schedule.plan(round, {"test_loss": list(self.losses[:round])})


@pytest.fixture(scope="module")
def anything() -> Dataset:
    """The noise and who takes part do not depend on data; only its amount does."""
    rows = (torch.zeros(GEO_RECORDS, 1, 1, 1), torch.zeros(GEO_RECORDS, dtype=torch.long))
    return make("anything", rows, rows, rows, 2, {})


def test_a_release_that_tells_nothing_costs_nothing():
    """Ratio 0: what a weight of 0, or a noise without end, makes of any noise."""
    silent = release(math.inf)
    price = proven([silent], subject=0, unit="client", adjacency="zero_out", delta=1e-5)
    both = proven([silent, release()], subject=0, unit="client", adjacency="zero_out", delta=1e-5)
    alone = proven([release()], subject=0, unit="client", adjacency="zero_out", delta=1e-5)
    assert price.epsilon == 0.0 and both.epsilon == pytest.approx(alone.epsilon)


def geometric_run(
    data: Dataset, seed: int = 3, losses: tuple[float, ...] = (), **parameters
) -> tuple[list[Release], Claim]:
    """Uploads' releases of the preset as published, untrained: U = 100, K = 10, n = 600, C = 5, M = 30, δ = 1e-3."""
    module = torch.nn.Linear(1, 2)
    preset = PRESETS["geometric"]
    chosen = preset.parameters(
        **{"rounds": GEO_ROUNDS, "epsilon": 10.0, "delta": GEO_DELTA, "clip": 5.0, "participants": 10, **parameters}
    )
    scheme = preset.scheme(
        chosen, LocalTraining(optimiser="sgd", lr=0.1), Population((GEO_RECORDS,) * GEO_CLIENTS, Layout.of(module))
    )
    if losses:
        scheme = replace(scheme, schedule=Told(scheme.schedule, losses))
    sent: list[Message] = []
    clients = [torch.arange(GEO_RECORDS)] * GEO_CLIENTS
    run_many([Federation(scheme, module, data, clients, seed, Wire(sent.append), evaluate=False)], _no_training)
    assert scheme.claim is not None
    return [r for m in sent if m.sender_party != SERVER for r in m.releases], scheme.claim


def draws_of(releases: list[Release]) -> Counter[int]:
    return Counter(c for r in releases for c in r.subjects)


def as_the_paper_has_it(releases: list[Release]) -> list[Release]:
    """The same noise over the paper's own sensitivity, Δ = 2C/n for a record."""
    n = GEO_RECORDS
    return [changed(r, bound_of="record", records=n, bound_norm=2 * r.bound_norm / n) for r in releases]


def of_record(releases: list[Release], client: int) -> float:
    return price(releases, subject=client, unit="record", delta=GEO_DELTA).epsilon


@pytest.mark.full
@pytest.mark.parametrize(
    "epsilon, few, eight, ten", quick([(5, 4.55, 8.58, 9.96), (10, 11.27, 22.5, 26.5), (20, 30.3, 64.9, 77.7)], 1)
)
def test_geometric_golden_by_participation(epsilon, few, eight, ten, anything):
    """Eq. 8 claims ε for everybody.

    Its own noise, over its own Δ, at ϑ = 1: 3 draws already cost more from ε = 7 on, 8 and 10 always.
    """
    found = {}
    for seed in (6, 2):  # in which the busiest client is drawn 8 and 10 times
        releases, claim = geometric_run(anything, seed, epsilon=epsilon, ratio=1.0)
        assert claim.epsilon(GEO_ROUNDS, GEO_DELTA) == pytest.approx(epsilon)
        counts = draws_of(releases)
        assert sum(counts.values()) == 10 * GEO_ROUNDS
        found |= {k: of_record(as_the_paper_has_it(releases), c) for c, k in counts.items()}
        busiest = max(counts.values())
        assert busiest == {6: 8, 2: 10}[seed]
        row = worst(as_the_paper_has_it(releases), counts, unit="record", adjacency="zero_out", delta=GEO_DELTA)
        assert row.epsilon == found[busiest] > epsilon
    assert found[3] == pytest.approx(few, abs=0.06)
    assert (found[8], found[10]) == (pytest.approx(eight, abs=0.06), pytest.approx(ten, abs=0.06))
    assert (found[3] <= epsilon) == (epsilon < 6.98)


def test_geometric_with_the_bound_that_holds_is_n_times_weaker(anything):
    """A clipped weight vector can be turned around by one record: Δ = 2C, which eq. 8's noise leaves bare."""
    releases, _ = geometric_run(anything, ratio=1.0)
    client, draws = max(draws_of(releases).items(), key=lambda entry: entry[1])
    multiplier = claims.geometric_multiplier(10, GEO_DELTA, GEO_ROUNDS, 1.0, 0.1) / GEO_RECORDS
    held = price(releases, subject=client, unit="record", delta=GEO_DELTA)
    assert held.multiplier == pytest.approx(multiplier)
    assert (
        held.epsilon == pytest.approx(gaussian_epsilon(multiplier / math.sqrt(draws), GEO_DELTA)) and held.epsilon > 1e6
    )


@pytest.mark.full
def test_geometric_shortened_online_is_priced_with_the_noise_really_used(anything):
    """ϑ = .9, cut to M' = 24 after m = 10 rounds: the tail is worth 87.0/σ'², where Theorem 2 counts 43.7, and the ten
    rounds before σ, not σ'.
    """
    losses = tuple(1.0 - 0.01 * r + (0.1 if r == 9 else 0.0) for r in range(GEO_ROUNDS))  # falls but in the tenth round
    releases, claim = geometric_run(anything, losses=losses, ratio=0.9, shorten=0.8, participants=None)
    assert draws_of(releases) == dict.fromkeys(range(GEO_CLIENTS), 24)
    first = claims.geometric_multiplier(10, GEO_DELTA, GEO_ROUNDS, 0.9, 1.0)
    later = claims.geometric_adjusted_multiplier(10, GEO_DELTA, 24, 10, 0.9, 1.0)
    spent = sum(0.9 ** (1 - m) for m in range(1, 11)) / first**2 + 87.0 / later**2
    found = of_record(as_the_paper_has_it(releases), 0)
    assert found == pytest.approx(gaussian_epsilon(1 / math.sqrt(spent), GEO_DELTA), rel=1e-3)
    assert claim.epsilon(24, GEO_DELTA) == pytest.approx(10) and found > 10
