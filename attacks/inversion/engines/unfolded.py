"""Gradient matching on convolutions, linear layers and normalisations in any arrangement, all candidates in one pass.

All candidates sit at the same weights, so one forward pass and one backward pass to the layers' outputs serve them all:
convolutions stay ordinary ones, where `vmap` would make them grouped. Only the weights' gradients are each candidate's
own, and a convolution's is a product of matrices, (errors)·(windows)ᵀ over its n images and their positions
(Chellapilla et al. 2006), as a linear layer's is. What lies between the layers (activations, pooling, residual sums) is
left to automatic differentiation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ....defenses.layout import Layout
from ....defenses.models import FrozenBatchNorm
from ....defenses.randomness import generator
from ..match.batches import at_a_time
from ..match.objective import Matching, Products
from ..read.target import Target
from .per_candidate import ConvolutionPart, LinearPart, Scale, SharedLayer
from .windows import Shared, takes

_CHUNK = 2**22  # numbers of windows at a time: 16 MB; what is less pays more for its calls
_PAYS = 1_200_000  # numbers of a candidate's windows


class Unfolded:
    """Objective and image gradient for `repeat` candidates of each of several targets that share weights and count.

    labels: (targets, n). shape: of an image. Same interface as `Ghost`. `fits` tells which networks it takes.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        targets: Sequence[Target],
        labels: Tensor,
        repeat: int,
        matching: Matching,
        shape: Sequence[int],
    ) -> None:
        self.matching, self.repeat, self.labels = matching, repeat, labels
        weights = layout.split(targets[0].weights)
        self.module, self.parts, self.numbers = _taken_apart(module, weights, shape)
        observed = layout.split(torch.stack([t.gradient for t in targets]))
        self.observed: list[Tensor] = []  # tensor by tensor, in the order of the parts' gradients
        for part in self.parts:
            self.observed.append(part.ordered(observed[part.names[0]]))
            if part.names[1] is not None:
                self.observed.append(observed[part.names[1]])
        self.squares = torch.stack([h.square().sum(1) for h in self.observed], 1)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        size = max(1, at_a_time(_CHUNK, images) // (images.shape[1] * self.numbers))
        if size >= len(images):
            return self._some(images, 0)
        parts = [self._some(images[first : first + size], first) for first in range(0, len(images), size)]
        return torch.cat([loss for loss, _ in parts]), torch.cat([gradient for _, gradient in parts])

    def gradients(self, images: Tensor, which: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Images x as a leaf, with a graph behind them the errors at every part, and the parts' gradients (T, numbers)
        without one. which: (T,), the target that each candidate is of.
        """
        T, n = images.shape[:2]
        x = images.detach().flatten(0, 1).requires_grad_()
        with torch.enable_grad():
            losses = F.cross_entropy(self.module(x), self.labels[which].flatten(), reduction="none")
            errors = torch.autograd.grad(losses.sum() / n, [part.made for part in self.parts], create_graph=True)
        return x, list(errors), [g for part, error in zip(self.parts, errors) for g in part.gradients(error, T)]

    def _some(self, images: Tensor, first: int) -> tuple[Tensor, Tensor]:
        which = torch.arange(first, first + len(images), device=images.device) // self.repeat
        x, errors, own = self.gradients(images, which)
        observed = [h[which] for h in self.observed]
        products = Products(
            torch.stack([(g * h).sum(1) for g, h in zip(own, observed)], 1),
            torch.stack([g.square().sum(1) for g in own], 1),
            self.squares[which],
            torch.stack([g.abs().sum(1) for g in own], 1) if self.matching.needs_absolute else None,
        )
        value, partial = self.matching.those(slice(first, first + len(images))).derivatives(products)
        direction = []
        for k, (g, h) in enumerate(zip(own, observed)):
            v = partial.dot[:, k, None] * h
            v.addcmul_(partial.square[:, k, None], g, value=2)
            if partial.absolute is not None:
                v.addcmul_(partial.absolute[:, k, None], g.sign())
            direction.append(v)
        outputs: list[Tensor] = []
        along: list[Tensor] = []
        for part, error in zip(self.parts, errors):
            mine = [direction.pop(0) for name in part.names if name is not None]
            outputs += [part.taken, error]
            along += part.pulled(error, mine)
        (image_gradient,) = torch.autograd.grad(outputs, x, grad_outputs=along)
        return value, image_gradient.reshape(images.shape)


def fits(module: nn.Module, layout: Layout, target: Target, labels: Tensor, shape: Sequence[int]) -> bool:
    """Whether `Unfolded` gives this network's gradient (layers may be called twice, or by other ways than their own,
    which only trying tells), and is faster on several candidates than one after the other (`DoubleBackward`).

    Measured on one core, eight candidates of one image and four of 4: a ResNet of 8 convolutions 1.7 and .9 times with
    GroupNorm, 1.7 and 1.0 with frozen statistics; a CNN with pooling, four of 8 images .7.

    Args:
        module: in evaluation mode. layout: of its parameters. target: at whose weights it is tried.
        labels: (1, n) int64 of it. shape: of an image.
    """
    if not supports(module):
        return False
    target = replace(target, weights=target.weights.double(), gradient=target.gradient.double())
    module, matching = copy.deepcopy(module).double(), Matching.of("cosine", [target])
    draw = generator(0, "does unfolding fit")
    images = torch.rand(1, labels.shape[1], *shape, generator=draw, dtype=torch.float64).to(target.weights.device)
    weights = {name: w.requires_grad_() for name, w in layout.split(target.weights.clone()).items()}
    with torch.enable_grad():
        loss = F.cross_entropy(functional_call(module, weights, (images[0],)), labels[0])
        wanted = dict(zip(weights, torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)))
    try:
        own = Unfolded(module, layout, [target], labels, 1, matching, shape)
        _, _, found = own.gradients(images, labels.new_zeros(1))
    except (AttributeError, KeyError, RuntimeError):  # a layer that was not called, or not on what it is made for
        return False
    if {name for part in own.parts for name in part.names} - {None} != set(layout.names):
        return False
    for part in own.parts:
        for name, order in zip(part.names, (part.ordered, lambda bias: bias)):
            if name is not None and not torch.allclose(order(wanted[name][None]), found.pop(0), rtol=1e-6, atol=1e-9):
                return False
    return own.numbers * labels.shape[1] <= _PAYS


def supports(module: nn.Module) -> bool:
    """Whether every parameter is of a layer whose gradients `per_candidate` knows.

    >>> supports(nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4, 2)))
    True
    >>> supports(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2))), supports(nn.Sequential(nn.LayerNorm(3)))
    (False, False)
    """
    known = [layer for layer in module.modules() if _known(layer)]
    held = sum(p.numel() for layer in known for p in layer.parameters(recurse=False))
    once = len([*module.modules()]) == len([*module.named_modules(remove_duplicate=False)])
    return once and held == sum(p.numel() for p in module.parameters())


def _known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return takes(layer)
    return type(layer) in (nn.Linear, nn.GroupNorm, FrozenBatchNorm)


def _taken_apart(
    module: nn.Module, weights: dict[str, Tensor], shape: Sequence[int]
) -> tuple[nn.Module, list[SharedLayer], int]:
    """A copy of these weights, without anything that overwrites what a later layer or the way back needs; its parts in
    the order of `module`; and how many numbers an image's windows have, all layers together.
    """
    own = copy.deepcopy(module)
    own.load_state_dict(weights, strict=False)
    own.to(next(iter(weights.values()))).requires_grad_(False)
    sizes: dict[str, torch.Size] = {}

    def measured(name: str) -> Any:
        return lambda layer, inputs: sizes.update({name: inputs[0].shape})

    layers = [(name, layer) for name, layer in own.named_modules() if _known(layer)]
    hooks = [layer.register_forward_pre_hook(measured(name)) for name, layer in layers]
    for part in own.modules():
        if getattr(part, "inplace", False):
            part.inplace = False  # type: ignore[assignment]
    with torch.no_grad():
        own(next(iter(weights.values())).new_zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    parts: list[SharedLayer] = []
    numbers = 0
    for name, layer in layers:
        if name not in sizes:
            continue
        prefix = f"{name}." if name else ""
        names = (f"{prefix}weight", None if getattr(layer, "bias", None) is None else f"{prefix}bias")
        if isinstance(layer, nn.Linear):
            parts.append(LinearPart(layer, names))
            numbers += sizes[name][1:].numel()
        elif isinstance(layer, nn.Conv2d):
            shared = Shared(layer, *sizes[name][2:])
            layer.forward = shared  # type: ignore[assignment, method-assign]
            parts.append(ConvolutionPart(shared, names))
            numbers += shared.shape.numbers
        elif layer.weight is not None:
            scale = Scale(layer.weight, layer.bias, names)
            layer.weight = layer.bias = None
            layer.register_forward_hook(lambda _, inputs, output, scale=scale: scale(output))
            parts.append(scale)
            numbers += sizes[name][1:].numel()
    return own, parts, numbers
