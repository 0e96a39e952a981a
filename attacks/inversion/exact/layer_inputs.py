"""What a convolution is given, out of its outputs and its gradient: the linear equations of `peel.py`, float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from ..read.conjugate_gradients import Operator, conjugate_gradients
from ..strategies.denoiser import cosine_waves

RIGHT = 0.05  # share of a layer's outputs that may be left over
SEEN = 5e-6  # share of a layer's gradient: where more is left over, slopes are wrong
UNSURE = (0, 30, 0, 300, 0)  # how many slopes are unknowns, round by round
BESIDE = (1.0, 3.0)  # what a layer's gradient counts beside its outputs, each relative to its norm, where these are
# fewer than its inputs, and where not; ours, on seeds 0 to 2
BELOW, DOUBTING = 7000, 600  # steps of conjugate gradients at most
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


class Equations:
    """A layer's two equations at inputs u, and slopes of which some may be doubted: W u + b = z, Σ_i δ_i ⋆ u_i = G.

    Args:
        layer: one. u: (n, …). z: (n, …), its outputs before the activation. doubted: the slopes.
        weights: what the square of each equation's rest counts.
    """

    def __init__(self, layer: LeakyLayer, u: Tensor, z: Tensor, doubted: Doubted, weights: tuple[float, float]) -> None:
        self.layer, self.u, self.z, self.doubted, self.weights = layer, u, z, doubted, weights
        self.errors = doubted.errors

    def left(self) -> tuple[Tensor, Tensor]:
        """What each leaves over."""
        return self.z - self.layer.outputs(self.u), self.layer.gradient - self.layer.product(self.errors, self.u)

    def moved(self, v: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """How both left sides move as u moves by v and the doubted slopes by d."""
        gradient = self.layer.product(self.errors, v)
        if self.doubted.some:
            gradient = gradient + self.layer.product(self.doubted.spread(d), self.u)
        return self.layer.of(v), gradient

    def pulled(self, of: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The transpose of `moved`, weighed."""
        layer, of, gradient = self.layer, of * self.weights[0], gradient * self.weights[1]
        wanted = layer.back(of, self.u) + layer.back(self.errors, self.u, gradient)
        some = self.doubted.some
        return wanted, self.doubted.gathered(layer.of(self.u, gradient)) if some else wanted.new_empty(0)

    def step(
        self, steps: int, forth: Operator, back: Operator, likely: Operator | None = None
    ) -> tuple[Tensor, Tensor]:
        """The step that both ask for: of what u is made of, flat, and of the doubted slopes.

        Args:
            steps: of conjugate gradients. forth: how u moves with what it is made of. back: its transpose.
            likely: as of `conjugate_gradients`, of what u is made of.
        """

        def turned(of: Tensor, gradient: Tensor) -> Tensor:
            wanted, slopes = self.pulled(of, gradient)
            return torch.cat([back(wanted).flatten(), slopes])

        right = turned(*self.left())
        numbers = len(right) - len(self.doubted.where)

        def normal(x: Tensor) -> Tensor:
            return turned(*self.moved(forth(x[:numbers]), x[numbers:]))

        def drawn(x: Tensor) -> Tensor:
            return x if likely is None else torch.cat([likely(x[:numbers]), x[numbers:]])

        x = conjugate_gradients(normal, right, steps, None if likely is None else drawn)
        return x[:numbers], x[numbers:]


def inputs_of_layer(
    layer: LeakyLayer, outputs: Tensor, pulled: Tensor, start: Tensor, beside: float | None = None
) -> tuple[Tensor, Tensor] | None:
    """A layer's inputs u and its errors δ; None where no inputs have such outputs.

    Args:
        layer: one. outputs: (n, …), after its activation. pulled: the errors there. start: where u begins.
        beside: what the gradient counts beside the outputs; `BESIDE` says it where this does not.
    """
    doubted, left = Doubted(layer, outputs, pulled, 0), 1.0
    z = outputs / doubted.slopes
    beside = BESIDE[z.numel() >= start.numel()] if beside is None else beside
    weights = float(z.norm()) ** -2, (beside / float(layer.gradient.norm())) ** 2
    u, changed = start, True

    def shaped(x: Tensor) -> Tensor:
        return x.view_as(start)

    for many in UNSURE:
        if many and left < SEEN:
            break
        if not many and not changed:
            continue
        doubted.doubt(many)
        asked = Equations(layer, u, z, doubted, weights)
        moved, slopes = asked.step(DOUBTING if many else BELOW, shaped, torch.flatten)
        u = u + shaped(moved)
        changed = doubted.settle(slopes)
        left = float((layer.product(doubted.errors, u) - layer.gradient).norm() / layer.gradient.norm())
    if not float((layer.outputs(u) - z).norm() / z.norm()) < RIGHT:
        return None
    return u, doubted.errors


def smooth(shape: Sequence[int], like: Tensor) -> Operator:
    """The covariance of images (…, *shape) whose waves are the less likely the shorter they are, of flat ones."""
    rows, columns = (cosine_waves(side).to(like) for side in shape[1:])
    square = torch.arange(shape[1]).to(like)[:, None] ** 2 + torch.arange(shape[2]).to(like)[None] ** 2
    weights = (square + CORNER**2) ** -0.5
    weights = weights / weights.mean()

    def likely(x: Tensor) -> Tensor:
        images = x.view(-1, *shape)
        return (rows.T @ (weights * (rows @ images @ columns.T)) @ columns).flatten()

    return likely
