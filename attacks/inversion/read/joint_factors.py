"""Both factors of all steps at once: Gauss and Newton's steps, solved by conjugate gradients.

Fitting neurons given the images and images given the neurons, in turns (`step_factors.py`), creeps along valleys: what
one says holds the other. A joint step of both does not. Its normal equations are never written down but for their
diagonal blocks, one a neuron and one a pixel, which precondition them.

The loss forgives: an entry of the update whose gradient is near 0 at some step moves by ±1 for no error at all, and a
neuron that sits in a wrong place fits nowhere. Two ways to weigh entries: by their neuron's mean square, for a fit that
is softened; or, with no softening, by the variance that an entry has if all gradients are in doubt by the same amount,
which the rest tells, and the update is told to a known precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .local_training import Recipe, linearised

Operator = Callable[[Tensor], Tensor]

CHUNK = 2**22  # numbers at once
FORGIVING = 9.0  # variances of a rest, where the loss begins to bend
SOFTENED, EXACT = (40, 0.02), (40, 1e-3)  # of conjugate gradients: at most, and where they end; softened, and not
LEAST = {torch.float32: 3e-7, torch.float64: 1e-9}  # damping
LENGTHS = (1.0, 0.5, 0.2, 0.05)  # of a step, tried one after the other
IDLE = (0.985, 0.999)  # of the loss: what is left after a step that is the last; softened, and not
FACTORS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.4, 1.6, 2.0, 2.5)  # of a pixel's scale
DAMPINGS = (1e-1, 1e-3, 1e-6, 1e-9)  # of a row by itself


def descended(
    moved: Tensor,
    errors: Tensor,
    inputs: Tensor,
    recipe: Recipe,
    softening: float,
    steps: int,
    damping: float,
    precision: Tensor | None = None,
    doubt: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Errors (o, n) and inputs (n, p) after joint steps, fewer where the loss does not fall any more.

    Args:
        moved: (o, p), the update over lr. errors, inputs: where to begin. recipe: with lr = 1, of n images.
        softening: of Adam's ε. steps: at most. damping: of the first, over the diagonal.
        precision: (o, p), standard deviation of what `moved` is told to; None where the fit is softened.
        doubt: by how much gradients are still off, for entries' weights; None where the rest tells.
    """
    sizes = list(recipe.sizes)
    (inner, tolerance), idle = (SOFTENED, IDLE[0]) if precision is None else (EXACT, IDLE[1])
    for _ in range(steps):
        rest, slopes = _at(moved, errors, inputs, recipe, softening)
        variance = _variance(rest, slopes, precision, doubt)
        before = _loss(rest, variance).sum()
        weight = 1 / (variance * (1 + rest.square() / variance / FORGIVING))
        ahead = _direction(errors, inputs, slopes, weight, rest, sizes, damping, inner, tolerance)
        for length in LENGTHS:
            tried = errors + length * ahead[0], inputs + length * ahead[1]
            after = _loss(moved - _total(*tried, recipe, softening), variance).sum()
            if after < before:
                break
        else:
            damping *= 10
            if damping > 10:
                break
            continue
        errors, inputs = tried
        damping = max(damping / 3 if length == 1 else damping * 3, LEAST[moved.dtype])
        if after > idle * before and length == 1:
            break
    return errors, inputs


def rows_descended(moved: Tensor, rows: Tensor, held: Tensor, recipe: Recipe, precision: Tensor, steps: int) -> Tensor:
    """Rows (m, n) of one factor, each by itself given the other (n, p), with no softening; none gets worse.

    Args:
        moved, precision: (m, p), as of `descended`. recipe: with lr = 1. steps: how many.
    """
    some = max(1, CHUNK // held.numel())
    found = []
    for part, row, exact in zip(moved.split(some), rows.split(some), precision.split(some)):
        for _ in range(steps):
            rest, slopes = _at(part, row, held, recipe, 0.0)
            squares = _squares(slopes)
            doubt = (rest.abs() / squares.sqrt().clamp_min(1e-300)).median(1, keepdim=True)[0]
            variance = squares * doubt.square() + exact.square()
            weight = 1 / (variance * (1 + rest.square() / variance / FORGIVING))
            jacobian = torch.cat([s[:, None] * h for s, h in zip(slopes, held.split(list(recipe.sizes)))], 1)
            weighted = jacobian * weight[:, None]
            normal, toward = weighted @ jacobian.mT, (weighted @ rest[..., None])[..., 0]
            diagonal, best, least = normal.diagonal(dim1=1, dim2=2), row, _loss(rest, variance).sum(1)
            for damping in DAMPINGS:
                ahead = torch.linalg.solve_ex(normal + torch.diag_embed(damping * diagonal + 1e-300), toward)[0]
                left = _loss(part - _total(row + ahead, held, recipe, 0.0), variance).sum(1)
                best = torch.where((left < least)[:, None], row + ahead, best)
                least = torch.where(left < least, left, least)  # also where `left` is not a number
            row = best
        found.append(row)
    return torch.cat(found)


def rescaled(moved: Tensor, errors: Tensor, inputs: Tensor, recipe: Recipe, precision: Tensor) -> Tensor:
    """Inputs (n, p), each pixel multiplied by that of `FACTORS` that leaves least: a scale far off is beyond what a
    joint step sees.

    Args:
        moved, errors, inputs, recipe, precision: as of `descended`.
    """
    rest, slopes = _at(moved, errors, inputs, recipe, 0.0)
    variance = _variance(rest, slopes, precision)
    best, least = torch.ones_like(inputs[0]), _loss(rest, variance).sum(0)
    for factor in FACTORS:
        left = _loss(left_over(moved, errors, factor * inputs, recipe), variance).sum(0)
        best, least = torch.where(left < least, factor, best), torch.minimum(left, least)
    return best * inputs


def left_over(moved: Tensor, errors: Tensor, inputs: Tensor, recipe: Recipe) -> Tensor:
    """(o, p), what the factors leave of the update over lr, without softening."""
    return moved - _total(errors, inputs, recipe, 0.0)


def unsure_scales(moved: Tensor, errors: Tensor, inputs: Tensor, recipe: Recipe, precision: Tensor) -> Tensor:
    """(p,), about the standard deviation of each pixel's scale, over the scale, as far as the update tells it: as if
    nothing else were unknown.

    Args:
        moved, errors, inputs, recipe, precision: as of `descended`.
    """
    sizes = list(recipe.sizes)
    rest, slopes = _at(moved, errors, inputs, recipe, 0.0)
    along = [s * (e @ x) for s, e, x in zip(slopes, errors.split(sizes, 1), inputs.split(sizes))]
    return (torch.stack(along).sum(0).square() / _variance(rest, slopes, precision)).sum(0).rsqrt()


def unsure_rows(
    moved: Tensor, errors: Tensor, inputs: Tensor, recipe: Recipe, precision: Tensor, doubt: float
) -> Tensor:
    """(o,), about the root mean square of how far each neuron's gradients are off, the inputs taken as known.

    Args:
        moved, errors, inputs, precision, doubt: as of `descended`. recipe: of one step, lr = 1.
    """
    rest, slopes = _at(moved, errors, inputs, recipe, 0.0)
    variance = _variance(rest, slopes, precision, doubt)
    weight = 1 / (variance * (1 + rest.square() / variance / FORGIVING))
    blocks = _blocks(slopes, weight, inputs, list(recipe.sizes))
    blocks.diagonal(dim1=1, dim2=2).mul_(1 + LEAST[moved.dtype]).add_(1e-300)
    squares = (inputs @ inputs.T / inputs.shape[1]).expand_as(blocks)
    return torch.linalg.solve_ex(blocks, squares)[0].diagonal(dim1=1, dim2=2).sum(1).clamp_min(0).sqrt()


def _total(errors: Tensor, inputs: Tensor, recipe: Recipe, softening: float) -> Tensor:
    sizes = list(recipe.sizes)
    return linearised(recipe, [e @ x for e, x in zip(errors.split(sizes, 1), inputs.split(sizes))], softening)[0]


def _at(moved: Tensor, errors: Tensor, inputs: Tensor, recipe: Recipe, softening: float) -> tuple[Tensor, list[Tensor]]:
    """What is left, and the update's slope in each step's gradient, (o, p) each."""
    sizes = list(recipe.sizes)
    gradients = [e @ x for e, x in zip(errors.split(sizes, 1), inputs.split(sizes))]
    total, back = linearised(recipe, gradients, softening)
    return moved - total, back(torch.ones_like(total))


def _squares(slopes: Sequence[Tensor]) -> Tensor:
    """Of the slopes, their sum over the steps."""
    return torch.stack([s.square() for s in slopes]).sum(0)


def _variance(rest: Tensor, slopes: Sequence[Tensor], precision: Tensor | None, doubt: float | None = None) -> Tensor:
    if precision is None:
        own = rest.square().mean(1, keepdim=True)
        return own.clamp_min(0.1 * float(own.median())).expand_as(rest)
    squares = _squares(slopes)
    if doubt is None:
        doubt = float((rest.abs() / squares.sqrt().clamp_min(1e-300)).median())  # of a gradient
    return squares * doubt**2 + precision.square()


def _loss(rest: Tensor, variance: Tensor) -> Tensor:
    """Of Student's kind: squares of small rests, logarithms of large ones."""
    return torch.log1p(rest.square() / variance / FORGIVING)


def _direction(
    errors: Tensor,
    inputs: Tensor,
    slopes: Sequence[Tensor],
    weight: Tensor,
    rest: Tensor,
    sizes: list[int],
    damping: float,
    most: int,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """The damped step of Gauss and Newton: of errors (o, n) and inputs (n, p)."""
    of_errors = _blocks(slopes, weight, inputs, sizes)
    of_inputs = _blocks([s.T for s in slopes], weight.T, errors.T.contiguous(), sizes)
    ridge = damping * of_errors.diagonal(dim1=1, dim2=2), (damping * of_inputs.diagonal(dim1=1, dim2=2)).T
    solve_errors, solve_inputs = _solver(of_errors, damping), _solver(of_inputs, damping)
    parted = list(zip(slopes, errors.split(sizes, 1), inputs.split(sizes)))

    def transposed(values: Tensor) -> tuple[Tensor, Tensor]:
        own = [s * values for s, _, _ in parted]
        return (
            torch.cat([a @ x.T for a, (_, _, x) in zip(own, parted)], 1),
            torch.cat([e.T @ a for a, (_, e, _) in zip(own, parted)]),
        )

    def apart(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[: errors.numel()].view_as(errors), x[errors.numel() :].view_as(inputs)

    def squared(step: Tensor) -> Tensor:
        a, b = apart(step)
        steps = zip(parted, a.split(sizes, 1), b.split(sizes))
        there = torch.stack([s * (da @ x + e @ db) for (s, e, x), da, db in steps]).sum(0)
        back = transposed(weight * there)
        return _joined(back[0] + ridge[0] * a, back[1] + ridge[1] * b)

    def solved(x: Tensor) -> Tensor:
        a, b = apart(x)
        return _joined(solve_errors(a), solve_inputs(b.T).T)

    return apart(conjugate_gradients(squared, _joined(*transposed(weight * rest)), most, solved, tolerance))


def _joined(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a.flatten(), b.flatten()])


def _blocks(slopes: Sequence[Tensor], weight: Tensor, held: Tensor, sizes: list[int]) -> Tensor:
    """(m, n, n), each row's own part of the normal equations, given the other factor (n, p)."""
    some, found, parts = max(1, CHUNK // held.numel()), [], held.split(sizes)
    for at in range(0, len(weight), some):
        rows = slice(at, at + some)
        jacobian = torch.cat([s[rows, None] * h for s, h in zip(slopes, parts)], 1)
        jacobian = jacobian * weight[rows, None].sqrt()
        found.append(jacobian @ jacobian.mT)
    return torch.cat(found)


def _solver(blocks: Tensor, damping: float) -> Callable[[Tensor], Tensor]:
    """Right sides (m, n) -> the blocks' solutions. The blocks are written over."""
    diagonal = blocks.diagonal(dim1=1, dim2=2)
    diagonal += 2 * damping * diagonal + 1e-30
    factors = torch.linalg.cholesky_ex(blocks)[0]
    return lambda right: torch.cholesky_solve(right[..., None], factors)[..., 0]


def conjugate_gradients(matrix: Operator, right: Tensor, steps: int, likely: Operator, solved: float) -> Tensor:
    """x with matrix(x) = right, by preconditioned conjugate gradients from 0: what is likely first.

    Args:
        matrix: symmetric, at least 0. right: flat. steps: at most. likely: a covariance, by which steps are drawn.
        solved: share of the right side's norm that may be left over.
    """
    x, left = torch.zeros_like(right), right.clone()
    drawn = likely(left)
    along, size = drawn.clone(), torch.dot(left, drawn)
    end = size * solved**2
    for _ in range(steps):
        if not size > end:
            break
        moved = matrix(along)
        step = (size / torch.dot(along, moved)).item()
        x.add_(along, alpha=step)
        left.sub_(moved, alpha=step)
        drawn = likely(left)
        before, size = size, torch.dot(left, drawn)
        along.mul_(size / before).add_(drawn)
    return x
