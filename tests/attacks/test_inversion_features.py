"""Features solved for at the classifier are the images' own; where they are not determined nothing is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.features import SolvedFeatures, with_features
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.features import is_smooth
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from messages import psnr, target_of
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

SHAPE = (3, 32, 32)
Batch = tuple[nn.Module, Target, Tensor]


def batch(name: str, count: int, seed: int = 0, **options) -> Batch:
    """A network at its initial weights, the gradient of photographs (labels repeat), and these."""
    data = photos.load(classes=10, samples=40, seed=seed)
    module = models.build(
        name, input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=seed, **options
    ).eval()
    rows = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(seed))[:count]
    images, labels = data.inputs[rows], data.targets[rows]
    return module, target_of(module, images, labels), images


def small(count: int, seed: int = 0) -> Batch:
    return batch("cnn", count, seed, channels=[8, 16])


def features(made: Batch, **changed) -> SolvedFeatures | None:
    module, target, _ = made
    target = replace(target, **changed)
    return SolvedFeatures.of(module, Layout.of(module), target, target.labels, SHAPE)


def error(found: SolvedFeatures, images: Tensor, labels: Tensor) -> float:
    """Mean squared distance of the places from the images' own, in shares of their spread, by the best order within
    labels, as the same label says nothing of an order.
    """
    inside = found.of_images(images).detach() @ found.directions.T
    far = torch.cdist(found.places, inside).square() + 1e6 * (labels[:, None] != labels[None])
    return float(far[linear_sum_assignment(far.numpy())].sum()) / (len(images) * found.spread)


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_features_are_the_images_own_whatever_the_scale(count: int, scale: float) -> None:
    module, target, images = small(count)
    assert count < 6 or len(target.labels.unique()) < count  # the harder case: labels repeat
    found = features((module, target, images), gradient=scale * target.gradient, scale_known=scale == 1.0)
    assert found is not None and "solved for" in found.said
    assert error(found, images, target.labels) < 1e-4
    assert error(found, images.flip(-1), target.labels) > 1e-2  # mirror images are others


def test_an_active_clip_hides_the_scale_and_no_more() -> None:
    module, target, images = small(4)
    clipped = float(target.gradient.norm()) / 3
    found = features((module, target, images), gradient=target.gradient / 3, clip_norm=clipped)
    assert found is not None and error(found, images, target.labels) < 1e-4


RECIPE = Recipe("sgd", 0.1, (4, 4), 1, momentum=0.9, smoothing=0.99)


@pytest.mark.parametrize(
    ("count", "changed"),
    [(4, {"recipe": RECIPE}), (4, {"per_layer": True}), (10, {}), (4, {"noise_std": 10.0})],
    ids=["several steps", "every tensor clipped", "as many images as classes", "noise over all"],
)
def test_nothing_is_said_where_nothing_is_determined(count: int, changed: dict) -> None:
    assert features(small(count), **changed) is None


def test_linear_layers_alone_are_read_from_the_first() -> None:
    assert features(batch("mlp", 4, widths=[32])) is None


def test_noise_takes_weight_from_what_it_hides() -> None:
    module, target, images = small(4)
    std = 1e-3 * float(target.gradient.norm()) / len(target.gradient) ** 0.5
    noise = std * torch.randn(len(target.gradient), generator=torch.Generator().manual_seed(3))
    clean, noisy = (
        features((module, target, images)),
        features((module, target, images), gradient=target.gradient + noise, noise_std=std),
    )
    assert noisy is not None
    assert noisy.weights.sum() / noisy.weights.numel() <= clean.weights.sum() / clean.weights.numel()
    assert error(noisy, images, target.labels) < 0.2


def test_its_slope_is_the_distance_own() -> None:
    made = small(3)
    found, images = features(made), torch.rand(1, 3, *SHAPE, generator=torch.Generator().manual_seed(5))
    found = found.at(made[0].double(), replace(made[1], weights=made[1].weights.double()))

    def nothing(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_zeros(len(x)), torch.zeros_like(x)

    objective = with_features(nothing, [found], 2.0)
    images = images.double()
    along = torch.randn(images.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    value, slope = objective(images)
    assert value.item() == pytest.approx(2 * found.distance(images[0]).item())
    step = 1e-7
    rise = (objective(images + step * along)[0] - objective(images - step * along)[0]).item() / (2 * step)
    assert rise == pytest.approx((slope * along).sum().item(), rel=1e-3)


@pytest.mark.full
def test_images_of_a_smooth_network_are_followed_to_the_end() -> None:
    module, target, images = batch("lenet", 1, seed=1)
    settings = Inversion(iterations=80, tv="noise-aware")
    without, guided = (
        solve(module, [target], SHAPE, replace(settings, features=weight), 0)[0] for weight in (0.0, 0.003)
    )
    assert is_smooth(module) and not is_smooth(small(1)[0])
    assert psnr(guided.images, images) > 30 > 20 > psnr(without.images, images)
    assert guided.loss < without.loss and "solved for" in guided.features_by and not without.features_by


@pytest.mark.full
def test_restarts_that_are_drawn_together_are_followed_to_the_end_too() -> None:
    """What follows is of one start, to which a weight between restarts says nothing."""
    module, target, images = batch("lenet", 1, seed=1)
    settings = Inversion(iterations=150, tv="noise-aware", restarts=2, consensus=0.1, features=0.003)
    assert psnr(solve(module, [target], SHAPE, settings, 0)[0].images, images) > 30


def test_what_was_solved_for_is_said_and_progress_ends() -> None:
    module, target, _ = small(2)
    ticks: list[tuple[int, int]] = []
    made = solve(module, [target], SHAPE, Inversion(iterations=3, features=0.003), 0, lambda *at: ticks.append(at))
    assert "2 directions" in made[0].features_by
    assert ticks[-1][0] == ticks[-1][1] and [d for d, _ in ticks] == sorted({d for d, _ in ticks})
