"""Minimise an attack's objective over images in [0, 1]."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from .prior import into_box, total_variation

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]  # images (T, n, c, h, w) -> value (T,), gradient like the images
Tick = Callable[[], None]  # called after every iteration

BETAS, EPS = (0.9, 0.999), 1e-8


def with_prior(objective: Objective, tv: Tensor) -> Objective:
    """`objective` plus `tv` (T,) times each candidate's total variation."""
    if not tv.any():
        return objective
    weight = tv.view(-1, 1, 1, 1, 1)

    def total(images: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = objective(images)
        variation, slope = total_variation(images)
        return value + tv * variation, gradient.addcmul_(slope, weight)

    return total


def with_distances(
    objective: Objective, distances: Sequence[Callable[[Tensor], Tensor] | None], weight: float = 1.0
) -> Objective:
    """`objective` plus `weight` times each candidate's own distance, whose gradient autograd finds.

    Args:
        objective: of T candidates. distances: of each, of its images (n, *shape) a number; None for one without.
        weight: at least 0.
    """
    if weight == 0 or not any(distances):
        return objective

    def total(images: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = objective(images)
        for t, distance in enumerate(distances):
            if distance is not None:
                x = images[t].detach().requires_grad_()
                with torch.enable_grad():
                    far = distance(x)
                    (slope,) = torch.autograd.grad(far, x)
                value[t] += weight * far.detach()
                gradient[t] += weight * slope
        return value, gradient

    return total


def milestones(iterations: int) -> tuple[int, int, int]:
    """The iterations after which the step size falls tenfold: 3/8, 5/8 and 7/8 of all.

    Geiping et al.'s code takes them as // 2.667, // 1.6 and // 1.142.

    >>> milestones(4800)
    (1799, 2999, 4203)
    """
    return int(iterations // 2.667), int(iterations // 1.6), int(iterations // 1.142)


def step_size(lr: float, iteration: int, iterations: int) -> float:
    """The step size of iteration 0, 1, …

    >>> [step_size(1.0, i, 8) for i in (0, 1, 2, 4, 5, 6, 7)]
    [1.0, 1.0, 0.1, 0.01, 0.01, 0.01, 0.001]
    """
    return lr * float(f"1e-{bisect_right(milestones(iterations), iteration)}")


@dataclass(eq=False)
class Descent:
    """T candidates on Adam's way. images, mean, square (T, n, c, h, w): where they are, and Adam's running means. best,
    lowest: the images with the lowest value met, and that value (T,). alive: (T,), whether all was finite so far.
    """

    images: Tensor
    mean: Tensor
    square: Tensor
    best: Tensor
    lowest: Tensor
    alive: Tensor

    @classmethod
    def begin(cls, start: Tensor) -> Descent:
        """At the images start (T, n, c, h, w)."""
        images = into_box(start.clone())
        zeros, values = torch.zeros_like(images), images.new_full((len(images),), float("inf"))
        return cls(images, zeros, zeros.clone(), images.clone(), values, torch.ones_like(values, dtype=torch.bool))

    def go(
        self, objective: Objective, iterations: int, lr: float, signed: bool = True, tick: Tick | None = None
    ) -> None:
        """Steps as of `adam`; the last images are evaluated too.

        Args:
            objective, iterations, lr, signed, tick: as of `adam`.
        """
        for iteration in range(iterations + 1):
            value, gradient = objective(self.images)
            self.alive &= value.isfinite() & gradient.flatten(1).sum(1).isfinite()
            better = self.alive & (value < self.lowest)
            self.lowest = torch.where(better, value, self.lowest)
            self.best = torch.where(better.view(-1, 1, 1, 1, 1), self.images, self.best)
            if iteration == iterations:
                break
            if not self.alive.all():  # all that a GPU is waited for in an iteration
                if not self.alive.any():
                    break
                gradient[~self.alive] = 0
            if signed:
                gradient.sign_()
            self.mean.lerp_(gradient, 1 - BETAS[0])
            self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            scale = (self.square / (1 - BETAS[1] ** (iteration + 1))).sqrt_().add_(EPS)
            size = step_size(lr, iteration, iterations) / (1 - BETAS[0] ** (iteration + 1))
            self.images.addcdiv_(self.mean, scale, value=-size)
            into_box(self.images)
            if tick is not None:
                tick()


def adam(
    objective: Objective, start: Tensor, iterations: int, lr: float, signed: bool = True, tick: Tick | None = None
) -> tuple[Tensor, Tensor]:
    """Adam in the box, for T candidates at once: (the images of each with the lowest value met, that value (T,)).

    Every value is kept with the images it was computed at; the last images are evaluated too. A candidate whose value
    or gradient is not finite stops there with the best it had: its start and an infinite value if it never had one.

    Args:
        objective: see `Objective`. start: (T, n, c, h, w), where the images begin.
        iterations: steps. lr: the first step size, of pixels in [0, 1]; it falls at `milestones`.
        signed: the gradient's sign goes into Adam in its place, prior included (Geiping et al. 2020, arXiv:2003.14053,
            section 4).
        tick: called once an iteration.
    """
    descent = Descent.begin(start)
    descent.go(objective, iterations, lr, signed, tick)
    return descent.best, descent.lowest


class _NotFinite(Exception):
    """Ends a candidate's line search."""


def lbfgs(objective: Objective, start: Tensor, iterations: int, tick: Tick | None = None) -> tuple[Tensor, Tensor]:
    """L-BFGS-B in the box (scipy), one candidate after the other; returns what `adam` returns.

    It needs smooth objectives (sigmoid networks, no total variation) and precise ones: give float64 images.
    `objective` takes one candidate at a time, images (1, n, c, h, w).
    """
    results = [_lbfgs_one(objective, images[None], iterations, tick) for images in start]
    return torch.cat([r[0] for r in results]), torch.cat([r[1] for r in results])


def _lbfgs_one(objective: Objective, start: Tensor, iterations: int, tick: Tick | None) -> tuple[Tensor, Tensor]:
    best, lowest = into_box(start.clone()), start.new_full((1,), float("inf"), device="cpu")

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, lowest
        images = torch.from_numpy(flat.copy()).to(start).view_as(start)
        value, gradient = (part.cpu() for part in objective(images))  # where scipy is
        if not (value.isfinite().all() and gradient.isfinite().all()):
            raise _NotFinite
        if value < lowest:
            best, lowest = images, value.clone()
        return value.item(), gradient.flatten().double().numpy()

    flat = best.flatten().double().cpu().numpy()
    options = {"maxiter": iterations, "maxfun": 20 * iterations, "ftol": 0.0, "gtol": 0.0, "maxcor": 100}
    with suppress(_NotFinite):
        minimize(
            evaluate,
            flat,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * len(flat),
            options=options,
            callback=None if tick is None else lambda _: tick(),
        )
    return best, lowest.to(start.device)
