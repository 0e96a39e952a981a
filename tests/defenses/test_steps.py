"""Clips make bounds true; noise has the standard deviation that the ledger says."""

from __future__ import annotations

from functools import partial
from math import inf, sqrt

import pytest
import torch
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.randomness import Keystream
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.steps.clip import Clip, MedianClip, clip_to
from dpfl_audit.defenses.steps.perturb import Perturb, draw
from dpfl_audit.defenses.wire import Parcel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, laplace, norm
from stated import in_round

LAYOUT = Layout(("a", "b", "c"), ((30, 2), (20,), (5, 4)))


context = partial(in_round, layout=LAYOUT)


@settings(max_examples=40, deadline=None)
@given(scale=st.floats(1e-6, 1e6), bound=st.floats(1e-3, 1e3), order=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_clipped_norm_is_at_most_the_bound_and_the_direction_is_kept(scale, bound, order, seed):
    vector = scale * torch.randn(100, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    clipped = clip_to(vector, bound, order)
    assert torch.linalg.vector_norm(clipped, order) <= bound * (1 + 1e-12)
    assert torch.cosine_similarity(vector, clipped, dim=0) > 1 - 1e-9
    if torch.linalg.vector_norm(vector, order) <= bound:
        assert torch.equal(vector, clipped)


@pytest.mark.parametrize("poison", [float("nan"), inf, -inf])
def test_a_value_that_is_not_finite_does_not_pass_the_clip(poison):
    vector = torch.ones(100)
    vector[3] = poison
    assert torch.linalg.vector_norm(clip_to(vector, 1.0)) == 0


@pytest.mark.parametrize(("order", "joint"), [(2, 0.5 * sqrt(3)), (1, 1.5)])
def test_per_layer_clip_bounds_every_tensor_and_the_whole(order, joint):
    parcel = Clip(0.5, order, per_layer=True)(Parcel(torch.randn(LAYOUT.dim)), context())
    for part in LAYOUT.slices:
        assert torch.linalg.vector_norm(parcel.vector[part], order) <= 0.5 + 1e-6
    assert parcel.bound is not None and parcel.bound.norm == pytest.approx(joint)
    assert torch.linalg.vector_norm(parcel.vector, order) <= joint + 1e-6


def test_median_clip_uses_past_norms_only_and_proves_nothing():
    memory: dict = {}
    norms = []
    for size in (3.0, 9.0, 5.0, 100.0):
        vector = torch.zeros(LAYOUT.dim)
        vector[0] = size
        parcel = MedianClip()(Parcel(vector), context(memory=memory))
        norms.append(parcel.vector.norm().item())
        assert parcel.bound is not None and "private" in parcel.bound.private
    assert norms == pytest.approx([3.0, 3.0, 5.0, 5.0])  # medians of (), (3), (3, 9) = 6 > 5, (3, 9, 5) = 5


@pytest.mark.parametrize(("mechanism", "law"), [("gaussian", norm), ("laplace", laplace)])
def test_drawn_noise_has_the_stated_std(mechanism, law):
    noise = draw(mechanism, 0.3, 20_000, Keystream(1)).numpy()
    scale = 0.3 if mechanism == "gaussian" else 0.3 / sqrt(2)
    assert kstest(noise, law(scale=scale).cdf).pvalue > 0.01
    for wrong in (2 / 3, 3 / 2):
        assert kstest(noise, law(scale=scale * wrong).cdf).pvalue < 1e-6


def test_noise_is_scaled_by_the_clip_and_the_ledger_keeps_the_facts():
    clipped = Clip(2.0)(Parcel(torch.randn(LAYOUT.dim)), context())
    noisy = Perturb(noise_multiplier=1.5, divided_by="records")(clipped, context(plan=RoundPlan(noise=2.0)))
    (made,) = noisy.releases
    assert made.noise_std == pytest.approx(2.0 * 1.5 / 50 * 2.0)
    assert 2.0 < made.bound_norm == pytest.approx(2.0, rel=1e-9)  # rounding adds to it
    assert made.ratio == pytest.approx(2.0 / made.noise_std) and made.problem == ""


def test_without_a_bound_or_with_a_private_one_the_ledger_says_so():
    (made,) = Perturb(noise_std=1.0)(Parcel(torch.zeros(LAYOUT.dim)), context()).releases
    assert "bounds" in made.problem and made.ratio == inf
    median = MedianClip()(Parcel(torch.ones(LAYOUT.dim)), context(memory={}))
    (made,) = Perturb(noise_multiplier=1.0)(median, context()).releases
    assert "median" in made.problem
    l2 = Clip(1.0)(Parcel(torch.ones(LAYOUT.dim)), context())
    (made,) = Perturb(noise_multiplier=1.0, mechanism="laplace")(l2, context()).releases
    assert "L1" in made.problem


def test_per_layer_noise_divides_the_joint_multiplier_by_the_root_of_the_layers():
    clipped = Clip(1.0, per_layer=True)(Parcel(torch.randn(LAYOUT.dim)), context())
    (made,) = Perturb(noise_multiplier=3.0)(clipped, context()).releases
    assert 1 / made.ratio == pytest.approx(3.0 / sqrt(3))


def test_a_multiplier_without_a_clip_is_refused():
    with pytest.raises(ValueError, match="clip"):
        Perturb(noise_multiplier=1.0)(Parcel(torch.zeros(LAYOUT.dim)), context())
