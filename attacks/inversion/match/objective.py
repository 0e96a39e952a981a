"""How far a candidate's gradient is from the observed one, as a function of inner products alone.

With g the candidate's gradient, g* the observed one, and k running over parameter tensors, every objective here but
"absolute" depends on g only through ⟨g_k, g*_k⟩, ‖g_k‖² and (for an L1 clip) ‖g_k‖₁. So its derivative is one direction
in parameter space, v_k = p_k g*_k + 2 q_k g_k (+ r_k sign g_k), and its gradient with respect to the images is
∇_x ⟨∇_θ L(x), v⟩ with v held fixed (Pearlmutter 1994). `ghost.py` and `double_backward.py` compute that in two ways.
"absolute" has such a direction too, but of the signs of all differences, which only `double_backward.py` computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..read.target import Target
from ..settings import OBJECTIVES, Name

ZERO = 1e-30  # a squared norm below this counts as zero, so that a vanishing gradient has cosine 0 rather than 0/0
ROUNDING = 64  # a tensor's norm up to so many times eps of the whole gradient's is what rounding left of 0


@dataclass(frozen=True, eq=False)
class Products:
    """Inner products of T candidates' gradients with their targets, tensor by tensor: each (T, tensors).

    dot: ⟨g_k, g*_k⟩. square: ‖g_k‖². target: ‖g*_k‖². absolute: ‖g_k‖₁, None where no L1 clip needs it.
    """

    dot: Tensor
    square: Tensor
    target: Tensor
    absolute: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Matching:
    """An objective for T candidates whose targets went through the same kind of clip.

    name: cosine: 1 − ⟨g, g*⟩/(‖g‖‖g*‖) over all parameters together, in [0, 2] (Geiping et al. 2020, arXiv:2003.14053,
      eq. 4). euclidean-naive: ‖g − g*‖²/‖g*‖² (Zhu et al. 2019, arXiv:1906.08935, eq. 3, there not divided). euclidean:
      ‖clip(g) − g*‖²/‖g*‖², clip(g) = g·min(1, C/‖g‖) flat or for every tensor by itself, what the client did with its
      own gradient. Where the target's scale is unknown, min over s ≥ 0 of ‖s·g − g*‖²/‖g*‖² in closed form instead: 1 −
      ⟨g, g*⟩²/(‖g‖²‖g*‖²), with `per_layer` the same tensor by tensor, weighted by ‖g*_k‖². Of a gradient that points
      away it is 1 + ⟨g, g*⟩²/(‖g‖²‖g*‖²): the minimum is 1 of all of these, and a start among them would find no way.
      absolute: ‖clip(g) − g*‖₁/‖g*‖₁, the likelihood's under Laplace noise; it wants the zeros that a ReLU leaves in a
      gradient. Where the scale is unknown, clip(g) = g·‖g*‖/‖g‖.
    Dividing by ‖g*‖² makes the Euclidean objectives pure numbers, like the cosine, so that one total-variation weight
    means the same at every network size, noise and clip.
    clip_norm: (T,) in gradient units, infinite for no clip. clip_order: 1 or 2. per_layer, scale_known: see `Target`.
    """

    name: Name
    clip_norm: Tensor
    clip_order: int = 2
    per_layer: bool = False
    scale_known: bool = True

    @classmethod
    def of(cls, name: Name, targets: Sequence[Target], repeat: int = 1) -> Matching:
        """The objective for `repeat` candidates of each target; targets share clip_order, per_layer and scale_known."""
        if name not in OBJECTIVES:
            raise ValueError(f"objective is {name!r}, it must be one of {', '.join(OBJECTIVES)}")
        first = targets[0]
        norms = [float("inf") if t.clip_norm is None else t.clip_norm for t in targets]
        clip_norm = torch.tensor(norms, dtype=first.gradient.dtype, device=first.gradient.device).repeat_interleave(
            repeat
        )
        return cls(name, clip_norm, first.clip_order, first.per_layer, first.scale_known)

    def at(self, t: int) -> Matching:
        """The objective of candidate `t` alone."""
        return self.those(slice(t, t + 1))

    def those(self, some: slice) -> Matching:
        """The objective of some candidates."""
        return replace(self, clip_norm=self.clip_norm[some])

    @cached_property
    def needs_absolute(self) -> bool:
        """Whether ‖g_k‖₁ is needed, which no ghost product gives."""
        return (
            self.name == "euclidean"
            and self.scale_known
            and self.clip_order == 1
            and bool(self.clip_norm.isfinite().any())
        )

    def direction(self, t: int, gradient: Sequence[Tensor], observed: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The objective () of candidate `t` and its derivative with respect to its gradient, tensor by tensor."""
        if self.name == "absolute":
            return self._absolute(t, gradient, observed)
        absolute = torch.stack([g.abs().sum() for g in gradient])[None] if self.needs_absolute else None
        products = Products(
            torch.stack([torch.vdot(g.flatten(), h.flatten()) for g, h in zip(gradient, observed)])[None],
            torch.stack([g.square().sum() for g in gradient])[None],
            torch.stack([h.square().sum() for h in observed])[None],
            absolute,
        )
        value, partial = self.at(t).derivatives(products)
        direction = []
        for k, (g, h) in enumerate(zip(gradient, observed)):
            v = partial.dot[0, k] * h + 2 * partial.square[0, k] * g
            if partial.absolute is not None:
                v += partial.absolute[0, k] * g.sign()
            direction.append(v)
        return value[0], direction

    def _absolute(self, t: int, gradient: Sequence[Tensor], observed: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        inputs = [g.detach().requires_grad_() for g in gradient]
        norm = torch.stack([h.abs().sum() for h in observed]).sum().clamp_min(ZERO)
        with torch.enable_grad():
            if self.scale_known:
                square = torch.stack([g.square().sum() for g in inputs])[None]
                sizes = torch.stack([g.abs().sum() for g in inputs])[None] if self.clip_order == 1 else None
                factor = self.at(t)._clip_factor(Products(square, square, square, sizes))[0]
            else:
                own = torch.stack([g.square().sum() for g in inputs])
                other = torch.stack([h.square().sum() for h in observed])
                least = self._rounding(own[None].detach())[0]
                if not self.per_layer:
                    own, other = own.sum()[None], other.sum()[None]
                told = (own > least) & (other > 0)  # the slope of a square root at 0 is no number
                factor = torch.where(told, other / torch.where(told, own, 1).clamp_min(ZERO), 0).sqrt()
            factors = factor.expand(len(inputs))
            value = torch.stack([(f * g - h).abs().sum() for f, g, h in zip(factors, inputs, observed)]).sum() / norm
            return value.detach(), list(torch.autograd.grad(value, inputs))

    def loss(self, products: Products) -> Tensor:
        """The objective (T,)."""
        p = products
        total = p.target.sum(1).clamp_min(ZERO)
        if self.name == "cosine":
            return 1 - p.dot.sum(1) / (p.square.sum(1).clamp_min(ZERO).sqrt() * total.sqrt())
        if self.name == "euclidean-naive":
            return (p.square.sum(1) - 2 * p.dot.sum(1) + p.target.sum(1)) / total
        dot, square, target = p.dot, p.square, p.target
        if not self.per_layer:
            dot, square, target = (t.sum(1, keepdim=True) for t in (dot, square, target))
        if not self.scale_known:
            explained = dot * (dot.abs() / square.clamp_min(ZERO))
            distance = target - torch.where(square > self._rounding(p.square), explained, 0)
        else:
            factor = self._clip_factor(p)
            distance = factor.square() * square - 2 * factor * dot + target
        return distance.sum(1) / total

    @staticmethod
    def _rounding(squares: Tensor) -> Tensor:
        """(T, 1): up to here a tensor's ‖g_k‖² is what rounding leaves of 0, as of a bias before a normalisation. Which
        direction such a tensor has says nothing, and no scale is looked for that would make it large.
        """
        return (ROUNDING * torch.finfo(squares.dtype).eps) ** 2 * squares.sum(1, keepdim=True)

    def _clip_factor(self, products: Products) -> Tensor:
        """min(1, C/‖g‖), (T, 1) flat or (T, tensors) per layer."""
        if self.clip_order == 1:
            norm = products.absolute if products.absolute is not None else torch.zeros_like(products.square)
            norm = norm if self.per_layer else norm.sum(1, keepdim=True)
        else:
            square = products.square if self.per_layer else products.square.sum(1, keepdim=True)
            norm = square.clamp_min(ZERO).sqrt()
        bound = self.clip_norm[:, None]
        scaled = torch.where(bound.isfinite(), bound, 0) / norm.clamp_min(ZERO**0.5)
        return torch.where(norm > bound, scaled, 1)

    def derivatives(self, products: Products) -> tuple[Tensor, Products]:
        """The objective (T,) and its partial derivatives by dot, square, absolute (`target` is filled with zeros)."""
        dot, square = products.dot.detach().requires_grad_(), products.square.detach().requires_grad_()
        absolute = None if products.absolute is None else products.absolute.detach().requires_grad_()
        inputs = [dot, square] if absolute is None else [dot, square, absolute]
        with torch.enable_grad():
            loss = self.loss(Products(dot, square, products.target, absolute))
            partial = torch.autograd.grad(loss.sum(), inputs, materialize_grads=True)
        return loss.detach(), Products(
            partial[0], partial[1], torch.zeros_like(products.target), partial[2] if absolute is not None else None
        )
