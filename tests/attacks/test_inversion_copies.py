"""A batch that holds an image more than once: found as one image, handed out by what explains the message."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.copies import handed_out, whole_numbers
from dpfl_audit.attacks.inversion.exact.row_space import RowSpace, row_space
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.first_layer import read_first_layer
from dpfl_audit.defenses import models
from dpfl_audit.defenses.chain import open_chain
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from messages import flat, gradient, target_of
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

SHAPE, N = (3, 32, 32), 6
SETTINGS = Inversion(iterations=80, exact=True)


@pytest.fixture(scope="module")
def data():
    return photos.load(classes=10, samples=20, seed=0)


@pytest.fixture(scope="module")
def module(data) -> nn.Module:
    return models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=0, widths=[256, 64]
    ).eval()


def batch(data, *copies: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """N images and labels; each (place, of, label shift) is an image that is there a second time."""
    images, labels = data.inputs[:N].clone(), data.targets[:N].clone()
    for place, of, shift in copies:
        images[place], labels[place] = images[of], (labels[of] + shift) % 10
    return images, labels


def one_gradient(module: nn.Module, images: Tensor, labels: Tensor, noise_std: float = 0.0, **clip: float) -> Target:
    return replace(target_of(module, images, labels, noise_std, **clip), labels=labels.sort().values)


def three_steps(module: nn.Module, images: Tensor, labels: Tensor) -> Target:
    start = flat(module)
    weights = start.clone()
    for first in range(0, N, 2):
        here = slice(first, first + 2)
        weights = weights - 0.05 * gradient(module, weights, images[here], labels[here])
    recipe, update = Recipe("sgd", 0.05, (2, 2, 2), 1), weights - start
    return Target("t", start, -update / recipe.scale, labels.sort().values, N, recipe=recipe, update=update)


def worst(images: Tensor, labels: Tensor, found: Tensor, found_labels: Tensor) -> float:
    """dB, of the worst image, each with its own label: another's costs as much as a wrong picture."""
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2).clamp_min(1e-10)
    errors = errors + (found_labels[:, None] != labels[None])
    return float(-10 * errors[linear_sum_assignment(errors.numpy())].max().log10())


ONE_TWICE = [((1, 0, 0),), ((5, 0, 3),), ((1, 0, 0), (2, 0, 4), (5, 3, 0))]
EVERY = pytest.mark.parametrize("copies", ONE_TWICE, ids=["the same label", "another label", "three times and twice"])


@EVERY
def test_every_image_is_exact_before_anything_is_optimised(data, module, copies) -> None:
    images, labels = batch(data, *copies)
    ticks: list[tuple[int, int]] = []
    (found,) = solve(
        module,
        [one_gradient(module, images, labels)],
        SHAPE,
        SETTINGS,
        0,
        lambda done, total: ticks.append((done, total)),
    )
    assert worst(images, labels, found.images, found.labels) >= 60
    assert found.copies == len(copies) and ticks == [(1000, 1000)]


@pytest.mark.few(1)
@EVERY
def test_after_three_steps_the_rest_is_handed_out_by_errors(data, module, copies) -> None:
    """Copies in one batch and in two, in an order that nobody tells; but nothing checks it, so it is not certain."""
    images, labels = batch(data, *copies)
    target = three_steps(module, images, labels)
    (found,) = solve(module, [target], SHAPE, SETTINGS, 0)
    assert worst(images, labels, found.images, found.labels) >= 60 and found.copies == len(copies)
    read = read_first_layer(Case(module, Layout.of(module), target, target.labels, SHAPE, SETTINGS, 0))
    assert read is not None and read.layer.rank == N - len(copies) and not read.certain


def test_a_little_noise_and_a_clip_are_gone_through(data, module) -> None:
    images, labels = batch(data, (1, 0, 0))
    noisy = one_gradient(module, images, labels, 1e-6)
    clipped = one_gradient(module, images, labels, clip=0.1)
    for target, least in ((noisy, 40), (clipped, 60)):
        (found,) = solve(module, [target], SHAPE, SETTINGS, 0)
        assert worst(images, labels, found.images, found.labels) >= least


def test_an_image_that_no_neuron_sees_is_no_copy_that_is_certain(data, module) -> None:
    """Its message has the rank of a batch with a copy. The others are exact all the same."""
    images, labels = batch(data)
    dead = models.build("mlp", input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=0, widths=[256, 64])
    dead.load_state_dict(module.state_dict())
    weight, bias, *_ = dead.parameters()
    with torch.no_grad():
        seen = dead[1](dead[0](images[:1]))[0]
        weight -= ((weight @ seen + bias).clamp_min(0) + 0.05)[:, None] * seen / seen.square().sum()
    target = one_gradient(dead, images, labels)
    read = read_first_layer(Case(dead, Layout.of(dead), target, target.labels, SHAPE, SETTINGS, 0))
    assert read is not None and read.layer.rank == N - 1 and read.solution is not None and not read.certain
    (found,) = solve(dead, [target], SHAPE, SETTINGS, 0)
    nearest = (found.images[:, None] - images[None, 1:]).square().flatten(2).mean(2).amin(0)
    assert nearest.max() < 1e-6


def test_the_rank_is_told_where_it_stands_clear_and_not_where_noise_hides_a_direction() -> None:
    rng = torch.Generator().manual_seed(0)
    errors, inputs = torch.randn(5, 100, generator=rng), torch.randn(5, 200, generator=rng)
    noise = torch.randn(100, 200, generator=rng)

    def told(weakest: float, noise_std: float, least: float = 3, asked: int = 5) -> RowSpace | None:
        size = torch.tensor([1.0, 1.0, 1.0, 1.0, weakest])
        return row_space((errors * size[:, None]).T @ inputs + noise_std * noise, asked, noise_std).told(least)

    def rank(span: RowSpace | None) -> int:
        return 0 if span is None else len(span.values)

    assert rank(told(1, 0)) == rank(told(1, 1e-2)) == rank(told(1e-3, 0)) == 5
    assert rank(told(0, 0)) == rank(told(0, 1e-2)) == rank(told(0, 1e-2, least=100)) == 4
    assert rank(told(0, 0, asked=9)) == 4
    rounding = 1e-8 * torch.outer(errors[4], inputs[4]).double()  # and nothing beside it that float64 could tell
    assert rank(row_space(errors[:4].double().T @ inputs[:4].double() + rounding, 5).told(3)) == 4
    assert rank(told(1, 1, asked=9)) == 0  # more than noise, but not by so much that the rest is known to be nothing
    assert rank(told(0, 3e-1, least=100)) == rank(told(0, 30)) == rank(row_space(noise * 0, 5).told(3)) == 0


def test_copies_are_handed_out_by_the_error_of_each_image(module) -> None:
    """Random images, some of them with several labels, every label there; the scale is told to nobody."""
    rng = torch.Generator().manual_seed(3)
    chain, weights = open_chain(module), Layout.of(module).split(flat(module))
    assert chain is not None
    inputs, owners = torch.randn(8, 3072, generator=rng), torch.randint(8, (12,), generator=rng)
    owners = torch.cat([torch.arange(8), owners])
    labels = torch.cat([torch.arange(10), torch.randint(10, (10,), generator=rng)])
    labels, order = labels.sort()
    owners = owners[order]
    errors = chain.first_errors(weights, inputs[owners], labels)
    rows = torch.cat([inputs, torch.ones(8, 1)], 1)[owners]
    found = handed_out(chain, weights, 0.03 * errors.T @ rows, inputs, labels)
    assert sorted(zip(labels.tolist(), found.tolist())) == sorted(zip(labels.tolist(), owners.tolist()))


def test_whole_numbers_have_the_labels_sums_and_leave_no_image_out() -> None:
    rng = torch.Generator().manual_seed(0)
    for images in (1, 3, 7):
        totals = torch.tensor([4, 1, 2])
        counts = whole_numbers(3 * torch.rand(images, 3, generator=rng, dtype=torch.float64) ** 4, totals)
        assert counts.sum(0).equal(totals) and counts.sum(1).min() >= 1 and counts.min() >= 0
    assert whole_numbers(torch.tensor([[0.0], [3.0]]), torch.tensor([3])).tolist() == [[1], [2]]
