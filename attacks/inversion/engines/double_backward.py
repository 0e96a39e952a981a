"""Gradient matching on any network, by automatic differentiation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....defenses.layout import Layout
from ..match.objective import Matching
from ..read.sparse import beyond_sent
from ..read.target import Target


class DoubleBackward:
    """Objective and image gradient for `repeat` candidates of each of several targets that share weights and count.

    labels: (targets, n). Same interface as `Ghost`.

    One candidate after the other: its gradient g with a graph, then the derivative of ⟨g, v⟩ with v from
    `Matching.direction`, which spares the graph over everything of the weights' size that differentiating the
    objective itself would record. Why no `vmap`: measured on one core, milliseconds a candidate at four candidates,
    this against vmapped forward-over-reverse against its loop: CNN6, 20 images 51, 74, 53; sigmoid LeNet, 8 images 3.0,
    4.1, 4.2; MLP of 256, 20 images 3.5, 8.8, 5.9; only LeNet with one image gains (1.8, 1.6, 2.8). `vmap` turns
    convolutions into grouped ones.
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
        self.module, self.labels, self.repeat, self.matching = module, labels, repeat, matching
        self.loss = targets[0].minimised
        self.weights = {name: w.detach().requires_grad_() for name, w in layout.split(targets[0].weights).items()}
        self.observed = [list(layout.split(t.gradient).values()) for t in targets]
        left_out = [t.sparse_by(matching.name) for t in targets]
        self.sent = [None if s is None else list(layout.split(s.sent).values()) for s in left_out]
        self.least = [0.0 if s is None else s.least for s in left_out]

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        losses, gradients = zip(*(self._one(x, t) for t, x in enumerate(images)))
        return torch.stack(losses), torch.stack(gradients)

    def _one(self, images: Tensor, t: int) -> tuple[Tensor, Tensor]:
        return self.matched(images, t)[:2]

    def matched(
        self, images: Tensor, t: int, weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Of one candidate's images (n, *shape): the objective (), its gradient with respect to them, and, of other
        weights by name than the targets' own, with respect to those weights.
        """
        which = t // self.repeat
        observed, sent = self.observed[which], self.sent[which]
        at = self.weights if weights is None else {name: w.detach().requires_grad_() for name, w in weights.items()}
        own = list(at.values())
        x = images.detach().requires_grad_()
        with torch.enable_grad():
            loss = self.loss.mean(functional_call(self.module, dict(at), (x,)), self.labels[which])
            gradient = torch.autograd.grad(loss, own, create_graph=True)
        fixed = [g.detach() for g in gradient]
        if sent is None:
            value, direction = self.matching.direction(t, fixed, observed)
        else:
            fixed, free = beyond_sent(fixed, sent, self.least[which])
            value, direction = self.matching.direction(t, fixed, observed)
            direction = [v * mask for v, mask in zip(direction, free)]
        if weights is None:
            (image_gradient,) = torch.autograd.grad(gradient, x, grad_outputs=direction)
            return value, image_gradient, []
        image_gradient, *of_weights = torch.autograd.grad(
            gradient, (x, *own), grad_outputs=direction, materialize_grads=True
        )
        return value, image_gradient, of_weights
