"""Training chains of linear layers by hand: batched matrix products, no autograd graph, no gradient kept where plain SGD needs none.

For a linear layer the batch gradient is Σ_i δ_i a_iᵀ / B, so a step of plain SGD is one `baddbmm_` into the weights. Measured on one core,
MLP 784-200-200-10 at batch 10: 130 clients of 600 records a second in chunks of 8, against 57 of a plain PyTorch loop; chunks that
leave the processor's cache fall to 74.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .chain import Chain, open_chain
from .layout import Layout
from .local import LocalJob

Slope = Callable[[Tensor, Tensor], Tensor]      # outputs (K, B, C), targets (K, B) -> derivative of each example's loss (K, B, C)


def _cross_entropy_slope(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.softmax(-1) - F.one_hot(targets, outputs.shape[-1]).to(outputs.dtype)


def _squared_error_slope(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs - targets.to(outputs.dtype).unsqueeze(-1)


SLOPES: dict[str, Slope] = {"cross_entropy": _cross_entropy_slope, "squared_error": _squared_error_slope}


@dataclass(frozen=True, eq=False)
class ChainTrainer:
    """Gradients of K models (K, d) on K batches of rows (K, B), −1 where a batch is shorter; equal to the generic engine's but for rounding."""

    chain: Chain
    layout: Layout
    inputs: Tensor
    targets: Tensor
    slope: Slope
    muted: tuple[int, ...] = ()

    @classmethod
    def of(cls, job: LocalJob) -> ChainTrainer | None:
        """A trainer for the job's model and loss, or None where they are not of this kind."""
        chain, slope = open_chain(job.module), SLOPES.get(job.training.loss)
        if chain is None or slope is None:
            return None
        return cls(chain, job.layout, job.inputs, job.targets, slope, getattr(job, "muted", ()))

    def gradient(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mean gradients (K, d)."""
        found = torch.empty_like(weights)
        self._descend(weights, found, rows, 0.0, 1.0)
        return found

    def sgd_step(self, weights: Tensor, rows: Tensor, lr: float) -> None:
        """weights −= lr · mean gradient, in place."""
        self._descend(weights, weights, rows, 1.0, -lr)

    def _descend(self, weights: Tensor, into: Tensor, rows: Tensor, beta: float, alpha: float) -> None:
        """into = beta·into + alpha·gradient at `weights`; `into` may be `weights`: a layer's weights are read before they are written."""
        taken, safe = rows >= 0, rows.clamp_min(0)
        for row in self.muted:
            taken &= rows != row
        x = self.inputs[safe].to(weights.dtype)
        chain = self.chain
        a = ((x - chain.mean.to(x.dtype)) / chain.std.to(x.dtype)).flatten(2)
        named, target = self.layout.split(weights), self.layout.split(into)
        inputs, slopes = [], []
        for layer in chain.layers:
            w = named[layer.weight]
            inputs.append(a)
            z = torch.bmm(a, w.mT) if layer.bias is None else torch.baddbmm(named[layer.bias].unsqueeze(1), a, w.mT)
            if layer.bend is None:
                a = z
            else:
                a, bent, _ = layer.bend(z)
                slopes.append(bent)
        counts = (rows >= 0).sum(1).clamp_min(1)
        delta = self.slope(a, self.targets[safe]) * (taken / counts.unsqueeze(1)).to(a.dtype).unsqueeze(-1)
        for k in range(len(chain.layers) - 1, -1, -1):
            layer = chain.layers[k]
            back = torch.bmm(delta, named[layer.weight]).mul_(slopes[k - 1]) if k else None
            target[layer.weight].baddbmm_(delta.mT, inputs[k], beta=beta, alpha=alpha)
            if layer.bias is not None:
                summed = alpha * delta.sum(1)
                target[layer.bias].copy_(summed if beta == 0 else target[layer.bias] * beta + summed)
            if back is not None:
                delta = back
