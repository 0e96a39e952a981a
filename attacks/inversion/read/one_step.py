"""The gradient of a linear first layer behind one step of Adam or RMSprop, completed by its rank.

`local_training.undone` reads each weight's gradient g by itself, off what ε lacks to a whole step, ε/|g|. A float32
update is told to a fixed precision, so g is told to a share that grows with |g|: to parts in 10⁴ where it is small, to
a tenth or not at all where it is large. But all of them are one matrix, (errors) × (images, 1), of rank n. So both
factors are fitted to the update, every entry weighed by how precisely it is told, and the small gradients tell the
large ones.

Two things matter where gradients are that well told. How far the fit itself is still off must not hide what small
gradients say, so that doubt falls step by step to nothing. And torch's own rounding of its constants (learning rate,
1 − β) makes all steps 10⁻⁷ shorter or longer, which a large gradient, told by ε/|g| = 10⁻⁵, is off by a hundredth for:
torch's optimiser is run on known gradients to measure it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ....defenses.update import make_optimiser
from ..exact.row_space import row_space
from .joint_factors import EXACT, descended, left_over, unsure_rows
from .local_training import Recipe, moved
from .step_factors import StepFactors

DOUBTS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)  # of a gradient, in units of their root mean square
STEPS, DAMPING = 6, 1e-6  # of the fit at each
MEASURED = 20001  # gradients, from a three-hundredth to six times their root mean square
FEW, MANY = 1 / 300, 6.0
LEAST = 1e-12  # of their root mean square


def one_step_factors(
    update: Tensor, recipe: Recipe, undone: Tensor, precision: Tensor, tick: Callable[[], None] = lambda: None
) -> StepFactors:
    """The factors of the gradient, scales and all.

    Args:
        update: (o, i + 1), of [W | b]. recipe: one step of Adam or RMSprop, of n images.
        undone: (o, i + 1), each gradient read by itself. precision: (o, i + 1), standard deviation of what the update
            is told to, but for the optimiser's arithmetic. tick: called after each fall of the doubt.
    """
    unit, size = replace(recipe, lr=1.0), max(LEAST, float(undone.double().square().mean().sqrt()))
    longer, spread = arithmetic(recipe, size)
    values = update.double() / (recipe.lr * (1 + longer))
    exact = ((precision.double() / recipe.lr).square() + (spread * values).square()).sqrt()
    span = row_space(undone, recipe.sizes[0])
    errors, inputs = span.left * span.values, span.right.T.contiguous()
    for doubt in DOUBTS:
        errors, inputs = descended(values, errors, inputs, unit, 0.0, STEPS, DAMPING, exact, doubt * size)
        tick()
    rest = left_over(values, errors, inputs, unit).abs().median(1)[0].square()
    unsure = unsure_rows(values, errors, inputs, unit, exact, DOUBTS[-2] * size)
    return StepFactors(recipe, (errors,), (inputs,), rest, sharp=True, unsure=unsure)


def operations_at_once(neurons: int, inputs: int, images: int) -> int:
    """About how many it takes at most: neurons o, inputs i + 1."""
    return len(DOUBTS) * STEPS * neurons * inputs * (4 * images**2 + 8 * EXACT[0] * images)


def arithmetic(recipe: Recipe, size: float) -> tuple[float, float]:
    """By what share torch's first step in float32 is longer than by its formulas, in the mean over gradients of about
    `size`, and that share's standard deviation.
    """
    gradients = size * torch.logspace(0, 1, MEASURED, MANY / FEW) * FEW
    weights = torch.zeros_like(gradients)
    weights.grad = gradients
    make_optimiser(recipe.optimiser, [weights], recipe.lr, recipe.momentum, recipe.smoothing).step()
    longer = weights.double() / moved(recipe, [gradients.double()]) - 1
    return float(longer.mean()), float(longer.std())
