"""Each step's gradient of a linear first layer out of the update of several steps of Adam or RMSprop.

A weight moves by a known function of its own gradients at the steps, and a step's gradients are a matrix of low rank,
(errors of its batch) × (its images, 1). Thin factors of all steps are fitted to the update; that asks for no label and
no order of batches, and the update is a thousand times as many numbers as the factors.

Adam's function does not change if a weight's gradients are all multiplied by one number. So every neuron's scale is
free, *and every pixel's*: multiplied by any factor at all images of all steps alike, the pixel gives the same update.
Neurons' scales do not matter; pixels' are fixed by images being natural (`spectrum.py`). That is why a fit is begun
with that prior, and why, where it is made exact without, the pixels' scales are held where the prior left them.

Begun by L-BFGS, some neurons and all steps at once. Then each neuron by itself, which is a small least-squares problem
given the images (Levenberg and Marquardt, several starts), and in turns each pixel by itself given the neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ...defenses.randomness import generator
from .local_training import Recipe, Walk, linearised
from .spectrum import Spectrum

NEURONS, ITERATIONS, RIDGE = (384, 640), 120, 1e-7  # of the beginning: at least and at most; of each softening
SOFTENINGS = (3.0, 1.0, 0.3)
STARTS = (3, 1)  # of each neuron: in the first cycle, in the others
DESCENT = ((1.0, 8), (0.3, 6), (0.1, 6), (0.03, 6))  # of a start: softening of gradients of size 1, steps
CYCLES, DONE = 8, 1e-3  # at most; of the update, mean square, what is left of the median neuron
TURNS, LAST = (0.1, 0.1, 0.05, 0.03, 0.03, 0.03, 0.02, 0.01), (0.003, *(0.001,) * 6)  # of a cycle; softenings
AGAIN = (*(0.3,) * 2, *(0.1,) * 4, *(0.03,) * 4, *(0.01,) * 4, *(0.003,) * 4, *(0.001,) * 6)  # of each further round
WRONG = 4.0  # times the median of what is left: neurons that count no more
PIXELS = 8  # for each image, and 300, drawn for a neuron's fit
CHUNK = 2**22  # numbers at once; four times as many, and giving memory back takes a third of the time


@dataclass(frozen=True, eq=False)
class StepFactors:
    """errors: (o, n) of every step, each neuron's up to one factor for all steps. inputs: (n, i + 1) of every step,
    [x | 1] mixed in an unknown way, and each pixel up to one factor for all steps. rest: (o,), mean square of what they
    leave of each neuron's update over lr.
    """

    recipe: Recipe
    errors: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    rest: Tensor

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
    tick: Callable[[], None] = lambda: None,
) -> Iterator[StepFactors]:
    """The factors behind a first layer's update; then, without end, what another round of annealing makes of them.

    A round may make them better or worse; the update that their images would have made tells which, see `by_step.py`.

    Args:
        update: (o, i + 1), of [W | b]. recipe: Adam or RMSprop, of several steps.
        mean, std: that images (n, *shape) are normalised by. shape: (channels, height, width), with i numbers.
        seed: of starts and draws. tick: called about `ticks` times.
    """
    unit, moved = replace(recipe, lr=1.0), update.float() / recipe.lr
    draw = generator(seed, "step factors", *moved.shape)
    some = min(len(moved), max(NEURONS[0], min(NEURONS[1], 16 * sum(recipe.sizes))))
    chosen = torch.randperm(len(moved), generator=draw)[:some]
    begun = _begun(moved[chosen], unit, mean, std, shape, draw, tick)
    inputs = torch.cat([torch.linalg.qr(x.T)[0].T * moved.shape[1] ** 0.5 for x in begun])
    errors, rest = torch.zeros(len(moved), len(inputs)), torch.full((len(moved),), torch.inf)
    for cycle in range(CYCLES):
        errors, rest = _neurons(moved, inputs, errors, unit, STARTS[min(cycle, 1)], draw)
        tick()
        for softening in TURNS:
            inputs, errors, rest = _in_turns(moved, inputs, errors, rest, unit, softening, draw)
            tick()
        if rest.median() < DONE * moved.square().mean():
            break
    softenings: Sequence[float] = LAST
    while True:
        for softening in softenings:
            inputs, errors, rest = _in_turns(moved, inputs, errors, rest, unit, softening, draw)
            tick()
        yield StepFactors(recipe, errors.split(recipe.sizes, 1), inputs.split(recipe.sizes), rest)
        errors, rest = _neurons(moved, inputs, errors, unit, 1, draw)
        tick()
        softenings = AGAIN


def ticks(rounds: int) -> int:
    """About how many there are, with three cycles."""
    return len(SOFTENINGS) + 3 * (1 + len(TURNS)) + len(LAST) + (rounds - 1) * (1 + len(AGAIN))


def operations(neurons: int, inputs: int, sizes: Sequence[int], rounds: int) -> int:
    """About how many it takes with three cycles: neurons o, inputs i + 1, images of each step."""
    n, pixels = sum(sizes), min(inputs, PIXELS * sum(sizes) + 300)
    begun = 6 * len(SOFTENINGS) * ITERATIONS * min(neurons, NEURONS[1]) * inputs * n
    starts = (STARTS[0] + 2 * STARTS[1] + rounds - 1) * sum(steps for _, steps in DESCENT) * pixels
    turns = 3 * (3 * len(TURNS) + len(LAST) + (rounds - 1) * len(AGAIN)) * (inputs + pixels)
    return begun + 2 * neurons * n**2 * (starts + turns)


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


def _in_turns(
    moved: Tensor, inputs: Tensor, errors: Tensor, rest: Tensor, recipe: Recipe, softening: float, draw: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs given the errors of neurons that fit, their pixels' scales as they were, then errors given the inputs."""
    good = (rest <= WRONG * rest.median()).nonzero()[:, 0]
    new = fitted_rows(moved[good].T, errors[good].T, inputs.T, recipe, softening, 3, 1e-3)[0].T
    new = new * ((inputs * new).sum(0) / new.square().sum(0).clamp_min(1e-12))
    inputs, errors = _orthonormal(new, errors, recipe.sizes)
    pixels = _drawn(inputs, draw)
    return inputs, *fitted_rows(moved[:, pixels], inputs[:, pixels], errors, recipe, softening, 3, 1e-3)


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
