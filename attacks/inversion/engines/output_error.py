"""What a loss tells the last layer: its error at the outputs, and how that changes with them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ....defenses.losses import Loss

ErrorChange = Callable[[Tensor], Tensor]


def output_error(loss: Loss, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ErrorChange]:
    """The error (T·n, C) of T batches' losses at their outputs, and the change of it along a tangent of theirs. Of a
    loss without curvature, as |ŷ − y|, it is none.

    outputs: (T·n, C). labels: (T, n).
    """
    z = outputs.detach().requires_grad_()
    with torch.enable_grad():
        (error,) = torch.autograd.grad(_total(loss, z, labels), z, create_graph=True)

    def change(tangent: Tensor) -> Tensor:
        if not error.requires_grad:
            return torch.zeros_like(tangent)
        with torch.enable_grad():
            (moved,) = torch.autograd.grad(error, z, tangent, retain_graph=True, materialize_grads=True)
        return moved

    return error.detach(), change


def error_in_graph(loss: Loss, outputs: Tensor, labels: Tensor) -> Tensor:
    """The error (n, C) of one batch's loss, as a function of its outputs (n, C). labels: (n,)."""
    return torch.autograd.grad(_total(loss, outputs, labels[None]), outputs, create_graph=True)[0]


def _total(loss: Loss, outputs: Tensor, labels: Tensor) -> Tensor:
    values = loss.values(outputs, labels.flatten()).view(labels.shape)
    return (values.sum(1) / loss.size(labels)).sum()
