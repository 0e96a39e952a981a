"""What a linear layer behind others tells of the images: each one's input to it lies in the span of few directions.

The gradient of a linear layer's weights and bias is a sum of products (error) × (input, 1) over the images, so its rows
span the images' inputs to the layer, n directions of thousands. That holds of every image by itself, whatever the
batches, their order and the labels. For a first layer the images are solved for (`first_layer.py`); behind
convolutions each image is asked for an input in the span. Over several steps the layers before it move a little, and
the span with them, so directions count by their weight in the update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....defenses.layout import Layout
from ..read.target import Target
from .optimise import Objective, with_distances

SOFTENING = 1e-6  # of the largest direction's square; ours, picked on 50 images of Fashion-MNIST


@dataclass(frozen=True, eq=False)
class InputSpan:
    """The directions of a layer's inputs, of one target.

    layer: its name. weights: of the network, by name. directions: (k, inputs + 1), orthonormal, or (k, inputs)
    where each tensor moved by a sum of its own (`Recipe.own_gradients`). outside: (k,), how far
    each counts as outside, in [0, 1]. trust: what the span counts for, in [0, 1], by what noise leaves of it.
    """

    module: nn.Module
    layer: str
    weights: dict[str, Tensor]
    directions: Tensor
    outside: Tensor
    trust: float = 1.0

    @classmethod
    def of(cls, module: nn.Module, layout: Layout, target: Target) -> InputSpan | None:
        """Of the first linear layer with a bias and more neurons than there are images; None where there is none."""
        linear = ((n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear) and m.bias is not None)
        trained = ((n, m) for n, m in linear if {f"{n}.weight".lstrip("."), f"{n}.bias".lstrip(".")} <= {*layout.names})
        name = next((n for n, m in trained if m.out_features > target.count), None)
        if name is None or target.sparse is not None:  # rows of which components are missing span anything
            return None
        if target.recipe is not None and not target.recipe.own_gradients:
            return None
        gradient, prefix = layout.split(target.gradient), f"{name}." if name else ""
        rows = torch.cat([gradient[f"{prefix}weight"], gradient[f"{prefix}bias"][:, None]], 1)
        if target.recipe is not None and not target.recipe.own_gradients:  # the bias is of another sum of errors
            rows = rows[:, :-1]
        _, sizes, directions = torch.linalg.svd(rows.double(), full_matrices=False)
        if not sizes[0] > 0:
            return None
        noise = target.noise_std * sum(side**0.5 for side in rows.shape)  # the largest direction of noise alone
        least = SOFTENING + float(noise / sizes[0]) ** 2
        outside = least / ((sizes / sizes[0]).square() + least)
        weights = dict(layout.split(target.weights))
        trust = _trust(sizes[: target.count], float(noise))
        return cls(module, name, weights, directions.to(rows.dtype), outside.to(rows.dtype), trust)

    def inputs(self, images: Tensor) -> Tensor:
        """(n, inputs + 1) of images (n, *shape); (n, inputs) where the bias tells nothing of them."""
        first = inputs_of(self.module, self.weights, self.layer, images)[0]
        bias = self.directions.shape[1] - first.shape[1]
        return torch.cat([first, first.new_ones(len(images), bias)], 1)

    def distance(self, images: Tensor) -> Tensor:
        """The share of each image's squared input outside of the span, (n,) in [0, 1]."""
        inputs = self.inputs(images)
        inside = (inputs @ self.directions.T).square() @ (1 - self.outside)
        return 1 - inside / inputs.square().sum(1)

    def trusted_distance(self, images: Tensor) -> Tensor:
        """The images' mean distance, times `trust`; ()."""
        return self.trust * self.distance(images).mean()


def _trust(sizes: Tensor, noise: float) -> float:
    """What a span with directions of these sizes (n,), the largest first, counts for under noise whose largest has this
    size: the cube of the mean share of them that is no noise. An image asked for a place in a span that lacks some of
    its directions is drawn away from itself. The power is ours, picked on 25 images of Fashion-MNIST.

    >>> _trust(torch.tensor([2.0, 1.0]), 0.0), round(_trust(torch.tensor([2.0, 1.0]), 1.0), 4)
    (1.0, 0.0527)
    """
    clear = 1 - (noise / sizes.clamp_min(noise)).square() if noise else torch.ones_like(sizes)
    return clear.mean().item() ** 3


def inputs_of(module: nn.Module, weights: dict[str, Tensor], layer: str, images: Tensor) -> list[Tensor]:
    """What goes into a layer, (n, width) each time it is called, as images (n, *shape) go through the network.

    weights: of the network, by name. layer: its name.
    """
    seen: list[Tensor] = []
    hook = module.get_submodule(layer).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        functional_call(module, weights, (images,))
    finally:
        hook.remove()
    return seen


def with_span(objective: Objective, spans: list[InputSpan | None], weight: float) -> Objective:
    """`objective` plus `weight` times each candidate's mean distance from its target's span, times its `trust`.

    Args:
        objective: of T candidates. spans: of each, None for one without. weight: at least 0.
    """
    return with_distances(objective, [None if one is None else one.trusted_distance for one in spans], weight)
