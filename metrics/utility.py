"""How useful a model is: accuracy and loss on a test set."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of rows of `outputs` (n, k), k ≥ 2, whose largest entry is at `targets` (n,).

    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    if outputs.ndim != 2 or outputs.shape[1] < 2 or targets.shape != outputs.shape[:1] or not len(targets):
        raise ValueError(
            f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} must be (n, k) and (n,), n ≥ 1, k ≥ 2"
        )
    return int((outputs.argmax(1) == targets).sum()) / len(targets)


def loss_and_accuracy(
    predict: Callable[[Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    batch_size: int = 512,
) -> tuple[float, float | None]:
    """Mean loss and accuracy of `predict` on a test set, without gradients, in batches.

    inputs (n, …), targets (n,) integer classes or, for regression, real numbers, for which the accuracy is None.
    `loss` gives the mean over a batch. The caller puts a module into eval mode.
    """
    if len(inputs) != len(targets) or not len(inputs):
        raise ValueError(f"{len(inputs)} inputs and {len(targets)} targets: there must be as many, and at least one")
    with torch.no_grad():
        outputs = torch.cat([predict(batch) for batch in inputs.split(batch_size)])
        batches = zip(outputs.split(batch_size), targets.split(batch_size))
        total = sum(float(loss(o, t)) * len(t) for o, t in batches)
    return total / len(targets), None if targets.is_floating_point() else accuracy(outputs, targets)
