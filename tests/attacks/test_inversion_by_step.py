"""Several steps of Adam or RMSprop taken apart: what the update leaves open, factors, and the images behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.read.local_training import Recipe, moved
from dpfl_audit.attacks.inversion.read.local_training import moved as walked
from dpfl_audit.attacks.inversion.read.step_factors import StepFactors, fitted_rows
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies import by_step
from dpfl_audit.attacks.inversion.strategies.by_step import first_update, images_of, readable
from dpfl_audit.attacks.inversion.strategies.spectrum import Spectrum
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from messages import decibels
from torch import Tensor
from torch.nn import functional as F

SHAPE, SIZES = (3, 6, 6), (3, 3)
ADAPTIVE = pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def natural(count: int) -> Tensor:
    return Spectrum(SHAPE).images(drawn(count, *SHAPE)).clamp(0, 1)


def client(optimiser: str = "adam", width: int = 256, dtype: torch.dtype = torch.float32, **changes):
    """A target of two steps of three images, the images in their order, and each step's first-layer gradient."""
    images, labels = natural(sum(SIZES)).to(dtype), torch.tensor([0, 1, 2, 3, 0, 2])
    module = models.build(
        "mlp", input_shape=SHAPE, classes=4, mean=[0.5] * 3, std=[0.25] * 3, seed=0, widths=[width, 32]
    )
    module = module.eval().to(dtype)
    layout, gradients = Layout.of(module), []
    before = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    kind = torch.optim.Adam if optimiser == "adam" else torch.optim.RMSprop
    steps, first = kind(module.parameters(), lr=1e-3), next(iter(module.parameters()))
    for x, y in zip(images.split(SIZES), labels.split(SIZES)):
        steps.zero_grad()
        F.cross_entropy(module(x), y).backward()
        bias = dict(module.named_parameters())[layout.names[1]].grad
        assert first.grad is not None and bias is not None
        gradients.append(torch.cat([first.grad, bias[:, None]], 1).clone())
        steps.step()
    after = layout.join({name: p.detach().clone() for name, p in module.named_parameters()})
    for name, p in module.named_parameters():
        p.data.copy_(layout.split(before)[name])
    recipe = Recipe(optimiser, 1e-3, SIZES, 1)
    target = Target("t", before, before - after, labels.sort()[0], 6, recipe=recipe, update=after - before)
    return module, replace(target, **changes), images, labels, gradients


def test_the_spectrum_s_slope_is_the_transpose_of_its_images() -> None:
    for shape in (SHAPE, (1, 5, 7)):
        spectrum, c, s = Spectrum(shape), drawn(2, *shape), drawn(2, *shape, seed=1)
        there = ((spectrum.images(c) - 0.5) * s).sum()
        torch.testing.assert_close(there, (c * spectrum.back(s)).sum())
        assert torch.equal(spectrum.images(torch.zeros(1, *shape)), torch.full((1, *shape), 0.5))


@ADAPTIVE
def test_an_update_leaves_each_neuron_s_and_each_pixel_s_scale_open(optimiser: str) -> None:
    recipe, gradients = Recipe(optimiser, 1.0, SIZES, 1), [drawn(5, 7), drawn(5, 7, seed=1)]
    scale = drawn(5, 1, seed=2).exp() * drawn(1, 7, seed=3).exp()
    torch.testing.assert_close(
        moved(recipe, [g * scale for g in gradients]), moved(recipe, gradients), atol=1e-4, rtol=0
    )


@ADAPTIVE
def test_a_neuron_s_errors_are_fitted_by_its_own_update(optimiser: str) -> None:
    recipe, inputs, errors = Recipe(optimiser, 1.0, SIZES, 1), drawn(6, 200), drawn(40, 6, seed=1)
    update = moved(recipe, [e @ x for e, x in zip(errors.split(SIZES, 1), inputs.split(SIZES))])
    begin = errors + 0.3 * drawn(40, 6, seed=2)
    for softening in (0.1, 0.03, 0.01, 0.001, 0.0001):
        begin, rest = fitted_rows(update, inputs, begin, recipe, softening, 10)
    near = F.cosine_similarity(begin, errors)
    assert (near > 0.999).float().mean() > 0.9 and rest.median() < 1e-4


@pytest.mark.few(1)
@ADAPTIVE
def test_the_images_follow_from_each_step_s_gradient_without_order_and_scales(optimiser: str) -> None:
    module, target, images, labels, gradients = client(optimiser)
    scale = drawn(256, 1, seed=5).exp()
    errors, inputs = [], []
    for gradient in gradients:
        left, values, right = torch.linalg.svd((gradient * scale).double(), full_matrices=False)
        errors.append((left[:, :3] * values[:3]).float())
        inputs.append((4.0 * right[:3]).float())  # one scale for all pixels is left to the box
    assert target.recipe is not None and target.labels is not None
    factors = StepFactors(target.recipe, tuple(errors), tuple(inputs), torch.ones(256))
    found, said = images_of(factors, module, target, target.labels, SHAPE, 0)
    for own, true in zip(found.split(SIZES), images.split(SIZES)):
        assert decibels(own, true).min() > 20
    assert sorted(said[:3].tolist()) == sorted(labels[:3].tolist())


def test_of_sharp_factors_no_scale_is_left_to_the_box() -> None:
    module, target, images, _, _ = client()
    gradients = client(dtype=torch.float64)[-1]  # sharp on every machine, however it rounds float32
    parts = [torch.linalg.svd(gradient.double(), full_matrices=False) for gradient in gradients]
    errors, inputs = tuple(u[:, :3] * s[:3] for u, s, _ in parts), tuple(v[:3] for _, _, v in parts)
    assert target.recipe is not None and target.labels is not None
    factors = StepFactors(target.recipe, errors, inputs, torch.ones(256), sharp=True)
    found, _ = images_of(factors, module, target, target.labels, SHAPE, 0)
    for own, true in zip(found.split(SIZES), images.split(SIZES)):
        assert decibels(own, true).min() > 60


def test_how_precisely_an_update_is_told_and_how_large_gradients_are() -> None:
    module, target, _, _, gradients = client()
    assert target.labels is not None and target.recipe is not None and target.update is not None
    moved, precision, size = first_update(module, target, target.labels, SHAPE)
    assert moved.shape == precision.shape == gradients[0].shape
    assert 0.5 < size / float(gradients[0].square().mean().sqrt()) < 2
    # What the gradients say, in float64, is off by what each step's rounding to float32 adds.
    exact = walked(target.recipe, [g.double() for g in gradients])
    off = ((moved.double() - exact) / precision).abs()
    assert 0.2 < off.median() < 1.2
    scaled = replace(target, recipe=replace(target.recipe, factor=0.3))  # those that the optimiser was given
    assert first_update(module, scaled, target.labels, SHAPE)[2] == pytest.approx(0.3 * size)
    louder = first_update(module, replace(target, noise_std=1e-5), target.labels, SHAPE)[1]
    torch.testing.assert_close(louder, (precision**2 + 1e-10).sqrt(), rtol=0.1, atol=0)


def test_what_is_readable() -> None:
    module, target, *_ = client()
    assert readable(module, target)
    recipe = target.recipe
    assert recipe is not None
    for changes in (
        {"recipe": replace(recipe, epochs=2)},
        {"recipe": replace(recipe, optimiser="sgd")},
        {"recipe": None},
        {"update": None},
        {"noise_std": 1e-3},
    ):
        assert not readable(module, replace(target, **changes))
    assert not readable(client(width=16)[0], client(width=16)[1])


def test_the_default_keeps_images_whose_training_explains_the_update_and_no_others(monkeypatch) -> None:
    module, target, images, labels, _ = client()
    settings = Inversion(iterations=20, exact=True, manners=("one-round",))
    (plain,) = solve(module, [target], SHAPE, replace(settings, exact=False), 0)
    for found, right in ((images, True), (torch.rand_like(images), False)):
        monkeypatch.setattr(by_step, "images_by_step", lambda *_, found=found: iter([(found, labels)]))
        monkeypatch.setattr(by_step, "_RECENT", {})
        (kept,) = solve(module, [target], SHAPE, settings, 0)
        assert kept.by_step is right and torch.equal(kept.images, found if right else plain.images)
    assert not plain.by_step


def test_a_search_that_was_stopped_in_the_middle_begins_anew(monkeypatch) -> None:
    module, target, images, labels, _ = client()
    settings = Inversion(iterations=20, exact=True, manners=("one-round",))
    calls = list[int]()

    def interrupted(*_):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        yield images, labels

    monkeypatch.setattr(by_step, "images_by_step", interrupted)
    monkeypatch.setattr(by_step, "_RECENT", {})
    with pytest.raises(KeyboardInterrupt):
        solve(module, [target], SHAPE, settings, 0)
    (kept,) = solve(module, [target], SHAPE, settings, 0)
    assert kept.by_step and torch.equal(kept.images, images) and len(calls) == 2
