"""A learned prior: its denoiser is one, its attack sees more under strong noise and nothing in noise alone, its control
stands beside it, and what cannot be is refused in one sentence.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.base import NOISE_KNOWN, Knowledge, PublicFacts, Reconstruction, Seen, View
from dpfl_audit.attacks.inversion.ablated import ablation
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import make_inversions
from dpfl_audit.attacks.inversion.match.case import Auxiliary
from dpfl_audit.attacks.inversion.match.denoiser import Denoiser, cosine_waves
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.sparse import Sparse
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies import kept_denoiser, learned_prior
from dpfl_audit.attacks.inversion.strategies.kept_denoiser import (
    denoiser_of,
    filter_of,
    read_denoiser,
    train_denoiser,
    write_denoiser,
)
from dpfl_audit.attacks.inversion.strategies.learned_prior import noise_alone
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import sklearn_sets
from dpfl_audit.defenses.layout import Layout
from safetensors.torch import save_file
from tiers import quick
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (1, 8, 8)
SETTINGS = PRESETS["learned-prior"].settings


@pytest.fixture(scope="module")
def digits():
    return sklearn_sets.digits(seed=0)


@pytest.fixture(scope="module")
def denoiser(digits) -> Denoiser:
    return train_denoiser(digits.auxiliary_inputs, steps=300, widths=(16, 24))[0]


def psnr(found: Tensor, images: Tensor) -> float:
    """Mean PSNR in dB of images in order."""
    return float((-10 * (found - images).square().flatten(1).mean(1).clamp_min(1e-10).log10()).mean())


def network(seed: int) -> nn.Module:
    return models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=(0.3,), std=(0.37,), seed=seed, widths=[128, 128]
    ).eval()


def target_of(module: nn.Module, images: Tensor, labels: Tensor, noise: float, seed: int) -> Target:
    """The mean gradient clipped to half its norm C, with noise of `noise`·C/√d a component."""
    parameters = list(module.parameters())
    loss = F.cross_entropy(module(images), labels)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
    clip = gradient.norm().item() / 2
    std = noise * clip / len(gradient) ** 0.5
    drawn = torch.randn(len(gradient), generator=torch.Generator().manual_seed(seed))
    weights = torch.cat([p.detach().flatten() for p in parameters])
    return Target("t", weights, gradient / 2 + std * drawn, labels, len(images), clip, noise_std=std)


# --- the denoiser


def test_the_transform_is_orthonormal_and_its_own_inverse_backwards(digits) -> None:
    assert torch.allclose(cosine_waves(8) @ cosine_waves(8).T, torch.eye(8, dtype=torch.float64), atol=1e-12)
    fresh = Denoiser(SHAPE)
    fresh.learn_spectrum(digits.auxiliary_inputs)
    images = digits.inputs[:5]
    assert torch.allclose(fresh.back(fresh.transformed(images)), images, atol=1e-5)


def test_untrained_it_is_the_best_linear_filter_of_images_that_are_as_it_takes_them() -> None:
    """Of normal coefficients the Wiener filter's error is the one it says, and filters scaled otherwise err more."""
    draw = torch.Generator().manual_seed(0)
    fresh = Denoiser(SHAPE)
    fresh.variance.copy_(torch.linspace(0.01, 1, 64).view(SHAPE))
    images = fresh.back(fresh.variance.sqrt() * torch.randn(4000, *SHAPE, generator=draw))
    level = torch.full((4000,), 0.4)
    noisy = images + 0.4 * torch.randn(images.shape, generator=draw)
    found = fresh(noisy, level)
    error = (found - images).square().mean().sqrt()
    assert error.item() == pytest.approx(fresh.filter_error(level)[0].item(), rel=0.02)
    assert all((scale * found - images).square().mean() > error**2 for scale in (0.9, 1.1))


@pytest.mark.parametrize("level", quick([0.1, 0.3, 1.0], 1))
def test_it_beats_doing_nothing_a_blur_and_the_filter_on_images_it_never_saw(digits, denoiser, level: float) -> None:
    """A Gaussian blur's width is the best of several for these very images; at .1 all of them harm such small ones."""
    images = digits.test_inputs
    noisy = images + level * torch.randn(images.shape, generator=torch.Generator().manual_seed(5))
    levels = torch.full((len(images),), level)
    place = torch.arange(-3.0, 4)
    blurred = []
    for width in (0.3, 0.5, 0.7, 1.0, 1.5, 2.5):
        kernel = (-(place**2) / (2 * width**2)).exp()
        kernel = torch.outer(kernel, kernel) / kernel.sum() ** 2
        blurred.append(psnr(F.conv2d(F.pad(noisy, (3, 3, 3, 3), mode="replicate"), kernel[None, None]), images))
    found = psnr(denoiser(noisy, levels).clamp(0, 1), images)
    assert found >= max(*blurred, psnr(noisy.clamp(0, 1), images)) + (0.3 if level == 0.1 else 1)
    assert found >= psnr(denoiser.wiener(noisy, levels).clamp(0, 1), images) + 0.2


def test_training_replays_and_is_kept_and_a_damaged_file_is_made_anew(digits, tmp_path: Path, monkeypatch) -> None:
    images = digits.auxiliary_inputs[:120]
    monkeypatch.setattr(kept_denoiser, "STEPS", 3)
    monkeypatch.setattr(kept_denoiser, "train_denoiser", lambda images, progress=None: train_denoiser(images, steps=3))
    monkeypatch.setattr(kept_denoiser, "_IN_THIS_PROCESS", {})
    state = torch.random.get_rng_state()
    first = denoiser_of(images, tmp_path)
    assert torch.equal(state, torch.random.get_rng_state())
    assert denoiser_of(images, tmp_path) is first
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for damage in (b"", content[:1000], content):
        file.write_bytes(damage)
        monkeypatch.setattr(kept_denoiser, "_IN_THIS_PROCESS", {})
        again = denoiser_of(images, tmp_path)
        assert again.said == first.said and file.read_bytes() == content
        for name, value in first.denoiser.state_dict().items():
            assert torch.equal(value, again.denoiser.state_dict()[name])
    assert re.findall(r"\d+", first.said)[:2] == ["108", "12"]  # trained on, held out


def test_a_users_own_of_other_widths_is_read_and_what_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    own = Denoiser(SHAPE, (8, 12, 16, 20))
    write_denoiser(path, own, "30 dB\non nothing")
    read = read_denoiser(path, SHAPE)
    assert read.denoiser.widths == (8, 12, 16, 20) and "own.safetensors:" in read.said
    with pytest.raises(ValueError, match=r"a denoiser of images \(1, 8, 8\), and the setup's are \(3, 32, 32\)$"):
        read_denoiser(path, (3, 32, 32))
    with pytest.raises(ValueError, match="not a safetensors file that can be read"):
        read_denoiser(tmp_path / "none.safetensors", SHAPE)
    path.write_bytes(b"no safetensors")
    with pytest.raises(ValueError, match="not a safetensors file"):
        read_denoiser(path, SHAPE)
    models_file = tmp_path / "model.safetensors"
    other = Denoiser(SHAPE, (8,))
    other.network.last = nn.Conv2d(3, 3, 1)
    write_denoiser(models_file, other)
    with pytest.raises(ValueError, match=r"do not fit a denoiser of widths \[8\]$"):
        read_denoiser(models_file, SHAPE)


# --- the attack


@pytest.mark.parametrize(
    ("name", "made", "what"),
    [
        ("variance", lambda t: -t, "must be positive"),
        ("variance", torch.zeros_like, "must be positive"),
        ("mean", lambda t: t.to(torch.int64), "finite numbers of float32"),
        ("mean", lambda t: t * float("nan"), "finite numbers of float32"),
        ("network.ways_down.0.first.bias", lambda t: torch.tensor(0.0), "denoiser"),
        ("network.ways_down.0.first.bias", lambda t: torch.zeros(60_000), "at most"),
    ],
)
def test_numbers_that_no_denoiser_has_are_refused(tmp_path: Path, name: str, made, what: str) -> None:
    state = {key: value.clone() for key, value in Denoiser(SHAPE, (4,)).state_dict().items()}
    save_file({**state, name: made(state[name]).contiguous()}, tmp_path / "own.safetensors")
    with pytest.raises(ValueError, match=what):
        read_denoiser(tmp_path / "own.safetensors", SHAPE)


def test_too_large_steps_end_where_numbers_do(digits, denoiser) -> None:
    target = target_of(network(0), digits.inputs[:2], digits.targets[:2], 1.0, 0)
    (found,) = solve(network(0), [target], SHAPE, replace(SETTINGS, lr=1e30), 0, auxiliary=[Auxiliary(denoiser)])
    assert found.images.isfinite().all() and torch.tensor(found.loss).isfinite()


def test_what_does_nothing_beside_a_learned_prior_is_refused() -> None:
    for wrong in ("span", "features", "softened", "halving", "consensus", "simulated"):
        with pytest.raises(ValueError, match=f"{wrong} does nothing beside"):
            Inversion(objective="euclidean", learned=True, restarts=2, **{wrong: 1})  # type: ignore[arg-type]


def test_the_filter_alone_is_the_best_linear_one_of_its_spectrum(digits) -> None:
    """Of images drawn by the spectrum it takes, no other gain for any coefficient makes a smaller error: by formula
    v/(v + σ²), and on draws.
    """
    made = filter_of(digits.auxiliary_inputs).denoiser
    assert made.widths == () and filter_of(digits.auxiliary_inputs).denoiser is made
    draw = torch.Generator().manual_seed(0)
    images = made.back(made.mean + made.variance.sqrt() * torch.randn(4000, *SHAPE, generator=draw))
    level = torch.full((4000,), 0.3)
    noisy = images + 0.3 * torch.randn(images.shape, generator=draw)
    error = (made(noisy, level) - images).square().mean()
    assert error.item() == pytest.approx(made.filter_error(level[:1]).square().item(), rel=0.02)
    for change in (0.9, 1.1):
        other = made.transformed(noisy) - made.mean
        gain = change * made.variance / (made.variance + 0.09)
        assert (made.back(made.mean + gain * other) - images).square().mean() > error
    with pytest.raises(ValueError, match="at least 100"):
        filter_of(digits.auxiliary_inputs[:99])


@pytest.mark.parametrize("filtered", [False, True], ids=["network", "filter alone"])
def test_it_sees_more_under_strong_noise_and_nothing_in_noise_alone(digits, denoiser, filtered: bool) -> None:
    """Fresh networks, images and noise; the total variation that grows with the noise is the default's."""
    denoiser = filter_of(digits.auxiliary_inputs).denoiser if filtered else denoiser
    gains, nothing = [], []
    for seed in (101, 102, 103):
        rows = slice(8 * (seed - 100), 8 * (seed - 99))
        order = digits.targets[rows].argsort(stable=True)
        images, labels = digits.inputs[rows][order], digits.targets[rows][order]
        module = network(seed)
        target = target_of(module, images, labels, 6.0, seed)
        (learned,) = solve(module, [target], SHAPE, SETTINGS, 0, auxiliary=[Auxiliary(denoiser)])
        (smooth,) = solve(module, [target], SHAPE, Inversion(objective="euclidean", tv="noise-aware"), 0)
        gains.append(psnr(learned.images, images) - psnr(smooth.images, images))
        mean = digits.auxiliary_inputs.mean(0).expand_as(images)
        nothing.append(psnr(learned.start, images) - psnr(mean, images))
        assert psnr(learned.images, images) > max(psnr(learned.start, images), psnr(mean, images)) + 1
    assert min(gains) > 0 and sum(gains) / 3 >= 1.5
    assert max(nothing) < 0.5


def test_what_the_prior_makes_of_noise_alone_is_its_start(digits, denoiser) -> None:
    """As large a message, of other numbers; and the same seed gives the same bits, whatever is solved beside."""
    module, images, labels = network(0), digits.inputs[:3], digits.targets[:3]
    target = target_of(module, images, labels, 1.0, 0)
    noise = noise_alone(target, 7).gradient
    assert noise.norm().item() == pytest.approx(target.gradient.norm().item(), rel=1e-5)
    assert abs(torch.dot(noise, target.gradient) / noise.norm() ** 2) < 0.05
    sent = torch.arange(len(noise)) % 4 == 0
    some = noise_alone(replace(target, gradient=target.gradient * sent, sparse=Sparse(sent, 0.1)), 7).gradient
    assert not some[~sent].any() and some.norm().item() == pytest.approx(
        (target.gradient * sent).norm().item(), rel=1e-5
    )
    few = replace(SETTINGS, iterations=5)
    (one,) = solve(module, [target], SHAPE, few, 3, auxiliary=[Auxiliary(denoiser)])
    both = [target, replace(target, key="u")]
    (same, other) = solve(module, both, SHAPE, few, 3, auxiliary=[Auxiliary(denoiser)] * 2)
    assert torch.equal(one.images, same.images) and torch.equal(one.start, same.start)
    assert not torch.equal(one.start, other.start)
    (elsewhere,) = solve(
        module, [replace(target, gradient=target.gradient.flip(0))], SHAPE, few, 3, auxiliary=[Auxiliary(denoiser)]
    )
    assert not torch.equal(one.images, elsewhere.images)


def test_rounds_of_the_same_images_add_up(digits) -> None:
    """Four messages at the same weights say what their mean says, whose noise is half as large: log-likelihoods add up,
    and so does information. A message with four times the noise counts a sixteenth, so it takes little away.
    """
    denoiser = filter_of(digits.auxiliary_inputs).denoiser
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
        solve(module, [target], SHAPE, SETTINGS, 0, auxiliary=[Auxiliary(denoiser)])[0].images
        for target in (targets[0], mean, together, five)
    )
    alike = psnr(four, averaged)
    assert psnr(four, images) == pytest.approx(psnr(averaged, images), abs=0.3) and alike > psnr(four, images) + 5
    assert psnr(four, images) > psnr(one, images) + 1
    assert psnr(with_worse, images) > psnr(four, images) - 0.3


def test_what_is_made_of_noise_alone_saw_none_of_the_rounds(digits) -> None:
    module = network(0)
    first, second = (target_of(module, digits.inputs[:3], digits.targets[:3], 1.0, k) for k in range(2))
    nothing = noise_alone(replace(first, others=(replace(second, key="u"),)), 7)
    a, b = (one.gradient for one in nothing.messages)
    for noise, sent in ((a, first), (b, second)):
        assert noise.norm().item() == pytest.approx(sent.gradient.norm().item(), rel=1e-5)
        assert max(abs(torch.dot(noise, t.gradient)) / noise.norm() ** 2 for t in (first, second)) < 0.05
    assert abs(torch.dot(a, b)) / (a.norm() * b.norm()) < 0.05


def view_of(module: nn.Module, target: Target, noise_std: float | None) -> View:
    layout = Layout.of(module)
    messages = (
        Seen("m0", 0, "server", ("client",), "weights", 0, lambda: target.weights, True),
        Seen("m1", 0, "client", ("server",), "gradient", target.count, lambda: target.gradient, False),
    )
    facts = PublicFacts(
        "ldp", "gradient", "sgd", 0.1, target.count, 1, None, clip_norm=target.clip_norm, noise_std=noise_std
    )
    return View("server", messages, module, layout, facts, SHAPE, 10)


@pytest.fixture
def world(digits):
    module = network(0)
    target = target_of(module, digits.inputs[:3], digits.targets[:3].sort().values, 1.0, 0)
    knowledge = Knowledge({"m1": target.labels}, digits.auxiliary_inputs, digits.auxiliary_targets)
    return view_of(module, target, target.noise_std), knowledge


def test_evidence_says_what_was_assumed_and_what_the_control_is(world, tmp_path: Path) -> None:
    view, knowledge = world
    path = tmp_path / "mine.safetensors"
    write_denoiser(path, Denoiser(SHAPE, (4,)), "not trained")
    attack = replace(SETTINGS, iterations=2, prior_weights=str(path))
    (part,) = attack.parts(view, replace(knowledge, auxiliary_inputs=torch.zeros(0)))
    evidence = attack.run_part(part, view, knowledge, 0)
    assert isinstance(evidence, Reconstruction)
    assert evidence.start.shape == evidence.images.shape == (3, *SHAPE)
    assert any("mine.safetensors" in words for words in evidence.assumed)
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
    with pytest.raises(ValueError, match=r"set learned = true too$"):
        Inversion(prior_weights="a.safetensors")
    with pytest.raises(ValueError, match=r"^prior_network = false: it is of a learned prior"):
        Inversion(prior_network=False)
    with pytest.raises(ValueError, match=r"^prior_weights: .*'spectrum-prior'.*'learned-prior' takes them$"):
        make_inversions({"preset": "spectrum-prior", "prior_weights": "a.safetensors"}, False, "cpu")
    with pytest.raises(ValueError, match="not a safetensors file"):
        replace(SETTINGS, prior_weights="/nowhere.safetensors").parts(view, knowledge)


def test_a_noisy_step_of_adam_says_more_than_the_prior_alone(digits) -> None:
    """What the step undone is, is in units of ε; its noise, in those of a step, drowned it: a picture was what the
    prior made of noise alone. A third of the noise's energy is the step's.
    """
    module, rows = network(5), slice(40, 44)
    labels, order = digits.targets[rows].sort()
    images, before = digits.inputs[rows][order], torch.cat([p.detach().flatten() for p in module.parameters()])
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    F.cross_entropy(module(images), labels).backward()
    optimiser.step()
    update, std = torch.cat([p.detach().flatten() for p in module.parameters()]) - before, 1.7e-3
    torch.nn.utils.vector_to_parameters(before.clone(), module.parameters())
    update += std * torch.randn(len(update), generator=torch.Generator().manual_seed(0))
    messages = (
        Seen("m0", 0, "server", ("client",), "weights", 0, lambda: before, True),
        Seen("m1", 0, "client", ("server",), "update", 4, lambda: update, False),
    )
    facts = PublicFacts("ldp", "update", "adam", 1e-3, 4, 1, None, clip_norm=1e9, noise_std=std)
    view = View("server", messages, module, Layout.of(module), facts, SHAPE, 10)
    knowledge = Knowledge({"m1": labels}, digits.auxiliary_inputs, digits.auxiliary_targets)
    attack = PRESETS["spectrum-prior"].settings
    (part,) = attack.parts(view, knowledge)
    found = attack.run_part(part, view, knowledge, 0)
    assert isinstance(found, Reconstruction) and found.start is not None
    assert psnr(found.images, images) > psnr(found.start, images) + 1


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
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])

    def gradient(x: Tensor) -> Tensor:
        own = {name: w.requires_grad_() for name, w in layout.split(weights.clone()).items()}
        loss = F.cross_entropy(torch.func.functional_call(module, own, (x,)), labels)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(own.values()), create_graph=True)])

    jacobian = torch.autograd.functional.jacobian(gradient, images).flatten(1)
    plain = gradient(images).detach()
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
        found = [learned_prior._level(module, layout, messages, labels, images, draw) for _ in range(100)]
        assert 1e-12 * sum(level**-2 for level in found) / 100 == pytest.approx(more * float(expected), rel=0.15)
