"""A linear layer behind convolutions, whose gradient is not formed: what `ghost.py` does with a whole network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .candidate_products import OwnProducts
from .matmul import Linear
from .parts import Pair, Some


class LinearRows:
    """z = a Wᵀ + b for rows a (T·n, i); a `HandLayer`.

    Args:
        weight: (o, i). bias: (o,) or None. observed: products with every target's. observed_back: the same transposed.
        observed_bias: of every target, (targets, o). count: n. candidates: about so many at a time.
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
        into: Callable[[Tensor], Tensor] | None = None,
        out: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.bias, self.observed_bias, self.count = bias, observed_bias, count
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
        self.compared = [((self.reached * self.D).sum((1, 2)), (self.gram_a * self.gram_d).sum((1, 2)))]
        if self.observed_bias is not None:
            self.sums, c = self.D.sum(1), self.some.of(self.observed_bias)
            self.compared.append(((self.sums * c).sum(1), self.sums.square().sum(1)))
        pulled = self.home_way(error)
        return pulled if self.out is None else self.out(pulled)

    def turn(self, partials: Sequence[Pair]) -> None:
        self.partials = [(p[:, None, None], 2 * q[:, None, None]) for p, q in partials]

    def tangent(self, moved: Tensor | None) -> Tensor:
        p, q = self.partials[0]
        tangent = torch.baddbmm(p * self.reached, q * self.gram_a, self.D)
        if self.observed_bias is not None:
            p, q = self.partials[1]
            tangent += p * self.some.of(self.observed_bias)[:, None] + q * self.sums[:, None]
        tangent = tangent.flatten(0, 1)
        if moved is not None:
            tangent += self.there(moved if self.into is None else self.into(moved))
        return tangent

    def home(self, change: Tensor) -> Tensor:
        p, q = self.partials[0]
        back = torch.bmm(q * self.gram_d, self.A).flatten(0, 1)
        back += self.home_way(change)
        back += self.observed_back((p * self.D).flatten(0, 1), self.some).flatten(0, 1)
        return back if self.out is None else self.out(back)
