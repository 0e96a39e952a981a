"""A network that is a chain of linear layers, opened up for closed-form first and second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .layout import frozen_of
from .losses import CrossEntropy, Loss

# An activation's value, slope and curvature at z; a curvature of None is zero everywhere it is defined.
Bend = Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]]


def bend(activation: nn.Module) -> Bend | None:
    """Value, first and second derivative of an activation, or None where it is not one of those known here.

    At the kink of (leaky) ReLU the slope is that of the left side, torch's own convention.

    >>> value, slope, curve = bend(nn.Tanh())(torch.zeros(1))
    >>> value.item(), slope.item(), curve.item()
    (0.0, 1.0, -0.0)
    """
    if isinstance(activation, nn.Identity):
        return lambda z: (z, torch.ones_like(z), None)
    if isinstance(activation, nn.ReLU):
        return _relu
    if isinstance(activation, nn.LeakyReLU):
        left = activation.negative_slope
        return lambda z: _leaky(z, left)
    if isinstance(activation, nn.Sigmoid):
        return _sigmoid
    if isinstance(activation, nn.Tanh):
        return _tanh
    return None


def _relu(z: Tensor) -> tuple[Tensor, Tensor, None]:
    return z.relu(), z.sign().clamp_(0, 1), None


def _leaky(z: Tensor, left: float) -> tuple[Tensor, Tensor, None]:
    if 0 <= left <= 1:
        slope = z.sign().clamp_(left, 1)  # a tenth of the time of choosing by z > 0
    else:
        slope = torch.full_like(z, left).masked_fill_(z > 0, 1)
    return z * slope, slope, None


def _sigmoid(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = z.sigmoid()
    slope = value * (1 - value)
    return value, slope, slope * (1 - 2 * value)


def _tanh(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = z.tanh()
    slope = 1 - value.square()
    return value, slope, -2 * value * slope


@dataclass(frozen=True, eq=False)
class Layer:
    """z = a Wᵀ + b, then `bend` (None on the last layer).

    weight, bias: the parameters' names; bias is None where there is none.
    """

    weight: str
    bias: str | None
    bend: Bend | None


@dataclass(frozen=True, eq=False)
class Chain:
    """(x − mean) / std, flattened, then the layers. mean, std: anything that broadcasts against images (n, *shape).
    loss: whose errors are asked for.
    """

    mean: Tensor
    std: Tensor
    layers: tuple[Layer, ...]
    loss: Loss = CrossEntropy()

    @property
    def rectified(self) -> bool:
        """Whether a ReLU is behind the first layer, which then passes nothing back where it gives nothing."""
        return self.layers[0].bend is _relu

    def first_errors(self, weights: Mapping[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        """(n, o) the derivatives of each image's loss at the first layer's outputs.

        Args:
            weights: by name. inputs: (n, i), what the first layer sees. labels: (n,) int64.
        """
        slopes = []
        for layer in self.layers:
            inputs = torch.nn.functional.linear(
                inputs, weights[layer.weight], weights[layer.bias] if layer.bias else None
            )
            if layer.bend is not None:
                inputs, slope, _ = layer.bend(inputs)
                slopes.append(slope)
        errors = self.errors(inputs, labels)
        for layer, slope in zip(self.layers[:0:-1], slopes[::-1]):
            errors = (errors @ weights[layer.weight]) * slope
        return errors

    def errors(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """(n, classes) the derivatives of each image's loss at the network's outputs."""
        if self.loss == CrossEntropy():
            errors = outputs.softmax(1)
            errors[torch.arange(len(labels)), labels] -= 1
            return errors
        z = outputs.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(self.loss.values(z, labels).sum(), z)[0]


def open_chain(module: nn.Module) -> Chain | None:
    """The chain in an `nn.Sequential` of [normalisation], [Flatten], Linear, [activation], …, Linear.

    None for any other network, and for one that is not trained whole. A normalisation is a first module with tensors
    `mean` and `std` and no parameters.
    """
    if not isinstance(module, nn.Sequential) or frozen_of(module):
        return None
    mean, std = torch.zeros(1), torch.ones(1)
    layers: list[Layer] = []
    for place, (name, part) in enumerate(module.named_children()):
        if isinstance(part, nn.Linear):
            if layers and layers[-1].bend is None:
                layers[-1] = replace(layers[-1], bend=bend(nn.Identity()))
            layers.append(Layer(f"{name}.weight", None if part.bias is None else f"{name}.bias", None))
        elif place == 0 and _normalises(part):
            mean, std = part.get_buffer("mean"), part.get_buffer("std")
        elif isinstance(part, nn.Flatten) and not layers and part.start_dim == 1 and part.end_dim == -1:
            continue
        elif layers and layers[-1].bend is None and bend(part) is not None:
            layers[-1] = replace(layers[-1], bend=bend(part))
        else:
            return None
    return Chain(mean, std, tuple(layers)) if layers and layers[-1].bend is None else None


def _normalises(part: nn.Module) -> bool:
    return {name for name, _ in part.named_buffers()} == {"mean", "std"} and not list(part.parameters())
