"""What a convolution is given, out of its outputs and its gradient: the linear equations of `peel.py`, float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import pi, prod

import torch
from torch import Tensor
from torch.nn import functional as F

Operator = Callable[[Tensor], Tensor]

RIGHT = 0.05  # share of a layer's outputs that may be left over
SEEN = 5e-6  # share of a layer's gradient: where more is left over, slopes are wrong
UNSURE = (0, 30, 0, 300, 0)  # how many slopes are unknowns, round by round
BESIDE = (1.0, 3.0)  # what a layer's gradient counts beside its outputs, each relative to its norm, where these are
# fewer than its inputs, and where not; ours, on seeds 0 to 2
BELOW, DOUBTING = 7000, 600  # steps of conjugate gradients at most
SOLVED = 1e-11  # share of the right side's norm
CORNER = 4.0  # of an image's cosine transform: slower waves are as likely as these


@dataclass(frozen=True, eq=False)
class LeakyLayer:
    """A convolution at known weights with its gradient, and the slope of its activation on the left side, in (0, 1)."""

    weight: Tensor
    bias: Tensor
    gradient: Tensor
    of_bias: Tensor
    stride: tuple[int, int]
    padding: tuple[int, int]
    left: float

    def of(self, u: Tensor, weight: Tensor | None = None) -> Tensor:
        """W u, without the bias."""
        return F.conv2d(u, self.weight if weight is None else weight, None, self.stride, self.padding)

    def outputs(self, u: Tensor) -> Tensor:
        """z = W u + b."""
        return self.of(u) + self.bias[:, None, None]

    def back(self, errors: Tensor, like: Tensor, weight: Tensor | None = None) -> Tensor:
        """Wᵀ errors, of the shape of `like`."""
        return self._backward(errors, like, self.weight if weight is None else weight, first=True)

    def product(self, errors: Tensor, u: Tensor) -> Tensor:
        """Σ_i δ_i ⋆ u_i, the gradient of W."""
        return self._backward(errors, u, self.weight, first=False)

    def _backward(self, errors: Tensor, u: Tensor, weight: Tensor, first: bool) -> Tensor:
        asked, zeros = [first, not first, False], [0, 0]
        made = torch.ops.aten.convolution_backward(
            errors, u, weight, None, self.stride, self.padding, [1, 1], False, zeros, 1, asked
        )
        return made[0] if first else made[1]

    def slopes(self, z: Tensor) -> Tensor:
        """Of the activation at z, or at its value there."""
        return torch.where(z > 0, 1.0, self.left).to(z)

    def matrix(self, shape: Sequence[int]) -> Tensor:
        """W as (outputs, inputs) of one image's inputs of `shape`."""
        numbers = prod(shape)
        return self.of(torch.eye(numbers).to(self.weight).view(numbers, *shape)).flatten(1).T


def conjugate_gradients(
    matrix: Operator, right: Tensor, steps: int, likely: Operator | None = None, solved: float = SOLVED
) -> Tensor:
    """x with matrix(x) = right, from 0: what is likely first.

    Args:
        matrix: symmetric, at least 0. right: flat. steps: at most. likely: a covariance, by which steps are drawn; None
            for all alike. solved: share of the right side's norm that may be left over.
    """
    x, left = torch.zeros_like(right), right.clone()
    drawn = left if likely is None else likely(left)
    along, size = drawn.clone(), torch.dot(left, drawn)
    end = size * solved**2
    for _ in range(steps):
        if not size > end:
            break
        moved = matrix(along)
        step = size / torch.dot(along, moved)
        x.add_(along, alpha=step.item())
        left.sub_(moved, alpha=step.item())
        drawn = left if likely is None else likely(left)
        before, size = size, torch.dot(left, drawn)
        along.mul_(size / before).add_(drawn)
    return x


class Doubted:
    """The outputs nearest 0, whose slopes nobody is sure of: unknowns d beside a layer's inputs, in δ = (s + d) e.

    outputs: after the activation. pulled: e, the errors before the slope. many: how many are doubted.
    """

    def __init__(self, layer: LeakyLayer, outputs: Tensor, pulled: Tensor, many: int) -> None:
        self.layer, self.pulled = layer, pulled
        self.slopes, self.least = layer.slopes(outputs), outputs.flatten().abs().argsort()
        self.doubt(many)

    def doubt(self, many: int) -> None:
        """Takes so many slopes for unknowns."""
        self.where = self.least[:many]
        self.own = self.pulled.flatten()[self.where]

    @property
    def some(self) -> bool:
        """Whether any are."""
        return len(self.where) > 0

    @property
    def errors(self) -> Tensor:
        """δ."""
        return self.slopes * self.pulled

    def spread(self, d: Tensor) -> Tensor:
        """d e at its outputs, zeros elsewhere."""
        errors = torch.zeros_like(self.pulled)
        errors.view(-1)[self.where] = d * self.own
        return errors

    def gathered(self, errors: Tensor) -> Tensor:
        """The transpose of `spread`."""
        return errors.flatten()[self.where] * self.own

    def settle(self, d: Tensor) -> bool:
        """Takes for each slope the nearer one of the two that there are; whether any is another one then."""
        left = self.layer.left
        found = self.slopes.flatten()[self.where] + d
        slopes = self.slopes.clone()
        slopes.view(-1)[self.where] = torch.where(found > (1 + left) / 2, 1.0, left).to(slopes)
        changed = not torch.equal(slopes, self.slopes)
        self.slopes = slopes
        return changed


def inputs_of_layer(
    layer: LeakyLayer, outputs: Tensor, pulled: Tensor, start: Tensor, beside: float | None = None
) -> tuple[Tensor, Tensor] | None:
    """A layer's inputs u and its errors δ; None where no inputs have such outputs.

    Args:
        layer: one. outputs: (n, …), after its activation. pulled: the errors there. start: where u begins.
        beside: what the gradient counts beside the outputs; `BESIDE` says it where this does not.
    """
    doubted, left, numbers = Doubted(layer, outputs, pulled, 0), 1.0, start.numel()
    z = outputs / doubted.slopes
    linear = z - layer.bias[:, None, None]
    beside = BESIDE[z.numel() >= numbers] if beside is None else beside
    by_outputs, by_gradient = float(z.norm()) ** -2, (beside / float(layer.gradient.norm())) ** 2
    u, changed = start, True
    for many in UNSURE:
        if many and left < SEEN:
            break
        if not many and not changed:
            continue
        doubted.doubt(many)
        errors, here = doubted.errors, u

        def turned(of: Tensor, gradient: Tensor, errors: Tensor = errors, here: Tensor = here) -> Tensor:
            wanted = layer.back(of * by_outputs, here) + layer.back(errors, here, gradient * by_gradient)
            slopes = doubted.gathered(layer.of(here, gradient * by_gradient)) if doubted.some else wanted.new_empty(0)
            return torch.cat([wanted.flatten(), slopes])

        def normal(x: Tensor, errors: Tensor = errors, here: Tensor = here) -> Tensor:
            v = x[:numbers].view_as(here)
            gradient = layer.product(errors, v)
            if doubted.some:
                gradient = gradient + layer.product(doubted.spread(x[numbers:]), here)
            return turned(layer.of(v), gradient)

        right = turned(linear - layer.of(u), layer.gradient - layer.product(errors, u))
        x = conjugate_gradients(normal, right, DOUBTING if many else BELOW)
        u = u + x[:numbers].view_as(u)
        changed = doubted.settle(x[numbers:])
        left = float((layer.product(doubted.errors, u) - layer.gradient).norm() / layer.gradient.norm())
    if not float((layer.of(u) - linear).norm() / z.norm()) < RIGHT:
        return None
    return u, doubted.errors


@cache
def _cosines(side: int) -> Tensor:
    """(side, side), orthonormal: the cosine transform."""
    k, place = torch.arange(side).double()[:, None], torch.arange(side).double()[None]
    waves = (2 / side) ** 0.5 * torch.cos(pi * (place + 0.5) * k / side)
    waves[0] /= 2**0.5
    return waves


def smooth(shape: Sequence[int], like: Tensor) -> Operator:
    """The covariance of images (…, *shape) whose waves are the less likely the shorter they are, of flat ones."""
    rows, columns = (_cosines(side).to(like) for side in shape[1:])
    square = torch.arange(shape[1]).to(like)[:, None] ** 2 + torch.arange(shape[2]).to(like)[None] ** 2
    weights = (square + CORNER**2) ** -0.5
    weights = weights / weights.mean()

    def likely(x: Tensor) -> Tensor:
        images = x.view(-1, *shape)
        return (rows.T @ (weights * (rows @ images @ columns.T)) @ columns).flatten()

    return likely
