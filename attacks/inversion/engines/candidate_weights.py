"""Layers with weights of each candidate's own: a convolution as a grouped one (`grouped.py`), a linear one in batches.

A layer keeps a candidate's weights in its own arrangement, `shape`, filled up with zeros where that is faster; `fill`
brings the network's there. Nothing has to come back: norms, products and steps of an optimiser are the same there.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .grouped import GroupShape


class OwnLayer(Protocol):
    """Of T candidates with weights (T, *shape) and biases (T, outputs) each; what comes in and goes out is laid out as
    the layer likes it, and so are weights where they are `ready`.

    shape: of one candidate's weights. outputs: numbers of one's bias.
    """

    shape: tuple[int, ...]
    outputs: int

    def fill(self, weight: Tensor) -> Tensor:
        """The network's weights (…, O, C[, kh, kw]) as (…, *shape)."""
        ...

    def fill_bias(self, bias: Tensor) -> Tensor:
        """The network's bias (…, O) as (…, outputs)."""
        ...

    def ready(self, weights: Tensor) -> Tensor:
        """Weights (T, *shape) as the other functions take them."""
        ...

    def forth(self, x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        """W x + b."""
        ...

    def back(self, error: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        """Wᵀ error, laid out as the input x."""
        ...

    def outer(self, error: Tensor, x: Tensor, into: Tensor, add: bool) -> None:
        """Writes what ⟨error, W x⟩ is by W into (T, *shape), or adds it there; zeros that were filled in stay."""
        ...

    def sums(self, error: Tensor) -> Tensor:
        """The same by b, (T, outputs)."""
        ...


class OwnConvolution:
    """On images (n, T·C, h, w), channels last, of `GroupShape`s. shape: (O, kh, kw, C)."""

    def __init__(self, shape: GroupShape, candidates: int, where: Tensor) -> None:
        self.geometry, self.candidates = shape, candidates
        self.shape: tuple[int, ...] = (shape.outputs, *shape.kernel, shape.channels)
        self.outputs = shape.outputs
        size = (candidates * shape.outputs, shape.channels, *shape.kernel)
        self.like = where.new_empty(size).contiguous(memory_format=torch.channels_last)  # only its shape counts
        # 1 where a weight is, and 0 where zeros are filled in; None for no zeros
        self.kept = self.fill(torch.ones_like(shape.layer.weight)).to(where) if shape.done > shape.needed else None

    def fill(self, weight: Tensor) -> Tensor:
        return self.geometry.spread(weight).movedim(-3, -1)

    def fill_bias(self, bias: Tensor) -> Tensor:
        return self.geometry.fill(bias)

    def ready(self, weights: Tensor) -> Tensor:
        return weights.flatten(0, 1).permute(0, 3, 1, 2)

    def rows(self, x: Tensor) -> Tensor:
        """What goes out as rows (T, n, h·w·O) for a linear layer, whose weights are ordered so."""
        own = x.permute(0, 2, 3, 1).unflatten(3, (self.candidates, -1))[..., : self.geometry.layer.out_channels]
        return own.permute(3, 0, 1, 2, 4).flatten(2)

    def images(self, rows: Tensor, size: tuple[int, int]) -> Tensor:
        """The way back from there, to images of this size."""
        own = rows.unflatten(2, (*size, self.geometry.layer.out_channels))
        full = F.pad(own, (0, self.outputs - own.shape[-1]))
        return full.permute(1, 2, 3, 0, 4).flatten(3).permute(0, 3, 1, 2)

    def forth(self, x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        shape, own = self.geometry, None if bias is None else bias.flatten()
        return F.conv2d(x, weights, own, shape.stride, shape.padding, shape.layer.dilation, self.candidates)

    def back(self, error: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        return self._back(error, x, weights, [True, False, False])[0]

    def outer(self, error: Tensor, x: Tensor, into: Tensor, add: bool) -> None:
        found = self._back(error, x, self.like, [False, True, False])[1].permute(0, 2, 3, 1).view_as(into)
        if self.kept is not None:
            found = found.mul_(self.kept)
        if add:
            into.add_(found)
        else:
            into.copy_(found)

    def sums(self, error: Tensor) -> Tensor:
        return error.sum((0, 2, 3)).view(self.candidates, -1)

    def _back(self, error: Tensor, x: Tensor, weights: Tensor, wanted: list[bool]) -> list[Tensor]:
        shape = self.geometry
        geometry = (shape.stride, shape.padding, shape.layer.dilation, False, (0, 0), self.candidates)
        return torch.ops.aten.convolution_backward(error, x, weights, [len(weights)], *geometry, wanted)


class OwnLinear:
    """On rows (T, n, numbers). shape: (O, numbers).

    Args:
        layer: its sizes. before: the shape (h, w, C) of images that rows are made of; None for rows.
    """

    def __init__(self, layer: nn.Linear, before: tuple[int, ...] | None) -> None:
        self.shape: tuple[int, ...] = (layer.out_features, layer.in_features)
        self.outputs, self.before = layer.out_features, before

    def fill(self, weight: Tensor) -> Tensor:
        if self.before is None:
            return weight
        h, w, channels = self.before
        return weight.unflatten(-1, (channels, h, w)).movedim(-3, -1).flatten(-3)

    def fill_bias(self, bias: Tensor) -> Tensor:
        return bias

    def ready(self, weights: Tensor) -> Tensor:
        return weights

    def forth(self, x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        return torch.bmm(x, weights.mT) if bias is None else torch.baddbmm(bias[:, None], x, weights.mT)

    def back(self, error: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        return torch.bmm(error, weights)

    def outer(self, error: Tensor, x: Tensor, into: Tensor, add: bool) -> None:
        into.baddbmm_(error.mT, x, beta=int(add))

    def sums(self, error: Tensor) -> Tensor:
        return error.sum(1)
