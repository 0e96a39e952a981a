"""Factors of several steps of Adam or RMSprop fitted together, and scales, which ε tells and nothing else."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.inversion.read.joint_factors import (
    conjugate_gradients,
    descended,
    left_over,
    rescaled,
    rows_descended,
    unsure_scales,
)
from dpfl_audit.attacks.inversion.read.local_training import EPS, Recipe, moved
from dpfl_audit.attacks.inversion.read.step_factors import _scaled_as
from torch import Tensor

SIZES, PRECISION = (2, 2), 1e-7
ADAPTIVE = pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])


def case(optimiser: str, size: float = 1e-3):
    """A recipe, errors and inputs of two steps whose gradients are about `size`, and a way to draw more."""
    rng = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    return Recipe(optimiser, 1.0, SIZES, 1), size * drawn(80, 4), drawn(4, 60), drawn


def gradients(errors: Tensor, inputs: Tensor) -> list[Tensor]:
    return [e @ x for e, x in zip(errors.split(SIZES, 1), inputs.split(SIZES))]


def off(found: list[Tensor], true: list[Tensor]) -> float:
    """The median entry's factor from the true gradients, as a logarithm."""
    return max(float((a / b).abs().log().abs().median()) for a, b in zip(found, true))


@ADAPTIVE
def test_epsilon_tells_the_scales_that_the_optimiser_divides_out(optimiser: str) -> None:
    recipe, errors, inputs, drawn = case(optimiser)
    precision = torch.full((80, 60), PRECISION, dtype=torch.float64)
    true = gradients(errors, inputs)
    update = moved(recipe, true) + precision * drawn(80, 60)
    errors = errors * (0.2 * drawn(80, 1)).exp() * (1 + 1e-3 * drawn(80, 4))
    inputs = inputs * (0.2 * drawn(1, 60)).exp() * (1 + 1e-3 * drawn(4, 60))
    assert off(gradients(errors, inputs), true) > 0.1
    errors, inputs = descended(update, errors, inputs, recipe, 0.0, 30, 1e-6, precision)
    assert off(gradients(errors, inputs), true) < 1e-3
    assert left_over(update, errors, inputs, recipe).abs().median() < PRECISION


@ADAPTIVE
def test_scales_are_told_the_better_the_smaller_gradients_are(optimiser: str) -> None:
    told = []
    for size in (1e-5, 1e-3, 1e-1):
        recipe, errors, inputs, _ = case(optimiser, size)
        update = moved(recipe, gradients(errors, inputs))
        precision = torch.full_like(update, PRECISION)
        told.append(float(unsure_scales(update, errors, inputs, recipe, precision).median()))
    assert told[0] < told[1] < told[2]
    # Adam's first step is g / (|g| + ε), so a scale's logarithm moves it by ε/|g|: told to |g|/ε precisions.
    assert told[1] < PRECISION * 1e-3 / EPS


@ADAPTIVE
def test_a_neuron_by_itself_finds_its_scale_where_the_images_are_known(optimiser: str) -> None:
    recipe, errors, inputs, drawn = case(optimiser)
    update = moved(recipe, gradients(errors, inputs))
    begun = errors * (0.3 * drawn(80, 1)).exp() * (1 + 1e-3 * drawn(80, 4))
    found = rows_descended(update, begun, inputs, recipe, torch.full_like(update, PRECISION), 20)
    wrong = ((found - errors).norm(dim=1) / errors.norm(dim=1)).median()
    assert wrong < 1e-2 < ((begun - errors).norm(dim=1) / errors.norm(dim=1)).median()


@ADAPTIVE
def test_a_pixel_whose_scale_is_far_off_is_found_by_trying(optimiser: str) -> None:
    recipe, errors, inputs, _ = case(optimiser)
    update = moved(recipe, gradients(errors, inputs))
    wrong = torch.ones(60, dtype=torch.float64)
    wrong[7], wrong[11] = 0.5, 2.0
    found = rescaled(update, errors, inputs * wrong, recipe, torch.full_like(update, PRECISION))
    torch.testing.assert_close(found, inputs, rtol=1e-9, atol=0)


def test_softened_joint_steps_fit_a_rough_guess() -> None:
    recipe, errors, inputs, drawn = case("adam", 1.0)
    update = moved(recipe, gradients(errors, inputs))
    found = errors + 0.1 * drawn(80, 4), inputs + 0.1 * drawn(4, 60)
    before = left_over(update, *found, recipe).abs().median()
    for softening in (0.1, 0.03, 0.01, 0.003, 0.001):
        found = descended(update, *found, recipe, softening, 8, 1e-3)
    assert left_over(update, *found, recipe).abs().median() < 0.05 * before


def test_pixels_keep_their_scales_however_a_step_s_inputs_are_mixed() -> None:
    _, _, inputs, drawn = case("adam")
    scales = (0.3 * drawn(1, 60)).exp()
    mixed = torch.cat([drawn(2, 2) @ x for x in inputs.split(SIZES)]) * scales
    held = _scaled_as(inputs, mixed, SIZES)
    factor = (held / mixed * scales)[0]
    assert (factor / factor.median()).log().std() < 0.3 * scales.log().std()


def test_a_covariance_decides_the_way_of_conjugate_gradients_and_not_the_end() -> None:
    rng = torch.Generator().manual_seed(4)
    root, other = (torch.randn(size, 30, generator=rng, dtype=torch.float64) for size in (40, 60))
    x = torch.randn(30, generator=rng, dtype=torch.float64)
    square, covariance = root.T @ root, other.T @ other
    plain, drawn = (lambda y: y), (lambda y: covariance @ y)
    for likely in (plain, drawn):
        assert torch.allclose(conjugate_gradients(lambda y: square @ y, square @ x, 500, likely, 1e-11), x, atol=1e-6)
    first = [conjugate_gradients(lambda y: square @ y, square @ x, 1, likely, 1e-11) for likely in (plain, drawn)]
    assert torch.allclose(first[0] / first[0].norm(), square @ x / (square @ x).norm())
    assert not torch.allclose(first[1], first[0], rtol=0.1)
