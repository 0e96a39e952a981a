"""Sums of noisy values: exact, so that no bit of a sum tells of a single one (Mironov 2012), and priced only then."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import exp, hypot, log, pi, sqrt

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.audit.two_worlds.estimators.clopper_pearson import upper_limit
from dpfl_audit.defenses.aggregate import Mean, PopulationMean, weighted_sum
from dpfl_audit.defenses.federation import _outgoing
from dpfl_audit.defenses.grid import adds_up, total
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalResult, LocalTraining
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.scheme import Context, Scheme
from dpfl_audit.defenses.steps.perturb import Mechanism, Perturb, summed_releases
from dpfl_audit.defenses.wire import Bound, Parcel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace, norm
from torch import nn

RUNS = 20_000  # every number of a message is a run of its own
LAYOUT = Layout(("a",), ((RUNS,),))
DELTA = 1e-5


def context(party: int) -> Context:
    return Context(party, 0, party, RoundPlan(), LAYOUT, 10, frozenset({party}), torch.zeros(RUNS))


def on_its_way(
    value: float, std: float, seed: int, reach: float, mechanism: Mechanism = "gaussian", anywhere: bool = False
) -> Parcel:
    """A client's value, the same number RUNS times, through the noise and out of `_outgoing`."""
    local = LocalTraining()
    scheme = Scheme(name="s", source="", local=local, client=(Perturb(noise_std=std, mechanism=mechanism),))
    start = torch.zeros(RUNS)
    job = LocalJob(nn.Identity(), LAYOUT, local, start, start, start, torch.zeros(1, 1), "update", 1.0, 0, (), 10)
    order, size = (1, reach * RUNS) if mechanism == "laplace" else (2, reach * sqrt(RUNS))
    bound = Bound(size, order, anywhere=anywhere)
    result = LocalResult(torch.full((RUNS,), value), bound=bound)
    return _outgoing(scheme, job, result, context(seed), Parcel(start))


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 2**18), min_size=1, max_size=6),
    exponents=st.lists(st.integers(0, 4), min_size=6, max_size=6),
    size=st.sampled_from([2**20, 2**45, 2**53 - 1]),
    seed=st.integers(0, 999),
)
def test_a_total_is_the_number_next_to_the_exact_sum(counts, exponents, size, seed):
    """In integers of any length: Σ k_i·y_i of whole numbers below 2⁵³ of unequal steps, rounded once."""
    rng = np.random.default_rng(seed)
    whole = [rng.integers(-size, size + 1, 40) for _ in counts]
    steps = [2.0 ** (e - 30) for e in exponents[: len(counts)]]
    vectors = [torch.from_numpy(w.astype(float)) * g for w, g in zip(whole, steps)]
    if sum(counts) * max(steps) > 2**26 * min(steps):
        return
    made = total(vectors, counts, steps)
    for j, value in enumerate(made.tolist()):
        exact = sum(k * int(w[j]) * Fraction(g) for k, w, g in zip(counts, whole, steps))
        assert value == float(Fraction(exact))  # Python rounds to the nearest


@pytest.mark.parametrize(
    ("merge", "weights"),
    [
        (Mean(), (1 / 3, 1 / 3, 1 / 3)),
        (Mean(weighted=True), (320 / 345, 10 / 345, 15 / 345)),
        (PopulationMean(clients=9, records=1000), (0.96, 0.03, 0.045)),
    ],
)
def test_a_hubs_merge_is_a_function_of_the_sum_of_whole_numbers(merge, weights):
    """Other messages with the same Σ k_i·y_i give the same bits, though each product w_i·y_i rounds by its own size."""
    parcels = [on_its_way(v, s, i, 128.0) for i, (v, s) in enumerate(((128.0, 8.0), (0.0, 256.0), (1e-3, 31.0)))]
    records = (320, 10, 15)
    merged = weighted_sum(parcels, merge.weights(records))
    assert [merged.scale * k for k in merged.counts] == pytest.approx(weights)
    by_hand = sum(w * p.vector for w, p in zip(weights, parcels))
    assert torch.allclose(merged.vector, by_hand, rtol=1e-12)
    a, b, _ = merged.counts
    moved = (torch.arange(RUNS) * 987_654_321 % 2**45).double() * max(p.step for p in parcels)
    other = [
        Parcel(parcels[0].vector + b * moved, parcels[0].bound, step=parcels[0].step),
        Parcel(parcels[1].vector - a * moved, parcels[1].bound, step=parcels[1].step),
        parcels[2],
    ]
    whole = torch.cat([(p.vector / p.step).abs() for p in other])
    assert float(whole.max()) < 2**53 and bool((whole == whole.round()).all())
    assert torch.equal(weighted_sum(other, merge.weights(records)).vector, merged.vector)


def limit(absent: int, present: int, runs: int) -> float:
    """The ε that two counts of an event demonstrate (Clopper-Pearson, 95 %)."""
    least = 1 - float(upper_limit(runs - absent, runs, 0.025)) - DELTA
    return log(least / float(upper_limit(present, runs, 0.025))) if least > 0 else 0.0


@pytest.mark.parametrize(("value", "stds"), [(128.0, (8.0, 256.0)), (4.0, (1.0, 1.0)), (8.0, (1.0, 8.0))])
def test_the_last_bits_of_a_sum_do_not_tell_how_large_a_message_was(value, stds):
    """The first client's value, or 0, in the mean of two. Float32 messages from 2ⁿ on are multiples of 2ⁿ⁻²³, so a sum
    that is not was made of a smaller one: "the sum is within ± 32 and no multiple of 2⁻¹⁷" came up 89 times in 1600
    without the client and never with it, ε ≥ 2.97 where 1.99 was proven. Every such event of the aggregate and of the
    broadcast model, in either direction, now stays below what is proven.
    """
    shown = 0.0
    sent = {v: on_its_way(v, stds[0], int(v > 0), value) for v in (0.0, value)}
    other = on_its_way(0.0, stds[1], 2, value)
    for cast in (torch.float64, torch.float32):
        sums = [
            2 * weighted_sum([sent[v], other], Mean().weights((1, 1))).vector.to(cast).double() for v in (0.0, value)
        ]
        for exponent in range(-40, 1):
            whole = [(x * 2.0**-exponent).frac() == 0 for x in sums]
            for width in (value * 2.0**n for n in range(-4, 2)):
                near = [x.abs() < width for x in sums]
                for event in ((n & w for n, w in zip(near, whole)), (n & ~w for n, w in zip(near, whole))):
                    absent, present = (int(e.sum()) for e in event)
                    shown = max(shown, limit(absent, present, RUNS), limit(present, absent, RUNS))
    assert 0 < shown <= gaussian_epsilon(hypot(*stds) / value, DELTA)


@pytest.mark.parametrize("value", [0.0, 128.0])
def test_the_trailing_zeros_of_a_sum_are_coin_flips(value):
    """Whatever the values: half of the sums of whole steps are odd, half of the rest no multiples of 4, and so on."""
    parcels = [on_its_way(value, 8.0, 0, 128.0), on_its_way(0.0, 256.0, 1, 128.0)]
    merged = weighted_sum(parcels, Mean(weighted=True).weights((3, 1)))
    whole = (merged.vector / merged.scale / min(p.step for p in parcels)).round().to(torch.int64)
    expected = RUNS
    for _ in range(8):
        odd = int((whole % 2 != 0).sum())
        expected = len(whole) / 2
        assert abs(odd - expected) < 4 * sqrt(expected / 2)
        whole = whole[whole % 2 == 0] // 2


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("counts", [(1, 1), (1, 3), (2, 3)])
def test_rounded_noises_add_up_as_continuous_ones_and_boxes_do(mechanism, counts):
    """k₁·round(n₁) + k₂·round(n₂) has on the common grid the masses g·f(x), f the density of Σ k_i·(n_i + U_i) by the
    convolution's integral; but for exp(−π²/r²) for Gaussians, and for Laplace noises (2r/π)² of each mass: here at a
    coarse step, where that is 2·10⁻⁸, and 1 %.
    """
    step, law = (0.25, norm()) if mechanism == "gaussian" else (1 / 16, laplace(scale=1 / sqrt(2)))
    r, far = max(counts) * step, 30.0

    def mass(at: np.ndarray) -> np.ndarray:  # of n + U within a step, by the tail, where it is precise
        return law.cdf(step / 2 - abs(at)) - law.cdf(-step / 2 - abs(at))

    whole = np.arange(-round(far / step), round(far / step) + 1)
    both = np.array([1.0])
    for k in counts:
        single = np.zeros(k * (len(whole) - 1) + 1)
        single[::k] = mass(whole * step)
        both = np.convolve(both, single)
    places = 7 * np.arange(-12, 13)
    t = np.arange(-far * max(counts), far * max(counts), step / 32)
    a, b = counts
    density = (
        np.array([np.sum(mass(t / a) * mass((x * step - t) / b)) for x in places]) * (step / 32) / (step**2 * a * b)
    )
    error = abs(both[len(both) // 2 + places] - step * density)
    if mechanism == "gaussian":
        assert error.max() <= exp(-(pi**2) / r**2) + 1e-15  # float64's own
    else:
        assert (error / (step * density)).max() <= (2 * r / pi) ** 2


@pytest.mark.parametrize(
    ("counts", "stds", "mechanism", "priced"),
    [
        ((1, 1), (8.0, 256.0), "gaussian", True),
        ((2**18, 1), (1.0, 1.0), "gaussian", True),
        ((2**26, 1), (1.0, 1.0), "gaussian", False),  # the sum of the upper bits would pass 2⁵³
        ((1, 1), (1.0, 2.0**26), "gaussian", False),  # so it would in steps of the smaller noise
        ((2**12, 1), (1.0, 1.0), "laplace", True),
        ((2**13, 1), (1.0, 1.0), "laplace", False),  # 2¹³ steps of 2⁻³⁶ are no smooth noise
    ],
)
def test_a_sum_is_priced_as_one_only_where_public_numbers_make_it_exact(counts, stds, mechanism, priced):
    parcels = [on_its_way(1.0, std, i, 1.0, mechanism) for i, std in enumerate(stds)]
    assert (summed_releases(parcels, counts, 1.0, mechanism, context(-1)) is not None) == priced
    steps = [p.step for p in parcels]
    assert adds_up(counts, steps, stds, mechanism) == priced and not adds_up(counts, (0.0, steps[1]), stds, mechanism)
    unknown = [replace(p, step=0.0) for p in parcels]
    assert summed_releases(unknown, counts, 1.0, mechanism, context(-1)) is None


@pytest.mark.parametrize("anywhere", [False, True])
def test_a_sum_moves_twice_as_far_where_what_was_clipped_held_noise(anywhere):
    """Without the client the clipped noise is still there and may point the other way: 2C, for zero_out as well."""
    parcels = [on_its_way(1.0, 8.0, i, 1.0, anywhere=anywhere) for i in range(2)]
    (summed,) = summed_releases(parcels, (1, 1), 1.0, "gaussian", context(-1))
    price = proven([summed], subject=0, unit="client", adjacency="zero_out", delta=DELTA)
    reach = (2 if anywhere else 1) * summed.bound_norm
    assert price.epsilon == pytest.approx(gaussian_epsilon(8 * sqrt(2) / reach, DELTA), rel=1e-4)


def test_noise_on_noise_is_on_the_coarser_grid():
    """The sum is then one of whole numbers of a step that both noises are."""
    twice = (Perturb(noise_std=2.0**40), Perturb(noise_std=1.0))
    parcel = Parcel(torch.ones(RUNS), Bound(sqrt(RUNS)))
    for step in twice:
        parcel = step(parcel, context(0))
    assert parcel.step == 2.0**4 and bool((parcel.vector % 16 == 0).all())
