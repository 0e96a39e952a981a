"""Layers of leaky convolutions are peeled off one gradient, down to the images; noise and other networks are let be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.layer_inputs import LeakyLayer, inputs_of_layer, smooth
from dpfl_audit.attacks.inversion.match.features import FEATURES, SolvedFeatures
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.read.conjugate_gradients import conjugate_gradients
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.peel import _End, _Peel, peeled, peels
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, CLASSES = (3, 12, 12), 10
CHANNELS = ((12, 4, 2, 2), (16, 3, 1, 1), (24, 3, 1, 1), (48, 3, 1, 1))  # out, kernel, stride, padding
SETTINGS = Inversion(iterations=100, tv="noise-aware", features=FEATURES)
Batch = tuple[nn.Module, Target, Tensor]


def convolutions(activation: str = "LeakyReLU", channels: tuple = CHANNELS) -> nn.Module:
    layers, before, side = [], SHAPE[0], SHAPE[1]
    for after, kernel, stride, padding in channels:
        layers.append(["Conv2d", {"in_channels": before, "out_channels": after, "kernel_size": kernel}])
        layers[-1][1].update(stride=stride, padding=padding)
        layers.append([activation, {"negative_slope": 0.2} if activation == "LeakyReLU" else {}])
        before, side = after, (side + 2 * padding - kernel) // stride + 1
    layers += [["Flatten", {}], ["Linear", {"in_features": before * side * side, "out_features": CLASSES}]]
    constants = {"mean": [0.5] * 3, "std": [0.25] * 3}
    return models.build("layers", input_shape=SHAPE, classes=CLASSES, seed=0, layers=layers, **constants).eval()


def batch(count: int = 4, seed: int = 1) -> Batch:
    """The gradient of small photographs, whose labels repeat."""
    data = photos.load(classes=CLASSES, samples=40, seed=seed)
    rows = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(seed))[:count]
    images, labels = F.interpolate(data.inputs[rows], SHAPE[1:], mode="area"), data.targets[rows] % 3
    module = convolutions()
    found = torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))
    weights = Layout.of(module).join({n: p.detach() for n, p in module.named_parameters()})
    return module, Target("t", weights, torch.cat([g.flatten() for g in found]), labels, count), images


def psnr(found: Tensor, images: Tensor) -> float:
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2).clamp_min(1e-10)
    return float((-10 * errors[linear_sum_assignment(errors.numpy())].log10()).mean())


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_images_come_out_with_labels_that_repeat_whatever_the_scale(scale: float) -> None:
    module, target, images = batch()
    assert len(target.labels.unique()) < len(images)
    target = replace(target, gradient=scale * target.gradient, scale_known=scale == 1.0)
    ticks: list[tuple[int, int]] = []
    found = solve(module, [target], SHAPE, SETTINGS, 0, lambda *at: ticks.append(at))[0]
    searched = solve(module, [target], SHAPE, replace(SETTINGS, features=0.0), 0)[0]
    assert psnr(found.images, images) > 40 > psnr(searched.images, images) + 10
    assert "every layer, down to the images" in found.features_by
    assert ticks[-1][0] == ticks[-1][1] and [d for d, _ in ticks] == sorted({d for d, _ in ticks})


def guessed(made: Batch) -> tuple[Solution, SolvedFeatures | None]:
    module, target, images = made
    rough = (images + 0.1 * torch.randn(images.shape, generator=torch.Generator().manual_seed(2))).clamp(0, 1)
    features = SolvedFeatures.of(module, Layout.of(module), target, target.labels, SHAPE)
    return Solution(rough, rough, target.labels, 1.0), features


def of(made: Batch, guess: Solution, features: SolvedFeatures | None) -> Solution:
    return peeled(made[0], Layout.of(made[0]), made[1], guess, features, SETTINGS, lambda: None)


def test_the_guess_stays_with_noise_and_without_features() -> None:
    module, target, images = batch()
    guess, features = guessed((module, target, images))
    std = 0.01 * float(target.gradient.norm()) / len(target.gradient) ** 0.5
    noise = std * torch.randn(len(target.gradient), generator=torch.Generator().manual_seed(3))
    known = replace(target, gradient=target.gradient + noise, noise_std=std)
    assert of((module, known, images), guess, features) is guess
    assert (
        of((module, replace(known, noise_std=0.0), images), guess, features) is guess
    )  # nobody said that there is any
    assert of((module, target, images), guess, None) is guess
    assert of((module, target, images), guess, features) is not guess


def test_images_that_explain_no_more_than_the_guess_are_not_taken() -> None:
    module, target, images = batch()
    guess, features = guessed((module, target, images))
    assert of((module, target, images), replace(guess, images=images), features).images is images


@pytest.mark.parametrize(
    ("module", "does"),
    [
        (convolutions(), True),
        (convolutions("ReLU"), False),
        (convolutions("Sigmoid"), False),
        (convolutions(channels=CHANNELS[:2]), False),
        (convolutions(channels=(*CHANNELS, (24, 3, 1, 1))), False),
    ],
    ids=["leaky", "ReLU", "sigmoid", "two convolutions", "the last one gives fewer numbers than it takes"],
)
def test_networks_it_is_for(module: nn.Module, does: bool) -> None:
    assert peels(module, SHAPE) == does


@pytest.mark.parametrize(("name", "does"), [("cnn6", True), ("cnn", False), ("lenet", False), ("mlp", False)])
def test_built_in_networks_it_is_for(name: str, does: bool) -> None:
    module = models.build(name, input_shape=(3, 32, 32), classes=10, mean=[0.5] * 3, std=[0.25] * 3, seed=0)
    assert peels(module.eval(), (3, 32, 32)) == does


def a_layer(draw: torch.Generator) -> tuple[LeakyLayer, Tensor, Tensor, Tensor, Tensor]:
    """A layer with its gradient, its inputs, outputs, errors before the slope and errors."""
    u, weight = (torch.randn(*s, generator=draw, dtype=torch.float64) for s in ((3, 4, 6, 6), (8, 4, 3, 3)))
    bias = torch.randn(8, generator=draw, dtype=torch.float64)
    layer = LeakyLayer(weight, bias, weight, bias, (1, 1), (1, 1), 0.2)
    z = layer.outputs(u)
    pulled = torch.randn(z.shape, generator=draw, dtype=torch.float64)
    errors = layer.slopes(z) * pulled
    return replace(layer, gradient=layer.product(errors, u)), u, z * layer.slopes(z), pulled, errors


def test_a_layers_inputs_and_the_slope_that_rounding_took() -> None:
    layer, u, outputs, pulled, errors = a_layer(torch.Generator().manual_seed(0))
    least = outputs.abs().flatten().argmin()
    off = outputs.clone()
    off.view(-1)[least] = -1e-9 * outputs.view(-1)[least].sign()
    assert (layer.slopes(off) != layer.slopes(outputs)).sum() == 1
    found, own = inputs_of_layer(layer, off, pulled, torch.zeros_like(u))
    assert torch.equal(own, errors)
    assert float((found - u).norm() / u.norm()) < 2e-3  # of the output that was moved


def test_outputs_that_no_inputs_have_are_refused() -> None:
    layer, u, outputs, pulled, _ = a_layer(torch.Generator().manual_seed(0))
    assert inputs_of_layer(layer, outputs.flip(1), pulled, u) is None


def test_the_gradients_slope_is_its_own_and_its_transpose() -> None:
    module, target, _ = batch()
    double = module.double()
    target = replace(target, weights=target.weights.double(), gradient=target.gradient.double())
    features = SolvedFeatures.of(double, Layout.of(double), target, target.labels, SHAPE)
    peel = _Peel.of(double, Layout.of(double), target, target.labels, features, SHAPE)
    draw = torch.Generator().manual_seed(1)
    u, v = (torch.randn(4, 24, 7, 7, generator=draw, dtype=torch.float64) for _ in range(2))
    end = _End(peel, u)
    moved = end.moved(v)
    ahead, behind = (_End(peel, u + step * v).told for step in (1e-7, -1e-7))
    for own, one, other in zip(moved, ahead, behind):
        assert torch.allclose(own, (one - other) / 2e-7, rtol=1e-4, atol=1e-5 * float(own.abs().max()))
    parts = tuple(torch.randn(part.shape, generator=draw, dtype=torch.float64) for part in moved)
    there = sum(float((a * b).sum()) for a, b in zip(moved, parts))
    assert there == pytest.approx(float((end.pulled(parts) * v).sum()), rel=1e-9)


def test_what_is_likely_decides_the_way_and_not_the_end() -> None:
    draw = torch.Generator().manual_seed(4)
    root = torch.randn(80, 72, generator=draw, dtype=torch.float64)
    x = torch.randn(72, generator=draw, dtype=torch.float64)
    square = root.T @ root
    likely = smooth((2, 6, 6), x)
    for own in (None, likely):
        assert torch.allclose(conjugate_gradients(lambda y: square @ y, square @ x, 2000, own), x, atol=1e-6)
    whole = torch.stack([likely(row) for row in torch.eye(72, dtype=torch.float64)])
    assert torch.allclose(whole, whole.T) and float(torch.linalg.eigvalsh(whole)[0]) > 0
