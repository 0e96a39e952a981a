"""A convolution of all candidates as one grouped convolution of oneDNN's: no windows, so that all stays in cache.

Each candidate is a group. Images lie as (n, T·C, h, w), channels last, so that a candidate's channels at a pixel are
one run of memory. oneDNN is fast there where a group has 16 channels at least: fewer are filled up with zeros. A first
layer's images have still fewer, and often a stride s: every s×s pixels become one of s²·C channels, and the convolution
one of stride 1 (the inverse of Shi et al. 2016, arXiv:1609.05158).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import DotAndSquare, Some, along, compare

_LEAST = 16  # channels of a group
_WASTE = 2.5  # times as much to multiply as without zeros; LeNet: 2.0
_IMAGES = 8  # measured: 8 of one image gain 1.3 times on LeNet and 1.4 on CNN6, 2 lose 1.4 and 1.3


class GroupShape:
    """What one plain convolution does to images of one size, as a grouped one.

    window: pixels of the images that become one, of a first layer: s×s of them, or, where that is less to multiply, all
    that the kernel sees. step: from one to the next. channels, outputs: of a group, filled up.
    """

    def __init__(self, layer: nn.Conv2d, height: int, width: int, first: bool) -> None:
        padding, (s, t) = cast(tuple[int, int], layer.padding), layer.stride
        self.layer, self.size = layer, (height, width)
        self.out = tuple(
            (size + 2 * p - d * (k - 1) - 1) // stride + 1
            for size, p, d, k, stride in zip(self.size, padding, layer.dilation, layer.kernel_size, layer.stride)
        )
        dense = first and layer.dilation == (1, 1)
        fold = s if dense and s == t else 1
        self.window: tuple[int, ...] = (fold, fold)
        self.step, self.stride = (fold, fold), (s // fold, t // fold)
        self.kernel: tuple[int, ...] = tuple(-(-k // fold) for k in layer.kernel_size)
        self.real = layer.in_channels * fold**2
        self.channels, self.outputs = max(_LEAST, self.real), max(_LEAST, layer.out_channels)
        seen = layer.weight[0].numel()
        all_seen = -(-seen // _LEAST) * _LEAST
        if dense and 2 * all_seen <= self.channels * prod(self.kernel):
            self.window, self.step, self.stride, self.kernel = layer.kernel_size, (s, t), (1, 1), (1, 1)
            self.real, self.channels = seen, all_seen
        self.around = padding if first else (0, 0)  # zeros that images get before
        self.padding = (0, 0) if first else padding

    @property
    def entered(self) -> tuple[int, int]:
        """Height and width of a first layer's images, zeros around and folded, as far as windows reach."""
        each = zip(self.out, self.stride, self.layer.dilation, self.kernel)
        high, wide = ((o - 1) * stride + d * (k - 1) + 1 for o, stride, d, k in each)
        return high, wide

    @property
    def numbers(self) -> int:
        """Of an image's output, filled up."""
        return prod(self.out) * self.outputs

    @property
    def needed(self) -> int:
        """Multiplications for an image."""
        return prod(self.out) * self.layer.weight.numel()

    @property
    def done(self) -> int:
        """Multiplications for an image with all zeros."""
        return prod(self.out) * prod(self.kernel) * self.channels * self.outputs

    def spread(self, weight: Tensor) -> Tensor:
        """Weights (…, O, C, kh, kw) as those of a group."""
        (a, b), (h, w) = self.window, self.kernel
        whole = F.pad(weight, (0, b * w - weight.shape[-1], 0, a * h - weight.shape[-2]))
        parted = whole.unflatten(-1, (w, b)).unflatten(-3, (h, a))  # (…, O, C, h, a, w, b)
        folded = parted.movedim((-3, -1), (-5, -4)).flatten(-5, -3)
        more, wider = self.channels - self.real, self.outputs - self.layer.out_channels
        return F.pad(folded, (0, 0, 0, 0, 0, more, 0, wider))

    def enter(self, images: Tensor) -> Tensor:
        """Images (T, n, C, H, W) of a first layer as (n, T·channels, h, w), channels last."""
        (T, n), (a, b), (down, right) = images.shape[:2], self.window, self.step
        (top, left), (height, width), (high, wide) = self.around, self.size, self.entered
        below, beside = (high - 1) * down + a - height - top, (wide - 1) * right + b - width - left
        padded = F.pad(images, (left, beside, top, below))
        seen = padded.unfold(3, a, down).unfold(4, b, right).permute(0, 1, 5, 6, 2, 3, 4)
        planes = seen.reshape(T, n, self.real, high * wide)  # in two moves, which is three times as fast as in one
        x = images.new_zeros(n, high, wide, T, self.channels)
        x[..., : self.real] = planes.permute(1, 3, 0, 2).unflatten(1, (high, wide))
        return x.flatten(3).permute(0, 3, 1, 2)

    def leave(self, x: Tensor, candidates: int) -> Tensor:
        """Images of what comes back."""
        (a, b), (down, right) = self.window, self.step
        (top, left), (height, width) = self.around, self.size
        own = x.permute(0, 2, 3, 1).unflatten(3, (candidates, -1))[..., : self.real]
        n, high, wide = own.shape[:3]
        parted = own.reshape(n, high, wide, candidates, a, b, -1)
        size = ((high - 1) * down + a, (wide - 1) * right + b)
        if self.step == self.window:
            whole = parted.permute(3, 0, 6, 1, 4, 2, 5).reshape(candidates, n, -1, *size)
        else:
            whole = x.new_zeros(candidates, n, parted.shape[-1], *size)
            for i in range(a):
                for j in range(b):
                    rows = slice(i, i + (high - 1) * down + 1, down)
                    whole[..., rows, j : j + (wide - 1) * right + 1 : right] += parted[..., i, j, :].permute(
                        3, 0, 4, 1, 2
                    )
        # pixels that no window has
        below, beside = max(0, top + height - size[0]), max(0, left + width - size[1])
        if below or beside:
            whole = F.pad(whole, (0, beside, 0, below))
        return whole[..., top : top + height, left : left + width]

    def fill(self, bias: Tensor) -> Tensor:
        """A bias (…, O) as a group's."""
        return F.pad(bias, (0, self.outputs - bias.shape[-1]))


class Grouped:
    """A `HandLayer` on images (n, T·C, h, w), channels last. Its gradient is formed, and with it v.

    Args:
        shape: its arithmetic. weight: (O, C, kh, kw). bias: (O,) or None.
        observed, observed_bias: of every target, (targets, …).
    """

    def __init__(
        self, shape: GroupShape, weight: Tensor, bias: Tensor | None, observed: Tensor, observed_bias: Tensor | None
    ) -> None:
        self.shape = shape
        self.one = shape.spread(weight)
        self.one_bias = None if bias is None else shape.fill(bias)
        self.observed = _flat(shape.spread(observed))
        self.observed_bias = None if observed_bias is None else shape.fill(observed_bias)
        self.kept = _flat(shape.spread(torch.ones_like(weight))[None]) if shape.done > shape.needed else None
        self.weight = self.one[:0]
        self.enter, self.leave = shape.enter, shape.leave

    def rows(self, x: Tensor) -> Tensor:
        """What goes out as rows for a linear layer, whose weights are ordered (h, w, C)."""
        own = x.permute(0, 2, 3, 1).unflatten(3, (self.some.many, -1))[..., : self.shape.layer.out_channels]
        return own.permute(3, 0, 1, 2, 4).reshape(self.some.many * len(x), -1)

    def images(self, rows: Tensor) -> Tensor:
        """The way back from there."""
        own = rows.view(self.some.many, -1, *self.shape.out, self.shape.layer.out_channels)
        full = F.pad(own, (0, self.shape.outputs - own.shape[-1]))
        return full.permute(1, 2, 3, 0, 4).flatten(3).permute(0, 3, 1, 2)

    def forth(self, x: Tensor, some: Some) -> Tensor:
        if len(self.weight) != some.many * len(self.one):
            self.weight = self.one.repeat(some.many, 1, 1, 1).contiguous(memory_format=torch.channels_last)
            self.bias = None if self.one_bias is None else self.one_bias.repeat(some.many)
        self.some, self.x = some, x
        return self._forth(x, self.weight, self.bias)

    def back(self, error: Tensor, wanted: bool) -> Tensor:
        self.error, T = error, self.some.many
        pulled, own, bias = self._back(error, self.weight, [wanted, True, self.bias is not None])
        own = _flat(own.unflatten(0, (T, -1)))
        if self.kept is not None:
            own = own * self.kept
        self.own, self.other = [own], [self.some.of(self.observed)]
        if self.observed_bias is not None:
            self.own.append(bias.view(T, -1))
            self.other.append(self.some.of(self.observed_bias))
        self.compared = [compare(g, h) for g, h in zip(self.own, self.other)]
        return pulled if wanted else error

    def turn(self, partials: Sequence[DotAndSquare]) -> None:
        direction = [along(g, h, *by) for g, h, by in zip(self.own, self.other, partials)]
        channels, *kernel = self.one.shape[1:]
        self.v = direction[0].view(-1, *kernel, channels).permute(0, 3, 1, 2)
        self.v_bias = direction[1].flatten() if self.bias is not None else None

    def tangent(self, moved: Tensor | None) -> Tensor:
        tangent = self._forth(self.x, self.v, self.v_bias)
        return tangent if moved is None else tangent.add_(self._forth(moved, self.weight, None))

    def home(self, change: Tensor) -> Tensor:
        only = [True, False, False]
        return self._back(self.error, self.v, only)[0].add_(self._back(change, self.weight, only)[0])

    def _forth(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shape = self.shape
        return F.conv2d(x, weight, bias, shape.stride, shape.padding, shape.layer.dilation, self.some.many)

    def _back(self, error: Tensor, weight: Tensor, wanted: list[bool]) -> list[Tensor]:
        """Derivatives with respect to what came in, weights and bias."""
        shape = self.shape
        geometry = (shape.stride, shape.padding, shape.layer.dilation, False, (0, 0), self.some.many)
        return torch.ops.aten.convolution_backward(error, self.x, weight, [len(weight)], *geometry, wanted)


def _flat(weights: Tensor) -> Tensor:
    """(T, numbers) of (T, O, C, h, w), channels last."""
    return weights.permute(0, 1, 3, 4, 2).flatten(1)


def takes(layer: nn.Conv2d) -> bool:
    """Whether `GroupShape` can do this layer's arithmetic."""
    return (
        layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and all(s == 1 or d == 1 for s, d in zip(layer.stride, layer.dilation))
    )


def groups_pay(shapes: Sequence[GroupShape], where: Tensor, images: int) -> bool:
    """Whether these convolutions, all of a network at weights like `where`, are faster as grouped ones for so many
    images of all candidates together.
    """
    return images >= _IMAGES and runs_fast(shapes, where)


def runs_fast(shapes: Sequence[GroupShape], where: Tensor) -> bool:
    """Whether oneDNN runs grouped convolutions where the weights are, and zeros to fill them up are not too many."""
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    if not onednn or where.device.type != "cpu" or where.dtype != torch.float32:
        return False
    return sum(s.done for s in shapes) <= _WASTE * sum(s.needed for s in shapes)
