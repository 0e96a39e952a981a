"""A convolution by its windows and products of matrices (`windows.py`): any device and precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .parts import Partial, Some, along, compare
from .windows import Windows


class Windowed:
    """A `HandLayer` on images (T·n, h, w, C), channels last. Its gradient is formed, and with it v.

    Args:
        windows: its arithmetic. weight: (O, C, kh, kw). bias: (O,) or None.
        observed, observed_bias: of every target, (targets, …). absolute: whether ‖G‖₁ is wanted.
    """

    def __init__(
        self,
        windows: Windows,
        weight: Tensor,
        bias: Tensor | None,
        observed: Tensor,
        observed_bias: Tensor | None,
        absolute: bool,
    ) -> None:
        self.windows, self.bias, self.observed_bias, self.absolute = windows, bias, observed_bias, absolute
        own = _ordered(weight)
        self.there = own.T.contiguous()  # windows @ there
        self.home_way = windows.backwards(own).contiguous()
        self.observed = _ordered(observed).flatten(1)

    @staticmethod
    def enter(images: Tensor) -> Tensor:
        """Of images (T, n, C, h, w)."""
        return images.flatten(0, 1).permute(0, 2, 3, 1).contiguous()

    @staticmethod
    def leave(x: Tensor, candidates: int) -> Tensor:
        """Images of what comes back."""
        return x.permute(0, 3, 1, 2).unflatten(0, (candidates, -1))

    @staticmethod
    def rows(x: Tensor) -> Tensor:
        """What goes out as rows for a linear layer, whose weights are ordered (h, w, C)."""
        return x.flatten(1)

    def images(self, rows: Tensor) -> Tensor:
        """The way back from there."""
        return self._shaped(rows)

    def forth(self, x: Tensor, some: Some) -> Tensor:
        self.some, self.taken = some, self.windows.forth(x)
        z = self.taken @ self.there if self.bias is None else torch.addmm(self.bias, self.taken, self.there)
        return self._shaped(z)

    def back(self, error: Tensor, wanted: bool) -> Tensor:
        T = self.some.many
        self.sent = self.windows.back(error)
        inputs, outputs = self.taken.view(T, -1, self.taken.shape[1]), error.reshape(T, -1, error.shape[3])
        self.own = [torch.bmm(outputs.mT, inputs).flatten(1)]
        self.other = [self.some.of(self.observed)]
        if self.observed_bias is not None:
            self.own.append(outputs.sum(1))
            self.other.append(self.some.of(self.observed_bias))
        self.compared = [compare(g, h, self.absolute) for g, h in zip(self.own, self.other)]
        return self.windows.put(self.sent @ self.home_way) if wanted else error

    def turn(self, partials: Sequence[Partial]) -> None:
        self.direction = [along(*them) for them in zip(self.own, self.other, partials)]
        self.v = self.direction[0].view(self.some.many, self.there.shape[1], -1)  # (T, O, K)

    def tangent(self, moved: Tensor | None) -> Tensor:
        tangent = torch.bmm(self.taken.view(len(self.v), -1, self.taken.shape[1]), self.v.mT)
        if self.bias is not None:
            tangent += self.direction[1][:, None]
        tangent = tangent.flatten(0, 1)
        if moved is not None:
            tangent.addmm_(self.windows.forth(moved), self.there)
        return self._shaped(tangent)

    def home(self, change: Tensor) -> Tensor:
        sent = self.sent.view(len(self.v), -1, self.sent.shape[1])
        way = torch.bmm(sent, self.windows.backwards(self.v)).flatten(0, 1)
        return self.windows.put(way.addmm_(self.windows.back(change), self.home_way))

    def _shaped(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.windows.rows.out, self.windows.columns.out, self.windows.outputs)


def _ordered(weight: Tensor) -> Tensor:
    """(…, O, C, kh, kw) as (…, O, K), in the order of windows."""
    return weight.movedim(-3, -1).flatten(-3)
