"""Noise in floating point (Mironov 2012): what is sent says by no bit what it was made of, and every sum is exact."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import inf, log, log2, nan, sqrt

import numpy as np
import pytest
import torch
from dpfl_audit.defenses.engine import _stacked_dp_gradient
from dpfl_audit.defenses.federation import _outgoing, as_sent
from dpfl_audit.defenses.grid import TAIL, in_steps, noisy, rounded, step_of
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalResult, LocalTraining, PerExample, StepClip
from dpfl_audit.defenses.randomness import Keystream
from dpfl_audit.defenses.scheme import Context, Scheme
from dpfl_audit.defenses.steps.clip import CACHED, Clip, clip_in_steps, clip_to, clipped_sum
from dpfl_audit.defenses.steps.components import ClipComponents
from dpfl_audit.defenses.steps.perturb import Perturb, draw, example_step, local_release
from dpfl_audit.defenses.wire import Bound, Parcel
from hypothesis import given, settings
from hypothesis import strategies as st
from stated import in_round
from torch import Tensor, nn

D = 5000
LAYOUT = Layout(("a", "b"), ((D - 10,), (10,)))


context = partial(in_round, layout=LAYOUT)


def hostile(norm: float, order: int, start: Tensor, seed: int) -> list[Tensor]:
    """Vectors (D,) of float64 with a norm of exactly, or a rounding above, `norm`: where rounding hurts most."""
    rng = torch.Generator().manual_seed(seed)
    even = torch.full((D,), norm / (sqrt(D) if order == 2 else D), dtype=torch.float64)
    wild = torch.randn(D, generator=rng, dtype=torch.float64).mul(3).exp()
    signs = torch.randint(2, (D,), generator=rng).double() * 2 - 1
    spike = torch.zeros(D, dtype=torch.float64)
    spike[seed % D] = norm
    outward = torch.where(start < 0, -even, even)
    large = [even, signs * wild, signs * even, spike, -outward]
    return [clip_to(1e6 * v, norm, order) for v in large]


@settings(max_examples=15, deadline=None)
@given(
    order=st.sampled_from([1, 2]),
    norm=st.floats(1e-6, 1e6),
    std=st.floats(1e-12, 1e6),
    size=st.sampled_from([0.0, 1e-3, 1.0, 1e4]),
    seed=st.integers(0, 999),
)
def test_two_rounded_values_are_no_further_apart_than_the_bound_says(order, norm, std, size, seed):
    """Whatever the clipped vectors, at 0 or around a start: ‖round(v) − round(v′)‖ ≤ bound (v′ = 0, or without a
    client, the start), ≤ 2·bound (v′ another client's), and every rounded value is a whole number of steps.
    """
    start = size * torch.randn(D, generator=torch.Generator().manual_seed(seed + 1))
    bound = Bound(norm, order, centred=size > 0)
    silent = torch.zeros(D, dtype=torch.float64)
    sent = []
    for move in (silent, *hostile(norm, order, start, seed)):
        parcel = Parcel(start.double() + move if size else move, bound=bound)
        made = _without_noise(parcel, std, context(start=start))
        assert made.bound is not None and made.bound.norm >= norm
        sent.append(made)
    limit = float(sent[0].bound.norm)
    apart = [float(torch.linalg.vector_norm(s.vector - sent[0].vector, order)) for s in sent]
    assert max(apart) <= limit
    opposite = sent[3].vector - sent[5].vector
    assert float(torch.linalg.vector_norm(opposite, order)) <= 2 * limit
    if std < 1e6 * norm:  # beyond, a grid as fine as such noise needs may have no other point so near
        assert max(apart) > 0.9 * norm


def _without_noise(parcel: Parcel, std: float, where: Context) -> Parcel:
    """The value a release rounds: the release minus its own noise, exactly."""
    made = Perturb(noise_std=std)(parcel, where)
    again = Perturb(noise_std=std)(replace(parcel, vector=torch.zeros_like(parcel.vector)), where)
    return replace(made, vector=made.vector - again.vector)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("std", [1e-7, 0.3, 12345.0])
def test_every_noisy_sum_is_a_whole_number_of_steps_and_exact(mechanism, std):
    """In rational arithmetic: sum = rounded value + rounded noise, all multiples of a power of two."""
    value = torch.randn(D, dtype=torch.float64)
    noise = draw(mechanism, std, D, Keystream(3))
    step = step_of(std, 10 + 64 * std)
    assert log2(step) == round(log2(step)) and step <= max(std * 2.0**-36, 2 * (10 + 64 * std) * 2.0**-51)
    total = noisy(value, noise, step, bounded=True)
    for v, n, s in zip(value.tolist()[:300], noise.tolist(), total.tolist()):
        apart = Fraction(s) / Fraction(step)
        assert apart.denominator == 1
        assert apart == round(Fraction(v) / Fraction(step)) + round(Fraction(n) / Fraction(step))


@pytest.mark.parametrize("shift", [1, 2**20 + 1])
def test_rounding_the_noise_is_post_processing_where_the_value_lies_on_the_grid(shift):
    """round(v + N) = v + round(N) for v a whole number of steps: the sum is a function of a continuous mechanism."""
    noise, step = draw("gaussian", 1.0, D, Keystream(1)), step_of(1.0, 100.0)
    value = torch.full((D,), shift * step, dtype=torch.float64)
    apart = noisy(value, noise, step, True) - noisy(torch.zeros_like(value), value + noise, step, True)
    tied = ((noise / step).frac().abs() - 0.5).abs() < 1e-4  # where float64's own v + N decides
    assert not apart[~tied].any() and float(tied.double().mean()) < 1e-3


FAR, LEAST = 4000, 2**13  # pairs of numbers whose first 53 bits are among the least 2¹³


class Far(Keystream):
    """The same stream, given that the first words (of the radii; of the Laplace numbers) are among the least."""

    def words(self, count: int) -> Tensor:
        words = super().words(count)
        words[:FAR] = ((super().words(FAR) >> 11) & (LEAST - 1)) - 2**52 << 11 | words[:FAR] & 2047
        return words


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_far_noise_lies_on_no_lattice_around_the_value_it_was_added_to(mechanism):
    """With 53 bits a radius, u = exp(−r²/2) is (k + ½)·2⁻⁵³: far out, float32 shows it. Of 4000 pairs that lie out
    there around the client's value all were on this lattice, and 186 of 4000 without the client: ε ≥ 2.6 where .12 was
    proven. Now as many as by chance, in both worlds.
    """
    numbers = 2 * FAR if mechanism == "gaussian" else FAR
    noise = draw(mechanism, 100.0, numbers, Far(1))
    value = torch.full((numbers,), 1 / sqrt(5.2e6), dtype=torch.float64)  # the whole clip, spread over 5.2 million
    step = step_of(100.0, 1 + TAIL * 100)

    def on_the_lattice(sent: Tensor) -> int:
        apart = (sent.float().double() - value).div(100)
        blur = torch.from_numpy(np.spacing(sent.float().abs().numpy())).double().div(200).add(2.0**-26)
        if mechanism == "gaussian":
            place = apart.view(2, FAR).square().sum(0).div(-2).exp()
            error = place * (apart.abs() * blur).view(2, FAR).sum(0)
        else:
            place = apart.abs().mul(-sqrt(2)).exp()
            error = place * blur * sqrt(2)
        k, error = place * 2.0**53 - 0.5, error * 2.0**53
        assert float(k.max()) < LEAST + 1
        return int(((k - k.round()).abs() <= error + 1e-3).sum())

    present, absent = (on_the_lattice(noisy(v, noise, step, bounded=True)) for v in (value, torch.zeros_like(value)))
    assert abs(present - absent) < 4 * sqrt(present + absent) and present < FAR / 5


class Least(Keystream):
    """Every word the least there is."""

    def words(self, count: int) -> Tensor:
        return torch.full((count,), -(2**63))


@pytest.mark.parametrize(
    ("mechanism", "farthest"), [("gaussian", sqrt(2 * 107 * log(2))), ("laplace", 107 * log(2) / sqrt(2))]
)
def test_no_noise_goes_beyond_what_the_grid_reaches(mechanism, farthest):
    """The least of 2¹⁰⁶ uniform numbers is 2⁻¹⁰⁷: √(2·107 log 2) = 12.18, and 107 log 2/√2 = 52.44 deviations."""
    drawn = draw(mechanism, 1.0, 2, Least(0)).abs()
    assert float(drawn.max()) == pytest.approx(farthest, rel=1e-7) and farthest < TAIL


def test_nothing_finite_comes_of_what_is_not():
    made = Perturb(noise_std=1.0)(Parcel(torch.full((D,), inf)), context())
    assert not torch.isfinite(made.vector).any()


@settings(max_examples=30, deadline=None)
@given(norm=st.floats(1e-3, 1e3), multiplier=st.floats(1e-3, 100), n=st.integers(1, 1000), seed=st.integers(0, 99))
def test_a_records_rounded_gradient_keeps_the_bound_of_its_release(norm, multiplier, n, seed):
    """In float32, as engines have gradients."""
    rule = PerExample(norm, multiplier)
    step = example_step(rule, n)
    gradients = torch.stack([v.float() for v in hostile(2 * norm, 2, torch.zeros(D), seed)])
    clipped = clip_in_steps(gradients, norm, step).double() * step
    sizes = torch.linalg.vector_norm(clipped, dim=1)
    job = _job(LocalTraining(batch_size=10, per_example=rule), n)
    assert float(sizes.max()) <= local_release(job, context(num_examples=n)).bound_norm * 10
    assert float(sizes.min()) > 0.999 * norm and bool((clipped / step == (clipped / step).round()).all())


@pytest.mark.parametrize("width", [3, CACHED // 5, CACHED + 1])
def test_a_sum_in_pieces_is_the_sum(width: int) -> None:
    gradients = torch.randn(2, 4, width, generator=torch.Generator().manual_seed(0))
    gradients[0, 1, 0] = torch.inf
    step = torch.tensor([2.0**-12, 2.0**-20], dtype=torch.float64).view(2, 1, 1)
    taken = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1]]).bool()
    whole = (clip_in_steps(gradients, 1.0, step).double() * taken[..., None]).sum(1)
    assert torch.equal(clipped_sum(gradients, 1.0, step, taken), whole)


def test_a_gradient_that_is_not_finite_counts_as_none():
    """Else one record decides whether anything is sent; and 0 keeps every bound."""
    gradients = torch.ones(3, D)
    gradients[1, 0], gradients[2, 1] = inf, nan
    clipped = clip_in_steps(gradients, 1.0, 2.0**-20)
    assert (clipped[0] > 0).all() and not clipped[1:].any()


def test_a_batch_is_summed_exactly_however_many_records_it_has():
    """float32 would round a sum of thousands of steps, and a record could then move it by more than its own gradient.
    Every record's gradient is planted, so that the exact sum is known; the noise is drawn again from its seed.
    """
    n, rule = 1500, PerExample(1.0, 1e-3)
    module, rng = nn.Linear(200, 1), torch.Generator().manual_seed(0)
    layout = Layout.of(module)
    own = torch.rand(n, layout.dim, generator=rng)  # all of one sign, so that the sum grows beyond 2²⁴ steps
    training = LocalTraining(batch_size=1, per_example=rule, loss="squared_error")
    start, inputs, targets = torch.zeros(layout.dim), torch.zeros(n, 200), torch.zeros(n)
    rows = torch.arange(n)[None]
    job = LocalJob(
        module, layout, training, start, inputs, targets, rows, "update", 1.0, 7, (), n, (), tuple(zip(range(n), own))
    )
    step = example_step(rule, n)
    exact = clip_in_steps(own, rule.clip_norm, step).double().sum(0)
    noise = in_steps(draw("gaussian", rule.noise_multiplier * rule.clip_norm, layout.dim, Keystream(7)), step)
    assert float(exact.max()) > 2**24
    assert torch.equal(_stacked_dp_gradient([job])(start[None], rows)[0], ((exact + noise) * step).float())


def _job(training: LocalTraining, n: int = 1, start: Tensor | None = None) -> LocalJob:
    start = torch.zeros(D) if start is None else start
    return LocalJob(nn.Identity(), LAYOUT, training, start, start, start, torch.zeros(1, 1), "weights", 1.0, 0, (), n)


@pytest.mark.parametrize("centred", [True, False])
def test_what_float32_training_rounds_beyond_its_bound_is_cut_off(centred):
    """Steps of 1e-4 on weights near 100 move by more than their clip: each float32 weight rounds by up to 4e-6."""
    start = 100 + torch.rand(D)
    bound = Bound(1e-4 if centred else 1.0, 2, centred=centred)
    value = torch.full((D,), 1e-5)
    clip = StepClip("gradient" if centred else "weights", 1.0)
    scheme = Scheme(name="s", source="", local=LocalTraining(step_clip=clip), share="weights", client=(Keep(),))
    job = _job(scheme.local, start=start)
    seen = _seen(scheme, job, LocalResult(value, bound=bound))
    moved = seen - start.double() if centred else seen
    near = 1 + D * 2.0**-52
    assert float(moved.norm()) <= bound.norm * near + 1e-12 * centred  # start + move is a float64 sum
    assert float(moved.norm()) > 0.999 * bound.norm


class Keep:
    """A step that remembers the value it got."""

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        context.kept["seen"] = parcel.vector
        return parcel


def _seen(scheme: Scheme, job: LocalJob, result: LocalResult) -> Tensor:
    where = context(start=job.start)
    parcel = _outgoing(scheme, job, result, where, Parcel(job.start))
    assert parcel.vector.dtype == torch.float64 and as_sent(parcel, job.start.dtype).vector.dtype == job.start.dtype
    return where.kept["seen"]


def test_components_keep_their_thresholds_around_a_start():
    """|value − start|_m ≤ q_m, then rounded: within the bound of the release in every component."""
    start = 50 * torch.randn(D)
    clip = ClipComponents(1.0, LocalTraining(), around_start=True, threshold=1e-3)
    clipped = clip(Parcel(start.double() + 1.0), context(start=start))
    made = _without_noise(clipped, 1e-6, context(start=start))
    silent = _without_noise(replace(clipped, vector=start.double()), 1e-6, context(start=start))
    assert bool(((made.vector - silent.vector).abs() <= made.bound.norm).all())
    assert float(made.bound.norm.max()) == pytest.approx(5e-4, rel=1e-3)


def test_a_bound_grows_with_the_root_of_the_numbers_and_stays_near():
    """√d·2g in L2, d·2g in L1: at a noise of 100 C on 200,000 numbers less than a part in 100,000."""
    step = step_of(100.0, 1.0)
    assert rounded(Bound(1.0), step, 200_000).norm == pytest.approx(1 + sqrt(200_000) * 2 * step, rel=1e-10)
    assert rounded(Bound(1.0, 1), step, 200_000).norm == pytest.approx(1 + 200_000 * 2 * step, rel=1e-10)
    assert rounded(Bound(1.0), step, 200_000).norm < 1 + 1e-5


def test_the_clip_is_exact_to_float64():
    value = torch.randn(D).double() * 1e3
    parcel = Clip(1.0)(Parcel(value), context())
    assert abs(float(parcel.vector.norm()) - 1) < 1e-14


def test_keystreams_of_other_seeds_and_purposes_share_nothing():
    """torch's generator keeps 32 bits of a seed: seeds 2³² apart draw the same noise."""
    names = [(7, "noise"), (7 + 2**32, "noise"), (7, "noise", 1), (8, "noise")]
    drawn = torch.cat([Keystream(*name).words(1000) for name in names])
    assert len(drawn.unique()) == 4000
    assert torch.equal(Keystream(*names[0]).words(10), Keystream(*names[0]).words(10))
    assert sorted(Keystream(1).permutation(50).tolist()) == list(range(50))
