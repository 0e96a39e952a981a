"""A convolution as products of matrices: forwards, backwards, and its weights' gradient, on windows laid side by side.

Images lie with their channels last, (N, h, w, C), so that a window's row is one run of memory and windows are copied
fast (measured on one core, 8 images: a third to an eighth of `F.unfold`'s time). The way back gathers too, where others
scatter: with stride s an output pixel of residue r (mod s) depends on the errors by a kernel of its own, ⌈k/s⌉ wide, so
all s² residues together are one convolution of stride 1 with s² times the channels (sub-pixel convolution, Shi et al.
2016, arXiv:1609.05158). Only where that would be many more numbers, as behind a first layer of few channels, is
scattered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SCATTERS = 3  # times as many numbers on the way back as forwards


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution: size of what comes in, and kernel, stride, padding and dilation. Stride or dilation
    is 1.
    """

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def out(self) -> int:
        """How many windows there are."""
        return (self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    @property
    def back(self) -> int:
        """Width of the kernel on the way back."""
        return -(-self.kernel // self.stride)

    @property
    def first(self) -> int:
        """The first step whose pixels are not all padding."""
        return self.padding // self.stride

    @property
    def steps(self) -> int:
        """How many steps have such pixels."""
        return (self.padding + self.size - 1) // self.stride + 1 - self.first

    @property
    def around(self) -> tuple[int, int]:
        """Zeros before and after the errors, so that every such step has its window; what is negative is cut off."""
        before = self.dilation * (self.back - 1) - self.first
        return before, self.first + self.steps - self.out


class Windows:
    """The arithmetic of one plain convolution (`takes`) on images of one size; no weights.

    K = kh·kw·C numbers a window, P = positions of the output, O output channels.
    """

    def __init__(self, layer: nn.Conv2d, height: int, width: int) -> None:
        def axis(i: int, size: int) -> Axis:
            padding = cast(tuple[int, int], layer.padding)
            return Axis(size, layer.kernel_size[i], layer.stride[i], padding[i], layer.dilation[i])

        self.rows, self.columns = axis(0, height), axis(1, width)
        self.outputs, self.inputs = layer.out_channels, layer.in_channels
        r, c = self.rows, self.columns
        gathered = r.steps * c.steps * r.back * c.back * self.outputs
        self.scatters = gathered > SCATTERS * self.numbers

    @property
    def numbers(self) -> int:
        """Of one image's windows, P·K."""
        return self.rows.out * self.columns.out * self.rows.kernel * self.columns.kernel * self.inputs

    def forth(self, images: Tensor) -> Tensor:
        """Windows (N·P, K) of images (N, h, w, C), in the order (row, column, channel)."""
        r, c = self.rows, self.columns
        padded = F.pad(images, (0, 0, c.padding, c.padding, r.padding, r.padding)) if r.padding + c.padding else images
        return _windows(padded, (r.out, c.out), (r.kernel, c.kernel), (r.stride, c.stride), (r.dilation, c.dilation))

    def back(self, errors: Tensor) -> Tensor:
        """Windows on the way back, (N·steps, kernel·O) or (N·P, O) where they scatter, of errors (N, h, w, O)."""
        if self.scatters:
            return errors.flatten(0, 2)
        r, c = self.rows, self.columns
        padded = F.pad(errors, (0, 0, *c.around, *r.around))
        return _windows(padded, (r.steps, c.steps), (r.back, c.back), (1, 1), (r.dilation, c.dilation))

    def backwards(self, weight: Tensor) -> Tensor:
        """What those windows are multiplied by, (…, kernel·O, sh·sw·C) or (…, O, K), for weights (…, O, K)."""
        if self.scatters:
            return weight
        r, c = self.rows, self.columns
        lead = weight.shape[:-2]
        grown = weight.view(*lead, self.outputs, r.kernel, c.kernel, self.inputs)
        more = (0, 0, 0, c.back * c.stride - c.kernel, 0, r.back * r.stride - r.kernel)
        if any(more):
            grown = F.pad(grown, more)
        parted = grown.view(-1, self.outputs, r.back, r.stride, c.back, c.stride, self.inputs).flip(2, 4)
        return parted.permute(0, 2, 4, 1, 3, 5, 6).reshape(*lead, r.back * c.back * self.outputs, -1)

    def put(self, pixels: Tensor) -> Tensor:
        """Images (N, h, w, C) of what came back, N·steps·s²·C numbers in that order, or N·P·K."""
        if self.scatters:
            return self._scattered(pixels)
        r, c = self.rows, self.columns
        whole = pixels.view(-1, r.steps, c.steps, r.stride, c.stride, self.inputs)
        if r.stride * c.stride > 1:
            whole = whole.transpose(2, 3)
        whole = whole.reshape(-1, r.steps * r.stride, c.steps * c.stride, self.inputs)
        top, left = r.padding - r.first * r.stride, c.padding - c.first * c.stride
        return whole[:, top : top + r.size, left : left + c.size]

    def _scattered(self, pixels: Tensor) -> Tensor:
        r, c = self.rows, self.columns
        parts = pixels.view(-1, r.out, c.out, r.kernel, c.kernel, self.inputs)
        whole = pixels.new_zeros(len(parts), r.size + 2 * r.padding, c.size + 2 * c.padding, self.inputs)
        for i in range(r.kernel):
            rows = slice(i * r.dilation, i * r.dilation + r.stride * (r.out - 1) + 1, r.stride)
            for j in range(c.kernel):
                columns = slice(j * c.dilation, j * c.dilation + c.stride * (c.out - 1) + 1, c.stride)
                whole[:, rows, columns] += parts[:, :, :, i, j]
        return whole[:, r.padding : r.padding + r.size, c.padding : c.padding + c.size]


class Shared:
    """A convolution whose weights all images share, as a layer of a network: takes and gives (N, C, h, w).

    images, outputs, windows, errors: of the last pass, kept for whoever wants the weights' gradients: what came in and
    went out, channels last, and the windows of both.
    """

    def __init__(self, layer: nn.Conv2d, height: int, width: int) -> None:
        self.shape = Windows(layer, height, width)
        weight = layer.weight.detach().permute(0, 2, 3, 1).flatten(1)
        self.bias = None if layer.bias is None else layer.bias.detach()
        self.there, self.home = weight.T.contiguous(), self.shape.backwards(weight)
        self.forget()

    def forget(self) -> None:
        """Lets go of the last pass."""
        self.images: Tensor | None = None
        self.outputs: Tensor | None = None
        self.windows: Tensor | None = None
        self.errors: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output, and the last pass begun anew."""
        self.forget()
        self.images = x.permute(0, 2, 3, 1).contiguous()
        self.outputs = _Forth.apply(self.images, self)
        return self.outputs.permute(0, 3, 1, 2)

    def forth(self, images: Tensor, biased: bool) -> Tensor:
        """The convolution of images (N, h, w, C)."""
        windows = self.shape.forth(images)
        if biased:
            self.windows = windows
        bias = self.bias if biased else None
        found = windows @ self.there if bias is None else torch.addmm(bias, windows, self.there)
        return found.view(len(images), self.shape.rows.out, self.shape.columns.out, -1)

    def back(self, errors: Tensor) -> Tensor:
        """Its transpose, of errors (N, h, w, O)."""
        windows = self.shape.back(errors)
        if self.errors is None:
            self.errors = windows
        return self.shape.put(windows @ self.home)


class _Forth(torch.autograd.Function):
    """A convolution, and `_Back` its transpose: linear in the images, so either is the other's derivative."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, layer: Shared, biased: bool = True) -> Tensor:
        ctx.layer = layer
        return layer.forth(images, biased)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Back.apply(grads[0].contiguous(), ctx.layer), None, None


class _Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, errors: Tensor, layer: Shared) -> Tensor:
        ctx.layer = layer
        return layer.back(errors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Forth.apply(grads[0].contiguous(), ctx.layer, False), None


def takes(layer: nn.Conv2d) -> bool:
    """Whether `Windows` can do this layer's arithmetic."""
    return (
        layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and all(s == 1 or d == 1 for s, d in zip(layer.stride, layer.dilation))
    )


def _windows(
    images: Tensor, count: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Tensor:
    images = images.contiguous()
    n, h, w, channels = images.shape
    row, column = w * channels, channels
    places = (h * row, stride[0] * row, stride[1] * column, dilation[0] * row, dilation[1] * column, 1)
    found = images.as_strided((n, *count, *kernel, channels), places)
    return found.reshape(n * count[0] * count[1], -1)
