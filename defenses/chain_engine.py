"""Training chains of linear layers by hand: batched matrix products, no autograd graph, no gradient that SGD needs not.

For a linear layer the batch gradient is Σ_i δ_i a_iᵀ / B, so a step of plain SGD is one `baddbmm_` into the weights.
How many models go into one chunk, so that their weights stay in the processor's cache, says `engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .chain import Chain, open_chain
from .layout import Layout
from .local import LocalJob
from .losses import Link, loss_of

Weights = Sequence[tuple[Tensor, Tensor | None]]  # by layer: weights (K, out, in), biases (K, 1, out)


@dataclass(frozen=True, eq=False)
class ChainTrainer:
    """Gradients of K models (K, d) on K batches of rows (K, B), −1 where a batch is shorter.

    They are equal to the generic engine's but for rounding.
    """

    chain: Chain
    layout: Layout
    inputs: Tensor
    targets: Tensor
    link: Link
    muted: tuple[int, ...]

    @classmethod
    def of(cls, job: LocalJob) -> ChainTrainer | None:
        """A trainer for the job's model and loss, or None where they are not of this kind."""
        chain, link = open_chain(job.module), loss_of(job.training.loss).link
        if chain is None or link is None:
            return None
        return cls(chain, job.layout, job.inputs, job.targets, link, job.muted)

    def gradient(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mean gradients (K, d)."""
        gradients = torch.zeros_like(weights)
        layers, target = (self._by_layer(self.layout.split(flat)) for flat in (weights, gradients))
        for step in self._steps(weights.dtype, rows.unsqueeze(1)):
            self._descend(layers, target, *step, 1.0)
        return gradients

    @torch.inference_mode()
    def sgd(self, start: Tensor, batches: Tensor, lrs: Sequence[float]) -> Tensor:
        """The weights (K, d) after plain SGD, weights −= lr · mean gradient, over batches (K, steps, B), lrs (steps).

        It works on tensors of their own: rows of `start` begin anywhere in a cache line, and products with them take
        8 % longer.
        """
        named = {
            name: value.clone(memory_format=torch.contiguous_format) for name, value in self.layout.split(start).items()
        }
        layers = self._by_layer(named)
        for step, lr in zip(self._steps(start.dtype, batches), lrs, strict=True):
            self._descend(layers, layers, *step, -lr)
        return torch.cat([value.flatten(1) for value in named.values()], 1)

    def _by_layer(self, named: dict[str, Tensor]) -> Weights:
        return [
            (named[layer.weight], None if layer.bias is None else named[layer.bias].unsqueeze(1))
            for layer in self.chain.layers
        ]

    def _steps(self, dtype: torch.dtype, batches: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """By step: normalised inputs (K, B, n), aims (K, B, C), each record's share of its batch's mean (K, B, 1).

        The next step overwrites the inputs. A share is 0 where there is no record, or a muted one.
        """
        batches = batches.transpose(0, 1).contiguous()
        taken = batches >= 0
        counts = taken.sum(-1, keepdim=True).clamp_min(1)
        for row in self.muted:
            taken &= batches != row
        shares = (taken.to(dtype) / counts).unsqueeze(-1)
        rows = batches.clamp_min(0)
        width = self.layout.shapes[self.layout.names.index(self.chain.layers[-1].weight)][0]
        aims = self.link.aim(self.targets.index_select(0, rows.flatten()).view(rows.shape), width).to(dtype)
        flat, mean, scale = self.inputs.flatten(1), self.chain.mean.to(dtype), self.chain.std.to(dtype).reciprocal()
        normalised = bool(mean.any() or (scale != 1).any())
        _, models, size = rows.shape
        # One for all steps: memory of this size would be mapped anew each time.
        scratch = flat.new_empty(models * size, flat.shape[1])
        for taken_now, aim, share in zip(rows.flatten(1), aims, shares):
            x = torch.index_select(flat, 0, taken_now, out=scratch).to(dtype)
            if normalised:
                x.view(-1, *self.inputs.shape[1:]).sub_(mean).mul_(scale)
            yield x.view(models, size, -1), aim, share

    def _descend(
        self, weights: Weights, target: Weights, a: Tensor, aims: Tensor, shares: Tensor, alpha: float
    ) -> None:
        """target += alpha · gradient at `weights`.

        Both may be the same: a layer's weights are read before they are written.
        """
        inputs, slopes = [], []
        for layer, (w, b) in zip(self.chain.layers, weights):
            inputs.append(a)
            z = torch.bmm(a, w.mT) if b is None else torch.baddbmm(b, a, w.mT)
            if layer.bend is None:
                a = z
            else:
                a, bent, _ = layer.bend(z)
                slopes.append(bent)
        delta = self.link.error(a, aims).mul_(shares)
        for k in range(len(weights) - 1, -1, -1):
            back = torch.bmm(delta, weights[k][0]).mul_(slopes[k - 1]) if k else delta
            w, b = target[k]
            w.baddbmm_(delta.mT, inputs[k], alpha=alpha)
            if b is not None:
                b.add_(delta.sum(1, keepdim=True), alpha=alpha)
            delta = back
