"""Gradient matching on convolutions and linear layers, all candidates in one pass.

All candidates sit at the same weights, so one forward pass and one backward pass to the layers' outputs serve them all:
convolutions stay ordinary ones, where `vmap` would make them grouped. Only the weights' gradients are each candidate's
own, and a convolution's is a product of matrices, δ·unfold(a)ᵀ over its n images and their positions (Chellapilla et
al. 2006), as a linear layer's is. What runs through automatic differentiation is that product.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...defenses.layout import Layout
from .objective import Matching, Products
from .target import Target

_CHUNK = 2**22  # numbers of unfolded inputs at a time: 16 MB, what a core's cache does not hold anyway
_PAYS = 300_000  # of a candidate


class Unfolded:
    """Objective and image gradient for `repeat` candidates of each of several targets that share weights and count.

    labels: (targets, n). Same interface as `Ghost`. `supports` tells which networks it takes.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        targets: Sequence[Target],
        labels: Tensor,
        repeat: int,
        matching: Matching,
    ) -> None:
        self.module = _own_copy(module, layout.split(targets[0].weights))
        self.names = list(layout.split(targets[0].weights))
        self.matching, self.repeat, self.labels = matching, repeat, labels
        observed = layout.split(torch.stack([t.gradient for t in targets]))
        self.observed = {name: values.flatten(1) for name, values in observed.items()}
        self.squares = torch.stack([self.observed[name].square().sum(1) for name in self.names], 1)
        self._numbers = 0
        self.taken: dict[str, tuple[Tensor, Tensor]] = {}
        for name, layer in _layers(self.module):
            layer.register_forward_hook(self._take(name))

    def _take(self, name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            self.taken[name] = inputs[0], output

        return hook

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        size = max(1, _CHUNK // (images.shape[1] * self.numbers(images.shape[2:])))
        if size >= len(images):
            return self._some(images, 0)
        parts = [self._some(images[first : first + size], first) for first in range(0, len(images), size)]
        return torch.cat([loss for loss, _ in parts]), torch.cat([gradient for _, gradient in parts])

    def _some(self, images: Tensor, first: int) -> tuple[Tensor, Tensor]:
        T, n = images.shape[:2]
        which = torch.arange(first, first + T) // self.repeat
        x = images.detach().flatten(0, 1).requires_grad_()
        with torch.enable_grad():
            losses = F.cross_entropy(self.module(x), self.labels[which].flatten(), reduction="none")
            layers = _layers(self.module)
            errors = torch.autograd.grad(
                losses.sum() / n, [self.taken[name][1] for name, _ in layers], create_graph=True
            )
            gradients: dict[str, Tensor] = {}
            for (name, layer), error in zip(layers, errors):
                gradients |= _gradients(name, layer, self.taken[name][0], error, T)
        own = [gradients[name] for name in self.names]
        fixed = [g.detach() for g in own]
        observed = [self.observed[name][which] for name in self.names]
        products = Products(
            torch.stack([(g * h).sum(1) for g, h in zip(fixed, observed)], 1),
            torch.stack([g.square().sum(1) for g in fixed], 1),
            self.squares[which],
            torch.stack([g.abs().sum(1) for g in fixed], 1) if self.matching.needs_absolute else None,
        )
        value, partial = self.matching.those(slice(first, first + T)).derivatives(products)
        direction = []
        for k, (g, h) in enumerate(zip(fixed, observed)):
            v = partial.dot[:, k, None] * h + 2 * partial.square[:, k, None] * g
            if partial.absolute is not None:
                v += partial.absolute[:, k, None] * g.sign()
            direction.append(v)
        (image_gradient,) = torch.autograd.grad(own, x, grad_outputs=direction)
        self.taken.clear()
        return value, image_gradient.view_as(images)

    def numbers(self, shape: Sequence[int]) -> int:
        """Of an image's unfolded inputs, all layers together."""
        if self._numbers == 0:
            with torch.no_grad():
                self.module(next(self.module.parameters()).new_zeros(1, *shape))
            self._numbers = sum(
                taken.numel()
                if isinstance(layer, nn.Linear)
                else taken.shape[1] * prod(layer.kernel_size) * prod(out.shape[2:])
                for name, layer in _layers(self.module)
                for taken, out in [self.taken[name]]
            )
        return self._numbers

    def pays(self, shape: Sequence[int], candidates: int) -> bool:
        """Whether it is faster than one candidate after the other (`DoubleBackward`).

        Measured on one core: sigmoid LeNet, 20 candidates of one image 4.4 times, 4 of 2 and 4 images 2.2 and 1.7, 8 of
        8 images 1.1; CNN6, 4 of one and 2 images 1.7 and 1.6; a wider CNN, 4 of one image 1.15, of 2 .7.
        """
        return candidates > 1 and self.labels.shape[1] * self.numbers(shape) <= _PAYS


def supports(module: nn.Module) -> bool:
    """Whether every parameter is of a linear layer or of a plain convolution, used once.

    >>> supports(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)))
    True
    >>> supports(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2))), supports(nn.Sequential(nn.BatchNorm2d(3)))
    (False, False)
    """
    layers = [layer for _, layer in _layers(module)]
    held = sum(p.numel() for layer in layers for p in layer.parameters(recurse=False))
    plain = all(
        layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        for layer in layers
        if isinstance(layer, nn.Conv2d)
    )
    if not plain or held != sum(p.numel() for p in module.parameters()):
        return False
    # In any other container than a Sequential a layer may be called twice, or not at all.
    containers = [m for m in module.modules() if next(m.children(), None) is not None]
    once = len([*module.modules()]) == len([*module.named_modules(remove_duplicate=False)])
    return once and all(type(container) is nn.Sequential for container in containers)


def _layers(module: nn.Module) -> list[tuple[str, nn.Linear | nn.Conv2d]]:
    return [(name, layer) for name, layer in module.named_modules() if type(layer) in (nn.Linear, nn.Conv2d)]


def _own_copy(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """Of these weights, without anything that overwrites what a later layer or the way back needs."""
    own = copy.deepcopy(module)
    own.load_state_dict(weights, strict=False)
    own.to(next(iter(weights.values())))
    for part in own.modules():
        if getattr(part, "inplace", False):
            part.inplace = False  # type: ignore[assignment]
    return own.requires_grad_(False)


def _gradients(name: str, layer: nn.Linear | nn.Conv2d, taken: Tensor, error: Tensor, T: int) -> dict[str, Tensor]:
    """A layer's weight gradient (T, numbers), and its bias's, of every candidate. taken, error: at its inputs and
    outputs, of all candidates' images.
    """
    if isinstance(layer, nn.Linear):
        inputs, errors = taken.reshape(T, -1, taken.shape[-1]), error.reshape(T, -1, error.shape[-1])
    else:
        sides = F.unfold(taken, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]
        inputs = sides.view(T, -1, *sides.shape[1:]).transpose(2, 3).flatten(1, 2)
        errors = error.flatten(2).view(T, -1, error.shape[1], sides.shape[2]).transpose(2, 3).flatten(1, 2)
    prefix = f"{name}." if name else ""
    found = {f"{prefix}weight": (errors.mT @ inputs).flatten(1)}
    if layer.bias is not None:
        found[f"{prefix}bias"] = errors.sum(1)
    return found
