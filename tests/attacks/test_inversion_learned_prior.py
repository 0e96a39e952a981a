"""A learned prior: its filter is the best linear one, its attack sees more under strong noise and nothing in noise
alone, its control stands beside it, and what cannot be is refused in one sentence.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.base import NOISE_KNOWN, Knowledge, PublicFacts, Reconstruction
from dpfl_audit.attacks.inversion.ablated import ablation
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Auxiliary
from dpfl_audit.attacks.inversion.match.wiener import WienerFilter, cosine_waves, filter_of
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.sparse import Sparse
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies import learned_prior
from dpfl_audit.attacks.inversion.strategies.learned_prior import noise_alone
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import sklearn_sets
from dpfl_audit.defenses.layout import Layout
from messages import flat, gradient, view_of
from messages import target_of as one_message
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (1, 8, 8)
SETTINGS = PRESETS["spectrum-prior"].settings


@pytest.fixture(scope="module")
def digits():
    return sklearn_sets.digits(seed=0)


@pytest.fixture(scope="module")
def wiener(digits) -> WienerFilter:
    return filter_of(digits.auxiliary_inputs)


def psnr(found: Tensor, images: Tensor) -> float:
    """Mean PSNR in dB of images in order."""
    return float((-10 * (found - images).square().flatten(1).mean(1).clamp_min(1e-10).log10()).mean())


def network(seed: int) -> nn.Module:
    return models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=(0.3,), std=(0.37,), seed=seed, widths=[128, 128]
    ).eval()


def target_of(module: nn.Module, images: Tensor, labels: Tensor, noise: float, seed: int) -> Target:
    """The mean gradient clipped to half its norm C, with noise of `noise`·C/√d a component."""
    clean = one_message(module, images, labels, clip=0.5)
    std = noise * clean.clip_norm / len(clean.gradient) ** 0.5
    drawn = torch.randn(len(clean.gradient), generator=torch.Generator().manual_seed(seed))
    return replace(clean, gradient=clean.gradient + std * drawn, noise_std=std)


# --- the filter


def test_the_transform_is_orthonormal_and_its_own_inverse_backwards(digits, wiener) -> None:
    assert torch.allclose(cosine_waves(8) @ cosine_waves(8).T, torch.eye(8, dtype=torch.float64), atol=1e-12)
    images = digits.inputs[:5]
    assert torch.allclose(wiener.back(wiener.transformed(images)), images, atol=1e-5)


def test_it_is_the_best_linear_filter_of_its_spectrum(digits, wiener) -> None:
    """Of images drawn by the spectrum it takes, no other gain for any coefficient makes a smaller error: by formula
    v/(v + σ²), and on draws.
    """
    assert filter_of(digits.auxiliary_inputs) is wiener
    assert re.findall(r"\d+", wiener.said)[:2] == ["268", "29"]  # of 297: learned from, held out
    draw = torch.Generator().manual_seed(0)
    images = wiener.back(wiener.mean + wiener.variance.sqrt() * torch.randn(4000, *SHAPE, generator=draw))
    noisy = images + 0.3 * torch.randn(images.shape, generator=draw)
    error = (wiener.filtered(noisy, 0.3) - images).square().mean()
    assert error.item() == pytest.approx((0.09 * wiener.variance / (wiener.variance + 0.09)).mean().item(), rel=0.02)
    for change in (0.9, 1.1):
        other = wiener.transformed(noisy) - wiener.mean
        gain = change * wiener.variance / (wiener.variance + 0.09)
        assert (wiener.back(wiener.mean + gain * other) - images).square().mean() > error
    with pytest.raises(ValueError, match="at least 100"):
        filter_of(digits.auxiliary_inputs[:99])


# --- the attack


def test_too_large_steps_end_where_numbers_do(digits, wiener) -> None:
    target = target_of(network(0), digits.inputs[:2], digits.targets[:2], 1.0, 0)
    (found,) = solve(network(0), [target], SHAPE, replace(SETTINGS, lr=1e30), 0, auxiliary=[Auxiliary(wiener)])
    assert found.images.isfinite().all() and torch.tensor(found.loss).isfinite()


def test_what_does_nothing_beside_a_learned_prior_is_refused() -> None:
    for wrong in ("span", "features", "softened", "consensus", "simulated"):
        with pytest.raises(ValueError, match=f"{wrong} does nothing beside"):
            Inversion(objective="euclidean", learned=True, restarts=2, **{wrong: 1})  # type: ignore[arg-type]


@pytest.mark.full
def test_it_sees_more_under_strong_noise_and_nothing_in_noise_alone(digits, wiener) -> None:
    """Fresh networks, images and noise; the total variation that grows with the noise is the default's."""
    gains, nothing = [], []
    for seed in (101, 102):
        rows = slice(8 * (seed - 100), 8 * (seed - 99))
        order = digits.targets[rows].argsort(stable=True)
        images, labels = digits.inputs[rows][order], digits.targets[rows][order]
        module = network(seed)
        target = target_of(module, images, labels, 6.0, seed)
        (learned,) = solve(module, [target], SHAPE, SETTINGS, 0, auxiliary=[Auxiliary(wiener)])
        (smooth,) = solve(module, [target], SHAPE, Inversion(objective="euclidean", tv="noise-aware"), 0)
        gains.append(psnr(learned.images, images) - psnr(smooth.images, images))
        mean = digits.auxiliary_inputs.mean(0).expand_as(images)
        nothing.append(psnr(learned.start, images) - psnr(mean, images))
        assert psnr(learned.images, images) > max(psnr(learned.start, images), psnr(mean, images)) + 1
    assert min(gains) > 0 and sum(gains) / 2 >= 1.5
    assert max(nothing) < 0.5


def test_what_the_prior_makes_of_noise_alone_is_its_start(digits, wiener) -> None:
    """And the same seed gives the same bits, whatever is solved beside."""
    module, images, labels = network(0), digits.inputs[:3], digits.targets[:3]
    target = target_of(module, images, labels, 1.0, 0)
    few = replace(SETTINGS, iterations=5)
    (one,) = solve(module, [target], SHAPE, few, 3, auxiliary=[Auxiliary(wiener)])
    both = [target, replace(target, key="u")]
    (same, other) = solve(module, both, SHAPE, few, 3, auxiliary=[Auxiliary(wiener)] * 2)
    assert torch.equal(one.images, same.images) and torch.equal(one.start, same.start)
    assert not torch.equal(one.start, other.start)
    (elsewhere,) = solve(
        module, [replace(target, gradient=target.gradient.flip(0))], SHAPE, few, 3, auxiliary=[Auxiliary(wiener)]
    )
    assert not torch.equal(one.images, elsewhere.images)


@pytest.mark.full
def test_rounds_of_the_same_images_add_up(digits, wiener) -> None:
    """Four messages at the same weights say what their mean says, whose noise is half as large: log-likelihoods add up,
    and so does information. A message with four times the noise counts a sixteenth, so it takes little away.
    """
    module, images, labels = network(1), digits.inputs[16:24], digits.targets[16:24]
    targets = [replace(target_of(module, images, labels, 8.0, 50 + k), key=f"m{k}") for k in range(4)]
    mean = replace(
        targets[0],
        gradient=torch.stack([target.gradient for target in targets]).mean(0),
        noise_std=targets[0].noise_std / 2,
    )
    worse = replace(target_of(module, images, labels, 32.0, 60), key="worse")
    together = replace(targets[0], others=tuple(targets[1:]))
    five = replace(together, others=(*together.others, worse))
    one, averaged, four, with_worse = (
        solve(module, [target], SHAPE, SETTINGS, 0, auxiliary=[Auxiliary(wiener)])[0].images
        for target in (targets[0], mean, together, five)
    )
    alike = psnr(four, averaged)
    assert psnr(four, images) == pytest.approx(psnr(averaged, images), abs=0.3) and alike > psnr(four, images) + 5
    assert psnr(four, images) > psnr(one, images) + 1
    assert psnr(with_worse, images) > psnr(four, images) - 0.3


def test_what_is_made_of_noise_alone_saw_none_of_the_rounds(digits) -> None:
    """As large messages, of other numbers; of a sparse one there are none where nothing was sent."""
    module = network(0)
    first, second = (target_of(module, digits.inputs[:3], digits.targets[:3], 1.0, k) for k in range(2))
    sent = torch.arange(len(second.gradient)) % 4 == 0
    second = replace(second, key="u", gradient=second.gradient * sent, sparse=Sparse(sent, 0.1))
    a, b = (one.gradient for one in noise_alone(replace(first, others=(second,)), 7).messages)
    assert not b[~sent].any()
    for noise, own in ((a, first), (b, second)):
        assert noise.norm().item() == pytest.approx(own.gradient.norm().item(), rel=1e-5)
        assert max(abs(torch.dot(noise, t.gradient)) / noise.norm() ** 2 for t in (first, second)) < 0.1
    assert abs(torch.dot(a, b)) / (a.norm() * b.norm()) < 0.1


@pytest.fixture
def world(digits):
    module = network(0)
    target = target_of(module, digits.inputs[:3], digits.targets[:3].sort().values, 1.0, 0)
    facts = PublicFacts("ldp", "gradient", "sgd", 0.1, 3, 1, None, target.clip_norm, noise_std=target.noise_std)
    knowledge = Knowledge({"u": target.labels}, digits.auxiliary_inputs, digits.auxiliary_targets)
    return view_of(module, target.gradient, facts, 3, SHAPE, 10), knowledge


def test_evidence_says_what_was_assumed_and_what_the_control_is(world, wiener) -> None:
    view, knowledge = world
    attack = replace(SETTINGS, iterations=2)
    (part,) = attack.parts(view, knowledge)
    evidence = attack.run_part(part, view, knowledge, 0)
    assert isinstance(evidence, Reconstruction)
    assert evidence.start.shape == evidence.images.shape == (3, *SHAPE)
    assert any(wiener.said in words for words in evidence.assumed)
    assert any("random control" in words for words in evidence.assumed)
    assert NOISE_KNOWN in evidence.assumed
    withheld = ablation(attack, [view], knowledge)
    assert "noise" not in withheld.attacks and withheld.nothing["noise"]


def test_what_it_needs_is_asked_for_in_one_sentence(world) -> None:
    view, knowledge = world
    few = replace(knowledge, auxiliary_inputs=knowledge.auxiliary_inputs[:99])
    with pytest.raises(ValueError, match=r"at least 100 auxiliary records, and the setup's knowledge holds 99; set"):
        SETTINGS.parts(view, few)
    for noise, why in ((None, "is not known"), (0.0, "is 0")):
        with pytest.raises(ValueError, match=f"its standard deviation {why}; leave out learned$"):
            SETTINGS.parts(replace(view, facts=replace(view.facts, noise_std=noise)), knowledge)
    with pytest.raises(ValueError, match=r"needs objective = 'euclidean'"):
        Inversion(learned=True)


def test_a_noisy_step_of_adam_says_more_than_the_prior_alone(digits) -> None:
    """What the step undone is, is in units of ε; its noise, in those of a step, drowned it: a picture was what the
    prior made of noise alone. A third of the noise's energy is the step's.
    """
    module, rows = network(5), slice(40, 44)
    labels, order = digits.targets[rows].sort()
    images, before = digits.inputs[rows][order], flat(module).clone()
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    F.cross_entropy(module(images), labels).backward()
    optimiser.step()
    update, std = flat(module) - before, 1.7e-3
    torch.nn.utils.vector_to_parameters(before.clone(), module.parameters())
    update += std * torch.randn(len(update), generator=torch.Generator().manual_seed(0))
    facts = PublicFacts("ldp", "update", "adam", 1e-3, 4, 1, None, clip_norm=1e9, noise_std=std)
    view = view_of(module, update, facts, 4, SHAPE, 10)
    knowledge = Knowledge({"u": labels}, digits.auxiliary_inputs, digits.auxiliary_targets)
    (part,) = SETTINGS.parts(view, knowledge)
    found = SETTINGS.run_part(part, view, knowledge, 0)
    assert isinstance(found, Reconstruction) and found.start is not None
    assert psnr(found.images, images) > psnr(found.start, images) + 1


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("order", "per_layer", "known"),
    [(1, False, True), (2, False, True), (1, True, True), (2, True, True), (2, True, False)],
)
def test_the_level_of_uncertainty_is_by_what_the_clip_leaves(digits, order: int, per_layer: bool, known: bool) -> None:
    """Against the whole Jacobian of a small network's gradient, times what the clip makes of each tensor; half of the
    components were sent. In the mean over draws, as each is one of an estimate without bias of 1/level². Of a second
    message, another round's, it adds up.
    """
    module = models.build("mlp", input_shape=SHAPE, classes=10, mean=(0.3,), std=(0.37,), seed=0, widths=[4]).eval()
    layout, images, labels = Layout.of(module), digits.inputs[:2], digits.targets[:2]
    weights = flat(module)

    def gradient_of(x: Tensor) -> Tensor:
        return gradient(module, weights, x, labels, graph=True)

    jacobian = torch.autograd.functional.jacobian(gradient_of, images).flatten(1)
    plain = gradient_of(images).detach()
    tensors = list(layout.split(plain).values())
    sizes = torch.stack([g.norm(order) for g in tensors])
    clip = float(sizes.median() if per_layer else sizes.norm(order)) / 3
    factors = (clip / (sizes if per_layer else sizes.norm(order))).expand_as(sizes).clamp(max=1)
    every = torch.cat([f.expand(g.numel()) for f, g in zip(factors, tensors)])
    sent = torch.arange(len(plain)) % 2 == 0
    expected = (every[:, None] * jacobian)[sent].square().sum() / images.numel()
    target = Target(
        "t",
        weights,
        every * plain,
        labels,
        2,
        clip if known else None,
        order,
        per_layer,
        known,
        1e-6,
        sparse=Sparse(sent, 1.0),
    )
    draw = torch.Generator().manual_seed(0)
    worse = replace(target, noise_std=2e-6)  # says a quarter as much
    for messages, more in (([target], 1), ([target, worse], 1.25)):
        found = [learned_prior._level(module, layout, messages, labels, images, draw) for _ in range(50)]
        assert 1e-12 * sum(level**-2 for level in found) / 50 == pytest.approx(more * float(expected), rel=0.2)
