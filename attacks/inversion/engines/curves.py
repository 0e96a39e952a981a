"""Activations with their first two derivatives, as they are needed by hand: in few passes over memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

_ATEN = torch.ops.aten


class Activation(Protocol):
    """An activation y = f(z)."""

    def value(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """y, and what the other two are given as `kept`."""
        ...

    def pulled(self, grown: Tensor, kept: Tensor) -> Tensor:
        """grown · f'(z)."""
        ...

    def bent(self, back: Tensor, tangent: Tensor, grown: Tensor, kept: Tensor) -> Tensor:
        """back · f'(z) + f''(z) · tangent · grown; `back` and `tangent` may be overwritten."""
        ...


@dataclass(frozen=True)
class Straight:
    """(Leaky) ReLU, or nothing (left = 1). left: the slope on the left side, which the kink has too."""

    left: float

    def value(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return (z if self.left == 1 else torch.nn.functional.leaky_relu(z, self.left)), z

    def pulled(self, grown: Tensor, kept: Tensor) -> Tensor:
        return grown if self.left == 1 else _ATEN.leaky_relu_backward(grown, kept, self.left, False)

    def bent(self, back: Tensor, tangent: Tensor, grown: Tensor, kept: Tensor) -> Tensor:
        return self.pulled(back, kept)


class Sigmoid:
    """f' = y(1 − y), f'' = f'(1 − 2y)."""

    def value(self, z: Tensor) -> tuple[Tensor, Tensor]:
        y = z.sigmoid()
        return y, y

    def pulled(self, grown: Tensor, kept: Tensor) -> Tensor:
        return _ATEN.sigmoid_backward(grown, kept)

    def bent(self, back: Tensor, tangent: Tensor, grown: Tensor, kept: Tensor) -> Tensor:
        both = tangent.mul_(grown)
        return _ATEN.sigmoid_backward(back.add_(both).addcmul_(both, kept, value=-2), kept)


class Tanh:
    """f' = 1 − y², f'' = −2y·f'."""

    def value(self, z: Tensor) -> tuple[Tensor, Tensor]:
        y = z.tanh()
        return y, y

    def pulled(self, grown: Tensor, kept: Tensor) -> Tensor:
        return _ATEN.tanh_backward(grown, kept)

    def bent(self, back: Tensor, tangent: Tensor, grown: Tensor, kept: Tensor) -> Tensor:
        return _ATEN.tanh_backward(back.addcmul_(tangent.mul_(grown), kept, value=-2), kept)


def activation_of(activation: nn.Module) -> Activation | None:
    """Of an activation; None where it is not one of those known here.

    >>> activation_of(nn.ReLU()), activation_of(nn.GELU())
    (Straight(left=0.0), None)
    """
    if isinstance(activation, nn.Identity):
        return Straight(1.0)
    if isinstance(activation, nn.ReLU):
        return Straight(0.0)
    if isinstance(activation, nn.LeakyReLU):
        return Straight(activation.negative_slope)
    if isinstance(activation, nn.Sigmoid):
        return Sigmoid()
    if isinstance(activation, nn.Tanh):
        return Tanh()
    return None
