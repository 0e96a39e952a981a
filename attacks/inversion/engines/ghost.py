"""Gradient matching on a chain of linear layers without ever forming a weight gradient.

A linear layer's batch gradient is G = Σ_i δ_i a_iᵀ (a: its inputs, δ: the loss's derivative at its outputs), so ⟨G, G*⟩
= Σ_i δ_iᵀ G* a_i and ‖G‖² = Σ_ij (a_i·a_j)(δ_i·δ_j). The derivative with respect to the images is ∇_x ⟨∇_θ L, v⟩ with v
= p G* + 2q G (`objective.py`): a forward pass of tangents along v and a backward pass of *their* derivatives, in which
G appears only as δᵀa again. All by hand, so nothing is recorded.

Cost for a layer of i inputs, o outputs and N images, in units of its one N×i×o product (2N·i·o operations): forward 1,
back-propagation 1, a G*ᵀ 1, tangent forward 1, tangent backward 2 (W and G*); on the first layer 4 instead of 6, as
images have no tangent and their own error is not needed. That is the floor of this method, but for a message that
nobody noised, whose two products G* cost next to nothing (`candidate_products.py`); the Gram matrices add 2N²(i + o) a
candidate. For 3072-1024-1024-1024-100 and 25 images: 1.3 GFLOP an iteration. Double backward needs about 1.6 GFLOP, and
reads and writes arrays of the size of the weights some ten times beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ....defenses.chain import Chain
from ....defenses.layout import Layout
from ..match.objective import Matching, Products
from ..read.target import Target
from .candidate_products import Messages, OwnProducts
from .output_error import output_error
from .parts import Linear, Some


class Ghost:
    """Objective and image gradient for `repeat` candidates of each of several targets that share weights and count.

    labels: (targets, n). Calling it with images (T, n, *shape), T = targets · repeat in the targets' order, gives the
    objective (T,) and its
    gradient (T, n, *shape). Raises ValueError for an L1 clip to be modelled: ‖G‖₁ has no ghost product.
    """

    def __init__(
        self, chain: Chain, layout: Layout, targets: Sequence[Target], labels: Tensor, repeat: int, matching: Matching
    ) -> None:
        if matching.needs_absolute:
            raise ValueError("the clip order is 1, whose norm cannot be had from activations: use `DoubleBackward`")
        first = targets[0]
        weights = layout.split(first.weights)
        rows = repeat * first.count  # of one target's candidates together
        messages = Messages.of([t.gradient for t in targets], rows, [t.noise_share for t in targets])
        basis, own = layout.split(messages.basis), (messages.coefficients, rows, len(targets), first.count)
        observed = [layout.split(t.gradient) for t in targets]
        self.matching, self.count, self.some = matching, first.count, Some(0, repeat * len(targets), repeat)
        self.mean, self.std = chain.mean.to(first.weights), chain.std.to(first.weights)
        self.bends = [layer.bend for layer in chain.layers]
        everyone = rows * len(targets)
        self.biases = [weights[layer.bias] if layer.bias else None for layer in chain.layers]
        self.forth = [Linear(weights[layer.weight], everyone) for layer in chain.layers]  # rows @ Wᵀ
        self.back = [Linear(weights[layer.weight].T, everyone) for layer in chain.layers]  # rows @ W
        self.observed = [OwnProducts.both_ways(basis[layer.weight], *own) for layer in chain.layers]  # there and back
        self.observed_bias = [  # (T, 1, o)
            torch.stack([o[layer.bias] for o in observed]).repeat_interleave(repeat, 0)[:, None] if layer.bias else None
            for layer in chain.layers
        ]
        squares = []
        for layer, c in zip(chain.layers, self.observed_bias):
            whole = torch.stack([o[layer.weight].square().sum() for o in observed])
            squares.append(whole.repeat_interleave(repeat))
            squares.append(torch.zeros_like(squares[-1]) if c is None else c.square().sum((1, 2)))
        self.squares = torch.stack(squares, 1)
        classes = len(weights[chain.layers[-1].weight])
        self.loss, self.labels = first.minimised, labels.repeat_interleave(repeat, 0)
        self.plain = first.loss == "cross_entropy"
        if self.plain:
            self.hot = F.one_hot(self.labels.flatten(), classes).to(first.weights)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        T, n, last = len(images), self.count, len(self.forth) - 1
        inputs, slopes, curves = [((images - self.mean) / self.std).flatten(2).flatten(0, 1)], [], []
        for forth, bias, bend in zip(self.forth, self.biases, self.bends):
            z = forth(inputs[-1], bias)
            if bend is not None:
                value, slope, curve = bend(z)
                inputs.append(value)
                slopes.append(slope)
                curves.append(curve)
        if self.plain:
            probabilities = z.softmax(1)
            errors = [(probabilities - self.hot) / n]
        else:
            error, changed = output_error(self.loss, z, self.labels)
            errors = [error]
        pulled: list[Tensor] = []  # errors before the activation's slope
        for k in range(last, 0, -1):
            pulled.insert(0, self.back[k](errors[0]))
            errors.insert(0, pulled[0] * slopes[k - 1])

        A = [a.view(T, n, -1) for a in inputs]
        D = [d.view(T, n, -1) for d in errors]
        # a G*ᵀ, needed for ⟨G, G*⟩ and by the tangents
        along = [there(a, self.some) for (there, _), a in zip(self.observed, inputs)]
        grams_a, grams_d, sums = [a @ a.mT for a in A], [d @ d.mT for d in D], [d.sum(1, keepdim=True) for d in D]
        dot, square = [], []
        for k in range(last + 1):
            dot.append((along[k] * D[k]).sum((1, 2)))
            square.append((grams_a[k] * grams_d[k]).sum((1, 2)))
            c = self.observed_bias[k]
            dot.append(torch.zeros_like(dot[-1]) if c is None else (sums[k] * c).sum((1, 2)))
            square.append(torch.zeros_like(square[-1]) if c is None else sums[k].square().sum((1, 2)))
        loss, partial = self.matching.derivatives(Products(torch.stack(dot, 1), torch.stack(square, 1), self.squares))
        p, q = partial.dot[:, :, None, None], 2 * partial.square[:, :, None, None]  # v_k = p_k G*_k + q_k G_k

        moved: Tensor | None = None  # tangent of inputs[k]; the images have none
        tangents = []  # of every layer's outputs
        for k in range(last + 1):
            w, b = 2 * k, 2 * k + 1
            tangent = torch.baddbmm(p[:, w] * along[k], q[:, w] * grams_a[k], D[k])
            c = self.observed_bias[k]
            if c is not None:
                tangent += p[:, b] * c + q[:, b] * sums[k]
            tangent = tangent.flatten(0, 1)
            if moved is not None:
                tangent += self.forth[k](moved)
            tangents.append(tangent)
            moved = tangent * slopes[k] if k < last else None

        # The change of errors[last].
        if self.plain:
            change = probabilities * (tangents[-1] - (probabilities * tangents[-1]).sum(1, keepdim=True)) / n
        else:
            change = changed(tangents[-1])
        for k in range(last, -1, -1):
            w = 2 * k
            back = torch.bmm(q[:, w] * grams_d[k], A[k]).flatten(0, 1)
            back += self.back[k](change)
            back += self.observed[k][1]((p[:, w] * D[k]).flatten(0, 1), self.some).flatten(0, 1)
            if k:
                change = back * slopes[k - 1]
                curve = curves[k - 1]
                if curve is not None:
                    change += curve * tangents[k - 1] * pulled[k - 1]
        return loss, back.view_as(images) / self.std
