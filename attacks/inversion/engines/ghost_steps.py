"""Local training simulated on a chain of linear layers without ever forming a weight.

After k steps of SGD or momentum, with a proximal term or without, a layer's weights are W − lr Σ_j s_j D_jᵀ A_j, with
A_j the inputs and D_j the errors of step j: what they do to a step's inputs is what W does, less products with the few
rows of the steps before. So is the update that comes out, whose inner products are `ghost.py`'s over all steps' rows.
What runs through automatic differentiation is of the images' size: `Simulated` needs some thirty arrays of the weights'
size for each step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ....defenses.chain import Chain
from ....defenses.layout import Layout
from ..match.objective import Matching, Products
from ..read.target import Target
from .output_error import error_in_graph


class GhostSteps:
    """The objective of the update that E epochs' images would have made; what `Simulated` computes.

    Args:
        chain: the network. layout: of its parameters. target: with a recipe of a linear optimiser.
        labels: (E·n,) of all steps' images in order. matching: how updates are compared.

    Raises:
        ValueError: `can_ghost` says no.
    """

    def __init__(self, chain: Chain, layout: Layout, target: Target, labels: Tensor, matching: Matching) -> None:
        if target.recipe is None or not can_ghost(target, matching):
            raise ValueError(f"target {target.key!r}: only steps of SGD and momentum compared by L2 norms are low rank")
        self.recipe, self.matching = target.recipe, matching
        weights, observed = layout.split(target.weights), layout.split(target.gradient)
        self.bends = [layer.bend for layer in chain.layers]
        self.mean, self.std = chain.mean.to(target.weights), chain.std.to(target.weights)
        self.weights = [weights[layer.weight] for layer in chain.layers]
        self.biases = [weights[layer.bias] if layer.bias else None for layer in chain.layers]
        self.observed = [observed[layer.weight] for layer in chain.layers]
        self.observed_bias = [observed[layer.bias] if layer.bias else None for layer in chain.layers]
        squares = []
        for h, c in zip(self.observed, self.observed_bias):
            squares += [h.square().sum(), h.new_zeros(()) if c is None else c.square().sum()]
        self.squares = torch.stack(squares)[None]
        self.loss, self.labels = target.minimised, labels
        self.plain = target.loss == "cross_entropy"
        if self.plain:
            self.hot = F.one_hot(labels, len(self.weights[-1])).to(target.weights)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (1,) and its gradient with respect to `images` (1, E·n, *shape)."""
        x = images[0].detach().requires_grad_()
        with torch.enable_grad():
            dot, square = self._products(((x - self.mean) / self.std).flatten(1))
            held = Products(dot.detach()[None], square.detach()[None], self.squares)
            value, partial = self.matching.derivatives(held)
            total = partial.dot[0] @ dot + partial.square[0] @ square
            (gradient,) = torch.autograd.grad(total, x)
        return value, gradient[None]

    def _products(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """⟨update, observed⟩ and ‖update‖², tensor by tensor."""
        layers = range(len(self.weights))
        inputs: list[list[Tensor]] = [[] for _ in layers]  # by layer, of each step
        errors: list[list[Tensor]] = [[] for _ in layers]
        factor, first = self.recipe.lr * self.recipe.factor, 0
        for step, size in enumerate(self.recipe.sizes):
            moved = [factor * share for share in self.recipe.shares_after(step)]
            a, slopes = x[first : first + size], []
            for k in layers:
                inputs[k].append(a)
                z = F.linear(a, self.weights[k], self.biases[k])
                if step:
                    before = torch.cat(inputs[k][:-1])
                    with_bias = a @ before.T if self.biases[k] is None else a @ before.T + 1
                    z = z - with_bias @ _weighed(errors[k], moved)
                bend = self.bends[k]
                if bend is not None:
                    a, slope, _ = bend(z)
                    slopes.append(slope)
            if self.plain:
                error = (z.softmax(1) - self.hot[first : first + size]) / size
            else:
                error = error_in_graph(self.loss, z, self.labels[first : first + size])
            for k in reversed(layers):
                if k:
                    pulled = error @ self.weights[k]
                    if step:
                        earlier = _weighed(errors[k], moved)
                        pulled = pulled - (error @ earlier.T) @ torch.cat(inputs[k][:-1])
                errors[k].append(error)
                error = pulled * slopes[k - 1] if k else error
            first += size
        shares = [factor * share / self.recipe.scale for share in self.recipe.shares]
        dot, square = [], []
        for k in layers:
            a, d = torch.cat(inputs[k]), _weighed(errors[k], shares)
            dot.append(((a @ self.observed[k].T) * d).sum())
            square.append(((a @ a.T) * (d @ d.T)).sum())
            c = self.observed_bias[k]
            dot.append(torch.zeros_like(dot[-1]) if c is None else d.sum(0) @ c)
            square.append(torch.zeros_like(dot[-1]) if c is None else d.sum(0).square().sum())
        return torch.stack(dot), torch.stack(square)


def can_ghost(target: Target, matching: Matching) -> bool:
    """Whether a target's local training and the objective need no whole weights."""
    recipe = target.recipe
    weighed = recipe is not None and recipe.linear and recipe.own_gradients and recipe.step_clip is None
    return weighed and matching.name != "absolute" and not matching.needs_absolute


def _weighed(errors: list[Tensor], weights: list[float]) -> Tensor:
    return torch.cat([w * d for w, d in zip(weights, errors)])
