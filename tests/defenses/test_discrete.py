"""The distributed discrete Gaussian: the law that is drawn, roundings within their norm, sums modulo m."""

from __future__ import annotations

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.defenses import discrete
from dpfl_audit.defenses.aggregate import FixedMean, Mean, weighted_sum
from dpfl_audit.defenses.discrete import discrete_gaussian
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets import distributed_gaussian
from dpfl_audit.defenses.presets.base import Population
from dpfl_audit.defenses.randomness import Keystream
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.scheme import Context
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.discrete import PerturbDiscrete, RoundToSteps, rounded_norm
from dpfl_audit.defenses.steps.perturb import Perturb, summed_releases
from dpfl_audit.defenses.wire import Bound, Parcel
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import chisquare

D = 400
LAYOUT = Layout(("a",), ((D,),))


def context(party: int = 0, noise: float = 1.0, layout: Layout = LAYOUT) -> Context:
    plan = RoundPlan(noise=noise)
    return Context(7, 0, party, plan, layout, 10, frozenset({max(party, 0)}), torch.zeros(layout.dim))


def masses(std: float, reach: int) -> np.ndarray:
    """P(k), |k| ≤ reach, with every probability right to float64 (mpmath, no recursion)."""
    with mp.workdps(40):
        weights = [mp.exp(-(mpf(k) ** 2) / (2 * mpf(std) ** 2)) for k in range(-reach, reach + 1)]
        return np.array([float(w / sum(weights)) for w in weights])


@pytest.mark.parametrize("std", [0.3, 1.0, 4.7])
def test_what_is_drawn_is_the_discrete_gaussian_and_no_other(std):
    """χ² over all whole numbers that are expected ten times or more; 2/3 and 3/2 of σ are rejected."""
    drawn = discrete_gaussian(std, 60_000, Keystream(0, "law")).numpy()
    assert (drawn == drawn.round()).all()

    def fits(other: float) -> float:
        reach = int(15 * max(std, other)) + 1
        expected = 60_000 * masses(other, reach)
        seen = np.array([(drawn == k).sum() for k in range(-reach, reach + 1)])
        rare = expected < 10
        observed = np.append(seen[~rare], seen[rare].sum())
        return chisquare(observed, np.append(expected[~rare], expected[rare].sum() + 1e-12), sum_check=False).pvalue

    assert fits(std) > 0.01
    assert fits(std * 2 / 3) < 1e-6 and fits(std * 3 / 2) < 1e-6


@pytest.mark.parametrize("std", [0.3, 2.5, 300.0])
def test_the_tables_words_are_the_law_to_124_bits(std):
    """Against mpmath at 80 digits, without the recursion."""
    upper, lower = discrete._below(std)
    with mp.workdps(80):
        scale = 2 * mpf(std) ** 2
        whole = 1 + 2 * sum(mp.exp(-(mpf(k) ** 2) / scale) for k in range(1, int(20 * std) + 5))
        total = mpf(1) / whole
        for j in range(min(len(upper) - 1, 40)):
            total += 2 * mp.exp(-(mpf(j) ** 2) / scale) / whole if j else 0
            assert abs(total * 2**124 - ((int(upper[j]) << 62) + int(lower[j]))) <= 2


def test_a_second_word_decides_where_the_first_is_a_tables_own():
    upper, lower = (torch.tensor(words.tolist()) for words in discrete._below(1.0))

    class Words:
        def words(self, count: int) -> torch.Tensor:
            first = torch.stack([upper[1], upper[1], upper[1] + 1, upper[1] - 1]) << 2
            second = torch.stack([lower[1] - 1, lower[1], lower[1], lower[1]]) << 2
            return torch.cat([first, second])

    assert discrete_gaussian(1.0, 4, Words()).tolist() == [1.0, 2.0, 2.0, 1.0]


def test_too_many_steps_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="larger granularity") as error:
        discrete_gaussian(2.0**18, 1, Keystream(0, "x"))
    assert "\n" not in str(error.value)


@settings(max_examples=30, deadline=None)
@given(size=st.floats(0.01, 40), seed=st.integers(0, 99), beta=st.sampled_from([0.0, 0.6, 0.99]), same=st.booleans())
def test_a_rounding_stays_within_its_norm_and_moves_no_number_by_a_step(size, seed, beta, same):
    rng = torch.Generator().manual_seed(seed)
    value = torch.ones(D) if same else torch.randn(D, generator=rng)
    step = 0.125
    value = (value / value.norm() * size * step).double()
    parcel = RoundToSteps(step, beta)(Parcel(value, Bound(size * step)), replace(context(), seed=seed))
    whole = parcel.vector / step
    assert bool((whole == whole.round()).all()) and float((whole - value / step).abs().max()) < 1
    assert float(parcel.vector.norm()) <= parcel.bound.norm * (1 + 1e-12)
    assert parcel.bound.norm == pytest.approx(step * rounded_norm(size, D, beta))


def test_zero_stays_zero_and_a_plan_without_noise_stays_as_it_is():
    parcel = Parcel(torch.zeros(D), Bound(1.0))
    assert bool((RoundToSteps(0.5, 0.6)(parcel, context()).vector == 0).all())
    odd = Parcel(torch.full((D,), 0.3, dtype=torch.float64), Bound(7.0))
    assert torch.equal(RoundToSteps(0.5, 0.6)(odd, context(noise=0.0)).vector, odd.vector)


def test_roundings_are_unbiased_where_none_is_done_again():
    """β = 0: the norm C + √d is never passed."""
    layout = Layout(("a",), ((40_000,),))
    parcel = Parcel(torch.full((40_000,), 0.3, dtype=torch.float64), Bound(60.1))
    mean = float(RoundToSteps(1.0, 0.0)(parcel, context(layout=layout)).vector.mean())
    assert abs(mean - 0.3) < 4 * sqrt(0.21 / 40_000)


@pytest.mark.parametrize(
    ("norm", "numbers", "beta", "expected"),
    [(3.0, 16, 0.0, 7.0), (0.1, 1, 0.01, 1.1), (100.0, 65_536, exp(-0.5), sqrt(10_000 + 16_384 + 228))],
)
def test_the_norm_after_rounding_is_theorem_1s(norm, numbers, beta, expected):
    """By hand: min(C + √d, √(C² + d/4 + √(2 log 1/β)(C + √d/2)))."""
    assert rounded_norm(norm, numbers, beta) == pytest.approx(expected, rel=1e-12)


def sent(party: int, modulus: int = 2**10, std: float = 3.0, value: float = 1.0) -> Parcel:
    parcel = Parcel(torch.full((D,), value, dtype=torch.float64))
    for step in (Clip(5.0), RoundToSteps(0.25, 0.6), PerturbDiscrete(std, modulus)):
        parcel = step(parcel, context(party))
    return parcel


def test_a_sum_is_taken_modulo_m_and_is_the_plain_one_where_it_does_not_go_round():
    """The hub's mean is a function of the sum modulo m: adding m steps to one sender's number changes no bit."""
    parcels = [sent(i) for i in range(5)]
    merged = weighted_sum(parcels, Mean().weights([1] * 5))
    plain = torch.stack([p.vector for p in parcels]).sum(0)
    assert torch.equal(merged.vector, plain * 0.2)
    moved = torch.zeros(D, dtype=torch.float64)
    moved[::3] = 2**10 * 0.25
    other = [replace(parcels[0], vector=parcels[0].vector + moved), *parcels[1:]]
    assert torch.equal(weighted_sum(other, Mean().weights([1] * 5)).vector, merged.vector)
    few = [sent(i, modulus=16) for i in range(5)]
    assert all(float((p.vector / 0.25).max()) <= 7 and float((p.vector / 0.25).min()) >= -8 for p in few)
    rounded = weighted_sum(few, FixedMean(1).weights([1] * 5)).vector / 0.25
    assert bool((torch.remainder(rounded - plain / 0.25, 16) == 0).all())
    assert float(rounded.max()) <= 7 and float(rounded.min()) >= -8


def test_what_counts_modulo_m_is_summed_with_its_like_alone():
    with pytest.raises(ValueError, match="with their like"):
        weighted_sum([sent(0), sent(1, modulus=2**11)], Mean().weights([1, 1]))
    with pytest.raises(ValueError, match="with their like"):
        weighted_sum([Parcel(torch.zeros(D)), sent(1)], Mean().weights([1, 1]))


def test_discrete_noise_needs_a_lattice_and_a_bound():
    for parcel in (Parcel(torch.zeros(D)), Parcel(torch.zeros(D), Bound(1.0))):
        with pytest.raises(ValueError, match="clipped and rounded"):
            PerturbDiscrete(1.0, 16)(parcel, context())
    with pytest.raises(ValueError, match="clipped before"):
        RoundToSteps(0.5, 0.5)(Parcel(torch.zeros(D)), context())


def epsilon(parcels: list[Parcel], **terms) -> float:
    releases = summed_releases(parcels, (1,) * len(parcels), 1 / len(parcels), "discrete", context(-1))
    if releases is None:
        return -1.0
    asked = {"subject": 0, "unit": "client", "adjacency": "zero_out", "delta": 1e-5, **terms}
    return proven(releases, **asked).epsilon


def test_a_sum_has_the_noise_of_all_who_sent():
    """n clients of σ are priced as one of √n·σ; who dropped out took the noise along."""
    four, sixteen = (epsilon([sent(i, std=s) for i in range(n)]) for n, s in ((4, 3.0), (16, 1.5)))
    assert four == pytest.approx(sixteen, rel=1e-9)
    assert epsilon([sent(i) for i in range(3)]) > four
    (alone,) = sent(0).releases
    one = proven([alone], subject=0, unit="client", adjacency="zero_out", delta=1e-5).epsilon
    assert epsilon([sent(0)]) == pytest.approx(one) and one > four


def test_senders_who_are_not_alike_are_priced_one_by_one():
    assert epsilon([sent(0), sent(1, std=4.0)]) == -1.0
    assert summed_releases([sent(0), sent(1)], (1, 2), 1.0, "discrete", context(-1)) is None
    gaussian = Perturb(noise_std=1.0)(Clip(5.0)(Parcel(torch.ones(D)), context(1)), context(1))
    assert epsilon([sent(0), gaussian]) == -1.0
    assert summed_releases([sent(0), sent(1)], (1, 1), 1.0, "gaussian", context(-1)) is None


@pytest.mark.parametrize(
    "options", [{"granularity": 1e-7}, {"granularity": 1e-40}, {"granularity": 1e40}, {"noise_multiplier": 1e9}]
)
def test_noise_that_no_table_holds_is_one_sentence_when_the_scheme_is_built(options) -> None:
    """A review: internal errors, and half a setup."""
    with pytest.raises(ValueError, match=r"noise of .* steps, where 0.001 to 131072 can be drawn; change bits or"):
        scheme = distributed_gaussian.DistributedGaussianParameters(**options)
        distributed_gaussian.PRESET.scheme(scheme, LocalTraining(), Population((60,) * 10))
