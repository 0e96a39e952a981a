"""What each candidate's own gradient is of a layer that all candidates share, and what a direction along it asks of the
layer's inputs and errors.

A layer's weight gradient G is bilinear in its inputs a and its errors δ, so the derivative of ⟨G, V⟩ at fixed V is a
linear map of δ (with respect to a) and one of a (with respect to δ), and G is never differentiated automatically.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from .windows import Shared


class SharedLayer(Protocol):
    """A layer with parameters, that is called once in a forward pass.

    names: of its weight, and of its bias or None. taken, made: its input and its output in the last pass, with graph.
    """

    names: tuple[str, str | None]

    @property
    def taken(self) -> Tensor: ...

    @property
    def made(self) -> Tensor: ...

    def ordered(self, weight: Tensor) -> Tensor:
        """Weights (…, *shape) in the order that `gradients` has them, (…, numbers)."""
        ...

    def gradients(self, error: Tensor, candidates: int) -> list[Tensor]:
        """Of the weight, and of the bias where there is one: each (T, numbers). error: at `made`."""
        ...

    def pulled(self, error: Tensor, along: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Derivatives of ⟨gradients, along⟩ with respect to `taken` and to `error`. along: (T, numbers) each."""
        ...


class LinearPart:
    """A linear layer, on vectors or on rows of them."""

    def __init__(self, layer: nn.Linear, names: tuple[str, str | None]) -> None:
        self.names = names
        layer.register_forward_hook(self._take)

    def _take(self, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.taken, self.made = inputs[0], output

    def ordered(self, weight: Tensor) -> Tensor:
        return weight.flatten(-2)

    def gradients(self, error: Tensor, candidates: int) -> list[Tensor]:
        a, d = self._rows(self.taken, candidates), self._rows(error, candidates)
        found = [torch.bmm(d.mT, a).flatten(1)]
        return found if self.names[1] is None else [*found, d.sum(1)]

    def pulled(self, error: Tensor, along: list[Tensor]) -> tuple[Tensor, Tensor]:
        a, d = self._rows(self.taken, len(along[0])), self._rows(error, len(along[0]))
        weight = along[0].view(len(a), d.shape[-1], a.shape[-1])
        of_error = torch.bmm(a, weight.mT)
        if len(along) > 1:
            of_error += along[1][:, None]
        return torch.bmm(d, weight).view_as(self.taken), of_error.view_as(error)

    @staticmethod
    def _rows(x: Tensor, candidates: int) -> Tensor:
        return x.detach().reshape(candidates, -1, x.shape[-1])


class ConvolutionPart:
    """A convolution, channels last."""

    def __init__(self, shared: Shared, names: tuple[str, str | None]) -> None:
        self.shared, self.names = shared, names

    @property
    def taken(self) -> Tensor:
        assert self.shared.images is not None
        return self.shared.images

    @property
    def made(self) -> Tensor:
        assert self.shared.outputs is not None
        return self.shared.outputs

    def ordered(self, weight: Tensor) -> Tensor:
        return weight.movedim(-3, -1).flatten(-4)

    def gradients(self, error: Tensor, candidates: int) -> list[Tensor]:
        assert self.shared.windows is not None
        a = self.shared.windows.view(candidates, -1, self.shared.windows.shape[-1])
        d = error.detach().reshape(candidates, -1, error.shape[-1])
        found = [torch.bmm(d.mT, a).flatten(1)]
        return found if self.names[1] is None else [*found, d.sum(1)]

    def pulled(self, error: Tensor, along: list[Tensor]) -> tuple[Tensor, Tensor]:
        assert self.shared.windows is not None
        shape, candidates = self.shared.shape, len(along[0])
        a = self.shared.windows.view(candidates, -1, self.shared.windows.shape[-1])
        weight = along[0].view(candidates, shape.outputs, -1)
        of_error = torch.bmm(a, weight.mT)
        if len(along) > 1:
            of_error += along[1][:, None]
        back = shape.back(error.detach()) if self.shared.errors is None else self.shared.errors
        of_images = torch.bmm(back.view(candidates, -1, back.shape[-1]), shape.backwards(weight))
        return shape.put(of_images), of_error.view_as(error)


class Scale(nn.Module):
    """What is left of a normalisation without its statistics: x·weight + bias by channel, for x (N, C, …)."""

    weight: Tensor
    bias: Tensor
    taken: Tensor
    made: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, names: tuple[str, str | None]) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach())
        self.register_buffer("bias", bias.detach())
        self.names = names

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.ndim - 2))
        self.taken = x
        self.made = x * self.weight.view(shape) + self.bias.view(shape)
        return self.made

    def ordered(self, weight: Tensor) -> Tensor:
        return weight

    def gradients(self, error: Tensor, candidates: int) -> list[Tensor]:
        d, dims = error.detach(), tuple(range(2, error.ndim))
        by_image = [d * self.taken.detach(), d]
        return [(x.sum(dims) if dims else x).view(candidates, -1, x.shape[1]).sum(1) for x in by_image]

    def pulled(self, error: Tensor, along: list[Tensor]) -> tuple[Tensor, Tensor]:
        per = len(error) // len(along[0])
        weight, bias = (v.repeat_interleave(per, 0).view(*error.shape[:2], *[1] * (error.ndim - 2)) for v in along)
        return error.detach() * weight, self.taken.detach() * weight + bias
