"""Exact images with no guess: true columns are found, nothing is found where there is nothing, the message decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.blind import blind_columns
from dpfl_audit.attacks.inversion.exact.first_layer import FirstLayer
from dpfl_audit.attacks.inversion.exact.row_space import RowSpace, row_space
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.evaluate import explained
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from messages import decibels, target_of
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def data():
    return photos.load(classes=10, samples=20, seed=0)


def network(data, seed: int = 0, name: str = "mlp", **options) -> nn.Module:
    options = {"widths": [256, 64], **options} if name == "mlp" else options
    shape = {"input_shape": SHAPE, "classes": 10, "mean": data.mean, "std": data.std, "seed": seed}
    return models.build(name, **shape, **options).eval()


def layer_of(images: int, neurons: int, seed: int) -> tuple[Tensor, RowSpace, Tensor]:
    """Random errors (images, neurons), 0 where random weights leave a neuron off, their span, and its planes."""
    rng = torch.Generator().manual_seed(seed)
    inputs = torch.cat([torch.randn(images, 199, generator=rng), torch.ones(images, 1)], 1).double()
    weights = torch.randn(neurons, 200, generator=rng).double()
    errors = torch.randn(images, neurons, generator=rng).double() * (inputs @ weights.T > 0)
    span = row_space(errors.T @ inputs, images)
    return errors, span, weights @ span.right


@pytest.mark.parametrize("images", [1, 2, 5, 20])
def test_the_columns_found_are_the_images_errors(images: int) -> None:
    errors, span, planes = layer_of(images, 300, seed=images)
    found = blind_columns(span, planes, 0)
    likeness = (F.normalize(found.errors) @ F.normalize(errors).T).abs()
    assert len(found) == images and likeness.amax(1).min() > 1 - 1e-6 and len(likeness.argmax(1).unique()) == images


def test_nothing_is_found_in_noise_behind_other_weights_and_with_too_few_neurons() -> None:
    errors, span, planes = layer_of(5, 150, seed=0)
    rng = torch.Generator().manual_seed(2)
    noise = row_space(torch.randn(150, 200, generator=rng), 5)
    assert len(blind_columns(noise, planes, 0)) == 0
    assert len(blind_columns(replace(noise, noise_std=0.0), planes, 0)) == 0
    dense = row_space(torch.randn(errors.shape, generator=rng).double().T @ span.right.T, 5)
    assert len(blind_columns(dense, planes, 0)) == 0  # of the right rank, without zeros
    assert len(blind_columns(span, torch.randn(planes.shape, generator=rng).double(), 0)) == 0
    assert len(blind_columns(*layer_of(12, 36, seed=0)[1:], 0)) == 0


@pytest.mark.parametrize("clip", [1.0, 0.1])
def test_eight_images_are_exact_before_anything_is_optimised(data, clip: float) -> None:
    module, images, labels = network(data), data.inputs[:8], data.targets[:8]
    target = target_of(module, images, labels, clip=None if clip == 1 else clip)
    ticks: list[tuple[int, int]] = []
    settings = Inversion(iterations=500, exact=True)
    (solution,) = solve(module, [target], SHAPE, settings, 0, lambda done, total: ticks.append((done, total)))
    assert decibels(solution.images, images).min() >= 60
    assert ticks == [(1000, 1000)]  # not one iteration
    for image, label in zip(solution.images, solution.labels):
        assert label == labels[(images - image).square().flatten(1).mean(1).argmin()]


def test_one_that_is_exact_leaves_those_beside_it_as_they_are(data) -> None:
    module = network(data)
    clear = target_of(module, data.inputs[:4], data.targets[:4])
    hidden = replace(target_of(module, data.inputs[4:8], data.targets[4:8], 0.1), key="hidden")
    settings = Inversion(iterations=20, exact=True)
    exact, guess = solve(module, [clear, hidden], SHAPE, settings, 0)
    (alone,) = solve(module, [hidden], SHAPE, replace(settings, exact=False), 0)
    assert decibels(exact.images, data.inputs[:4]).min() > 60
    assert torch.equal(guess.images, alone.images) and guess.loss == alone.loss


def test_little_noise_is_gone_through_and_much_is_not_tried(data) -> None:
    module, images, labels = network(data), data.inputs[:4], data.targets[:4]
    little, much = (target_of(module, images, labels, noise) for noise in (1e-6, 3e-2))
    assert FirstLayer.of(module, much) is None
    (solution,) = solve(module, [little], SHAPE, Inversion(iterations=1, exact=True), 0)
    assert decibels(solution.images, images).min() >= 40


def test_a_convolution_a_sigmoid_and_a_lonely_weight_are_not_its_case(data) -> None:
    for other in (network(data, name="lenet"), network(data, activation="sigmoid")):
        assert FirstLayer.of(other, target_of(other, data.inputs[:2], data.targets[:2])) is None
    narrow = network(data, widths=[8])  # as many neurons as images: any update has that rank
    assert FirstLayer.of(narrow, target_of(narrow, data.inputs[:8], data.targets[:8])) is None
    bare = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64, bias=False), nn.ReLU(), nn.Linear(64, 10))
    assert FirstLayer.of(bare, target_of(bare, data.inputs[:2], data.targets[:2])) is None


def test_the_message_says_whether_images_are_right(data) -> None:
    """Not their truth: other images, other labels and images of other weights leave more than the known noise."""
    module, images, labels = network(data), data.inputs[:4], data.targets[:4]
    layout, settings = Layout.of(module), Inversion(exact=True)
    for noise in (0.0, 1e-4):
        target = target_of(module, images, labels, noise)
        case = Case(module, layout, target, labels, SHAPE, settings, 0)
        assert explained(case, images) and not explained(case, data.inputs[4:8])
        assert not explained(replace(case, labels=(labels + 1) % 10), images)
    alone = replace(target, gradient=torch.ones(len(target.gradient)), noise_std=1.0)
    assert not explained(replace(case, target=alone), images)  # it all is noise: nothing is told
