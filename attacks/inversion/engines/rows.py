"""A linear layer behind convolutions, whose gradient is not formed: what `ghost.py` does with a whole network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .candidate_products import OwnProducts
from .matmul import Linear
from .parts import Partial, Some


class LinearRows:
    """z = a Wᵀ + b for rows a (T·n, i); a `HandLayer`. For an L1 norm its gradient is formed after all.

    Args:
        weight: (o, i). bias: (o,) or None. observed: products with every target's. observed_back: the same transposed.
        observed_bias: of every target, (targets, o). count: n. candidates: about so many at a time.
        absolute: whether ‖G‖₁ is wanted.
        into, out: from what comes in to rows, and the way back; None for rows.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        observed: OwnProducts,
        observed_back: OwnProducts,
        observed_bias: Tensor | None,
        count: int,
        candidates: int,
        absolute: bool,
        into: Callable[[Tensor], Tensor] | None = None,
        out: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.bias, self.observed_bias, self.count, self.absolute = bias, observed_bias, count, absolute
        self.into, self.out = into, out
        rows = count * candidates
        self.there, self.home_way = Linear(weight, rows), Linear(weight.T, rows)
        self.observed, self.observed_back = observed, observed_back

    def forth(self, x: Tensor, some: Some) -> Tensor:
        self.some, self.a = some, x if self.into is None else self.into(x)
        return self.there(self.a, self.bias)

    def back(self, error: Tensor, wanted: bool) -> Tensor:
        self.A, self.D = (x.view(self.some.many, self.count, -1) for x in (self.a, error))
        self.reached = self.observed(self.a, self.some)  # a G*ᵀ
        self.gram_a, self.gram_d = self.A @ self.A.mT, self.D @ self.D.mT
        self.signs = torch.bmm(self.D.mT, self.A) if self.absolute else None
        l1 = None if self.signs is None else self.signs.abs().sum((1, 2))
        self.compared = [((self.reached * self.D).sum((1, 2)), (self.gram_a * self.gram_d).sum((1, 2)), l1)]
        if self.observed_bias is not None:
            self.sums, c = self.D.sum(1), self.some.of(self.observed_bias)
            l1 = self.sums.abs().sum(1) if self.absolute else None
            self.compared.append(((self.sums * c).sum(1), self.sums.square().sum(1), l1))
        pulled = self.home_way(error)
        return pulled if self.out is None else self.out(pulled)

    def turn(self, partials: Sequence[Partial]) -> None:
        self.partials = partials

    def tangent(self, moved: Tensor | None) -> Tensor:
        p, q, r = self.partials[0]
        tangent = torch.baddbmm(p[:, None, None] * self.reached, 2 * q[:, None, None] * self.gram_a, self.D)
        if r is not None and self.signs is not None:
            tangent += r[:, None, None] * (self.A @ self.signs.sign().mT)
        if self.observed_bias is not None:
            p, q, r = self.partials[1]
            v = p[:, None] * self.some.of(self.observed_bias) + 2 * q[:, None] * self.sums
            tangent += (v if r is None else v + r[:, None] * self.sums.sign())[:, None]
        tangent = tangent.flatten(0, 1)
        if moved is not None:
            tangent += self.there(moved if self.into is None else self.into(moved))
        return tangent

    def home(self, change: Tensor) -> Tensor:
        p, q, r = self.partials[0]
        back = torch.bmm(2 * q[:, None, None] * self.gram_d, self.A)
        if r is not None and self.signs is not None:
            back += r[:, None, None] * (self.D @ self.signs.sign())
        back = back.flatten(0, 1)
        back += self.home_way(change)
        back += self.observed_back((p[:, None, None] * self.D).flatten(0, 1), self.some).flatten(0, 1)
        return back if self.out is None else self.out(back)
