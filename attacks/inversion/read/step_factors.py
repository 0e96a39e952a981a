"""Each step's gradient of a linear first layer out of the update of several steps of Adam or RMSprop.

A weight moves by a known function of its own gradients at the steps, and a step's gradients are a matrix of low rank,
(errors of its batch) × (its images, 1). Thin factors of all steps are fitted to the update; that asks for no label and
no order of batches, and the update is a thousand times as many numbers as the factors.

Begun by L-BFGS with natural images as prior (`spectrum.py`), some neurons and all steps at once. Then each neuron by
itself, which is a small least-squares problem given the images (Levenberg and Marquardt, several starts), and both
factors at once by Gauss and Newton's steps (`joint_factors.py`) while the softening falls.

But for its ε Adam's function does not change if a weight's gradients are all multiplied by one number. So every
neuron's scale is free, *and every pixel's*: multiplied by any factor at all images of all steps alike, the pixel gives
almost the same update. While the fit is softened, pixels' scales are held where the prior left them. **But ε = 10⁻⁸
tells them**: it takes ε/|g| of a step, 10⁻⁵ of it and much more wherever a gradient is small, while a float32 update
is told to about 10⁻⁶. Once the fit leaves no more than that, all gradients are known, scales and all: "sharp".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ....defenses.randomness import generator
from ..strategies.spectrum import Spectrum
from .joint_factors import SOFTENED, descended, left_over, rescaled, rows_descended, unsure_scales
from .local_training import Recipe, Walk, linearised

NEURONS, ITERATIONS, RIDGE = (384, 640), 120, 1e-7  # of the beginning: at least and at most; of each softening
SOFTENINGS, STEPPED = (3.0, 1.0, 0.3), 400  # STEPPED: operations that take as long as a number's step and derivative
STARTS = (3, 1)  # of each neuron: in the beginning, and of those that fit badly later
DESCENT = ((1.0, 8), (0.3, 6), (0.1, 6), (0.03, 6))  # of a start: softening of gradients of size 1, steps
FINER = ((0.01, 6), (0.003, 6), (0.001, 6))  # of a start, where a sharp fit is wanted
# Of the joint fit: softening, steps at most and the first damping; and of each further round.
PHASES = ((0.1, 6, 1e-3), (0.03, 6, 1e-3), (0.01, 10, 1e-4), (0.003, 10, 1e-5), (0.001, 10, 1e-5))
AGAIN = ((0.3, 4, 1e-3), *PHASES)
EXACT, TRIES = (24, 8), 3  # joint steps without softening, at first and after what fits badly was begun anew; tries
AFTER = 2  # joint steps after pixels' scales were looked for by themselves
CLOSE = 1e-3  # what is left of the median entry without softening, for softening to end
SHARP = 0.8  # of the precision, the median of what a sharp fit leaves
PRECISE = 1e-5  # of lr, the least precise update whose scales are looked for
SURE = 0.01  # of the median pixel's scale, its standard deviation
OWN_STEPS = 8  # of a row by itself, without softening
WRONG = 4.0  # times the median of what is left: neurons that count no more
PIXELS = 8  # for each image, and 300, drawn for a neuron's fit
CHUNK = 2**22  # numbers at once; four times as many, and giving memory back takes a third of the time


@dataclass(frozen=True, eq=False)
class StepFactors:
    """errors: (o, n) of every step, each neuron's up to one factor for all steps. inputs: (n, i + 1) of every step,
    [x | 1] mixed in an unknown way, and each pixel up to one factor for all steps. rest: (o,), mean square of what they
    leave of each neuron's update over lr. sharp: whether the update is explained to the precision that it is told to;
    then no factor of a neuron or a pixel is left open. unsure: (o,), about how far each neuron's gradients are off,
    root mean square; None where that is not known.
    """

    recipe: Recipe
    errors: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    rest: Tensor
    sharp: bool = False
    unsure: Tensor | None = None

    def gradients(self) -> list[Tensor]:
        """(o, i + 1) of every step."""
        return [e @ x for e, x in zip(self.errors, self.inputs)]

    def planes(self, start: Tensor) -> list[Tensor]:
        """[W | b] (o, i + 1) before every step, from that before the first."""
        walk, planes = Walk(self.recipe), [start]
        for gradient in self.gradients()[:-1]:
            planes.append(planes[-1] + walk.forward(gradient))
        return planes


def step_factors(
    update: Tensor,
    recipe: Recipe,
    mean: Tensor,
    std: Tensor,
    shape: tuple[int, ...],
    seed: int,
    precision: Tensor,
    size: float,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[StepFactors]:
    """The factors behind a first layer's update; then, until they are sharp, what another round of annealing makes.

    A round may make them better or worse; the update that their images would have made tells which, see `by_step.py`.

    Args:
        update: (o, i + 1), of [W | b]. recipe: Adam or RMSprop, of several steps.
        mean, std: that images (n, *shape) are normalised by. shape: (channels, height, width), with i numbers.
        seed: of starts and draws. precision: (o, i + 1), standard deviation of what the update is told to.
        size: about the root mean square of the first step's gradients, good to a small factor.
        tick: called about `ticks` times.
    """
    unit, moved = replace(recipe, lr=1.0), update.float() / recipe.lr
    draw = generator(seed, "step factors", *moved.shape)
    some = min(len(moved), max(NEURONS[0], min(NEURONS[1], 16 * sum(recipe.sizes))))
    chosen = torch.randperm(len(moved), generator=draw)[:some]
    begun = _begun(moved[chosen], unit, mean, std, shape, draw, tick)
    inputs = torch.cat([torch.linalg.qr(x.T)[0].T * moved.shape[1] ** 0.5 for x in begun])
    errors = torch.zeros(some, len(inputs))
    starts: int = STARTS[0]
    phases: Sequence[tuple[float, int, float]] = PHASES
    while True:
        errors, _ = _neurons(moved[chosen], inputs, errors, unit, starts, draw)
        tick()
        for phase in phases:
            inputs, errors = _jointly(moved[chosen], inputs, errors, unit, phase, draw)
            tick()
            if left_over(moved[chosen], errors, inputs, unit).abs().median() < CLOSE:
                break
        exact = precision.double() / recipe.lr
        if exact.median() < PRECISE:
            found = _sharpened(update.double() / recipe.lr, chosen, errors, inputs, unit, exact, size, draw)
            tick()
            if found is not None:
                yield replace(found, recipe=recipe)
                return
        every = torch.zeros(len(moved), len(inputs))
        every[chosen] = errors
        every, rest = _neurons(moved, inputs, every, unit, STARTS[1], draw)
        yield StepFactors(recipe, every.split(recipe.sizes, 1), inputs.split(recipe.sizes), rest)
        starts, phases = STARTS[1], AGAIN


def ticks(rounds: int) -> int:
    """About how many there are."""
    return len(SOFTENINGS) + 2 + len(PHASES) + (rounds - 1) * (2 + len(AGAIN))


def operations(neurons: int, inputs: int, sizes: Sequence[int], rounds: int) -> int:
    """About how many it takes: neurons o, inputs i + 1, images of each step."""
    n, pixels, some = sum(sizes), min(inputs, PIXELS * sum(sizes) + 300), min(neurons, NEURONS[1])
    begun = len(SOFTENINGS) * ITERATIONS * some * inputs * (6 * n + STEPPED * len(sizes))
    starts = (STARTS[0] + rounds) * sum(steps for _, steps in DESCENT) * some * pixels * n**2
    steps = sum(phase[1] for phase in (*PHASES, *(rounds - 1) * AGAIN)) + rounds * (EXACT[0] + TRIES * EXACT[1])
    return begun + 2 * starts + steps * some * inputs * (4 * n**2 + 8 * SOFTENED[0] * n)


def _begun(
    moved: Tensor,
    recipe: Recipe,
    mean: Tensor,
    std: Tensor,
    shape: tuple[int, ...],
    draw: torch.Generator,
    tick: Callable[[], None],
) -> list[Tensor]:
    """Each step's inputs [x | 1] (n, i + 1), mixed, from some neurons' update over lr (o, i + 1)."""
    sizes, spectrum = recipe.sizes, Spectrum(shape)
    parts = [0.3 * torch.randn(n, *shape, generator=draw) for n in sizes]
    parts += [torch.randn(len(moved), n, generator=draw) for n in sizes]

    def split(flat: np.ndarray) -> tuple[list[Tensor], list[Tensor]]:
        pieces = torch.from_numpy(flat).float().split([p.numel() for p in parts])
        shaped = [piece.view_as(p) for piece, p in zip(pieces, parts)]
        return shaped[: len(sizes)], shaped[len(sizes) :]

    def inputs_of(coefficients: Sequence[Tensor]) -> list[Tensor]:
        seen = [((spectrum.images(c) - mean) / std).flatten(1) for c in coefficients]
        return [torch.cat([x, torch.ones(len(x), 1)], 1) for x in seen]

    def objective(flat: np.ndarray, softening: float) -> tuple[float, np.ndarray]:
        coefficients, errors = split(flat)
        inputs = inputs_of(coefficients)
        total, derivatives = linearised(recipe, [e @ x for e, x in zip(errors, inputs)], softening)
        rest = total - moved
        slopes = derivatives(2 * rest / rest.numel())
        value = rest.square().mean() + RIDGE * sum(c.square().sum() for c in coefficients)
        of_images = [
            spectrum.back((e.T @ s)[:, :-1].view(-1, *shape) / std) + 2 * RIDGE * c
            for c, e, s in zip(coefficients, errors, slopes)
        ]
        slope = of_images + [s @ x.T for s, x in zip(slopes, inputs)]
        return value.item(), torch.cat([g.flatten() for g in slope]).double().numpy()

    flat = torch.cat([p.flatten() for p in parts]).double().numpy()
    for softening in SOFTENINGS:
        flat = minimize(objective, flat, (softening,), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS}).x
        tick()
    return inputs_of(split(flat)[0])


def _neurons(
    moved: Tensor, inputs: Tensor, errors: Tensor, recipe: Recipe, starts: int, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Every neuron's errors (o, n) and what they leave (o,), the best of those so far and of several starts."""
    pixels = _drawn(inputs, draw)
    last = DESCENT[-1][0]
    best, least = fitted_rows(moved[:, pixels], inputs[:, pixels], errors, recipe, last, 0)
    for _ in range(starts):
        tried = torch.randn(best.shape, generator=draw)
        for softening, steps in DESCENT:
            tried = _of_size_one(tried, recipe.sizes)
            tried, rest = fitted_rows(moved[:, pixels], inputs[:, pixels], tried, recipe, softening, steps)
        better = rest < least
        best, least = torch.where(better[:, None], tried, best), torch.where(better, rest, least)
    return best, least


def _jointly(
    moved: Tensor,
    inputs: Tensor,
    errors: Tensor,
    recipe: Recipe,
    phase: tuple[float, int, float],
    draw: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Inputs, their pixels' scales as they were, and errors after joint steps; neurons that fit badly begin anew.

    phase: softening, steps and damping, as of `descended`.
    """
    softening = phase[0]
    rest = fitted_rows(moved, inputs, errors, recipe, softening, 0)[1]
    bad = (rest > WRONG * rest.median()).nonzero()[:, 0]
    if len(bad):
        errors = errors.clone()
        errors[bad] = _neurons(moved[bad], inputs, errors[bad], recipe, STARTS[1], draw)[0]
    errors, new = descended(moved, _of_size_one(errors, recipe.sizes), inputs, recipe, *phase)
    return _orthonormal(_scaled_as(inputs, new, recipe.sizes), errors, recipe.sizes)


def _scaled_as(old: Tensor, new: Tensor, sizes: Sequence[int]) -> Tensor:
    """New inputs (n, p), each pixel's scale the one that is nearest to the old inputs, whatever way these are mixed."""
    mixed = [
        torch.linalg.lstsq(x.double().T, before.double().T, driver="gelsd").solution.T @ x.double()
        for before, x in zip(old.split(list(sizes)), new.split(list(sizes)))
    ]
    alike = torch.cat(mixed)
    return new * ((old * alike).sum(0) / alike.square().sum(0).clamp_min(1e-12)).to(new)


def _sharpened(
    moved: Tensor,
    chosen: Tensor,
    errors: Tensor,
    inputs: Tensor,
    recipe: Recipe,
    precision: Tensor,
    size: float,
    draw: torch.Generator,
) -> StepFactors | None:
    """Factors that leave no more of the update over lr (o, i + 1) than its precision, of all neurons; None if those
    of the chosen ones (errors (m, n), inputs (n, i + 1)) do not lead there.
    """
    errors, inputs = _of_size_one(errors, recipe.sizes).double(), inputs.double()
    first = errors[:, : recipe.sizes[0]] @ inputs[: recipe.sizes[0]]
    errors = errors * (size / first.square().mean().sqrt())
    rest = _median_left(moved[chosen], errors, inputs, recipe, 1)
    used = (rest <= WRONG * rest.median()).nonzero()[:, 0]
    errors, chosen = errors[used], chosen[used]
    own, exact, least = moved[chosen], precision[chosen], SHARP * float(precision.median())
    for attempt in range(TRIES):
        for steps in (EXACT[min(attempt, 1)], AFTER):
            errors, inputs = descended(own, errors, inputs, recipe, 0.0, steps, 1e-6, exact)
            inputs = rescaled(own, errors, inputs, recipe, exact)
        rest = _median_left(own, errors, inputs, recipe, 0)
        bad = (rest > WRONG * rest.median()).nonzero()[:, 0]
        if rest.median() <= least and not len(bad):
            break
        if len(bad) <= len(rest) // 2:
            inputs = inputs.clone()
            inputs[:, bad] = _anew(own[:, bad].T, inputs[:, bad].T, errors.T, recipe, exact[:, bad].T, size, draw).T
    every = torch.zeros(len(moved), len(inputs), dtype=inputs.dtype)
    every[chosen] = errors
    rest = _median_left(moved, every, inputs, recipe, 1)
    if not rest[chosen].median() <= least or unsure_scales(own, errors, inputs, recipe, exact).median() > SURE:
        return None
    bad = (rest > WRONG * rest[chosen].median()).nonzero()[:, 0]
    every[bad] = _anew(moved[bad], every[bad], inputs, recipe, precision[bad], size, draw)
    rest = _median_left(moved, every, inputs, recipe, 1)
    return StepFactors(recipe, every.split(recipe.sizes, 1), inputs.split(recipe.sizes), rest.square(), sharp=True)


def _median_left(moved: Tensor, errors: Tensor, inputs: Tensor, recipe: Recipe, side: int) -> Tensor:
    """The median of what is left, of each neuron (side 1) or pixel (side 0)."""
    return left_over(moved, errors, inputs, recipe).abs().median(side)[0]


def _anew(
    moved: Tensor, rows: Tensor, held: Tensor, recipe: Recipe, precision: Tensor, size: float, draw: torch.Generator
) -> Tensor:
    """Rows (m, n) of one factor given the other (n, p): as they are, or from a new start, whichever leaves less."""
    if not len(rows):
        return rows
    held = held.contiguous()
    picked, unit = _drawn(held, draw), float(held.square().mean().sqrt())
    part, some = moved[:, picked].float(), (held[:, picked] / unit).float()
    tried = torch.randn(rows.shape, generator=draw)
    for softening, steps in (*DESCENT, *FINER):
        tried = _of_size_one(tried, recipe.sizes)
        tried, _ = fitted_rows(part, some, tried, recipe, softening, steps)
    tried = _of_size_one(tried, recipe.sizes).double() * (size / unit)
    tried = rows_descended(moved, tried, held, recipe, precision, OWN_STEPS)
    better = _median_left(moved, tried, held, recipe, 1) < _median_left(moved, rows, held, recipe, 1)
    return torch.where(better[:, None], tried, rows)


def fitted_rows(
    moved: Tensor, factors: Tensor, rows: Tensor, recipe: Recipe, softening: float, steps: int, damping: float = 1e-2
) -> tuple[Tensor, Tensor]:
    """Each row of the other factors by itself, by Levenberg and Marquardt's steps; and what it leaves, mean square.

    Args:
        moved: (m, p), the update over lr. factors: (n, p), the ones held, the steps' one after the other.
        rows: (m, n), where to begin. recipe: with lr = 1. softening: of Adam's ε. steps: how many.
        damping: of the first step, over the mean square of the derivatives.
    """
    n, p = factors.shape
    found = [
        _marquardt(part, factors, begin, recipe, softening, steps, damping)
        for part, begin in zip(moved.split(max(1, CHUNK // (n * p))), rows.split(max(1, CHUNK // (n * p))))
    ]
    return torch.cat([f[0] for f in found]), torch.cat([f[1] for f in found])


def _marquardt(
    moved: Tensor, factors: Tensor, rows: Tensor, recipe: Recipe, softening: float, steps: int, first: float
) -> tuple[Tensor, Tensor]:
    held = factors.split(recipe.sizes)

    def at(rows: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        gradients = [r @ f for r, f in zip(rows.split(recipe.sizes, 1), held)]
        total, back = linearised(recipe, gradients, softening)
        rest = moved - total
        return rest, back(torch.ones_like(total)), rest.square().mean(1)

    damping = torch.full((len(rows),), first)
    eye = torch.eye(len(factors))
    rest, slopes, value = at(rows)
    for _ in range(steps):
        jacobian = torch.cat([s[:, None] * f for s, f in zip(slopes, held)], 1)
        squares, toward = jacobian @ jacobian.mT, (jacobian @ rest[..., None])[..., 0]
        ridge = damping * squares.diagonal(dim1=1, dim2=2).mean(1) + 1e-12
        tried = rows + torch.linalg.solve(squares + ridge[:, None, None] * eye, toward)
        new_rest, new_slopes, new_value = at(tried)
        better = new_value < value
        rows, rest = torch.where(better[:, None], tried, rows), torch.where(better[:, None], new_rest, rest)
        slopes = [torch.where(better[:, None], new, old) for new, old in zip(new_slopes, slopes)]
        value = torch.where(better, new_value, value)
        damping = torch.where(better, damping / 3, damping * 4).clamp(1e-7, 1e3)
    return rows, value


def _orthonormal(inputs: Tensor, errors: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The same products, each step's inputs orthogonal and of entries of about 1, and the errors of size 1."""
    turned, mixed = [], []
    for x, e in zip(inputs.split(list(sizes)), errors.split(list(sizes), 1)):
        basis, mix = torch.linalg.qr(x.T)
        turned.append(basis.T * x.shape[1] ** 0.5)
        mixed.append(e @ mix.T / x.shape[1] ** 0.5)
    return torch.cat(turned), _of_size_one(torch.cat(mixed, 1), sizes)


def _of_size_one(errors: Tensor, sizes: Sequence[int]) -> Tensor:
    """Scaled so that a step's gradients are about 1, each neuron's own."""
    per_step = sum(sizes) / len(sizes)
    return errors / (errors.square().mean(1, keepdim=True).sqrt() * per_step**0.5).clamp_min(1e-20)


def _drawn(inputs: Tensor, draw: torch.Generator) -> Tensor:
    """Pixels for the neurons' fit, all where that are few."""
    return torch.randperm(inputs.shape[1], generator=draw)[: PIXELS * len(inputs) + 300]
