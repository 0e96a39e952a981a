"""How useful a model is: accuracy on a test set."""

from __future__ import annotations

from torch import Tensor


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of rows of `outputs` (n, k), k ≥ 2, whose largest entry is at `targets` (n,).

    >>> from torch import tensor
    >>> accuracy(tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), tensor([0, 1, 1]))
    0.6666666666666666
    """
    if outputs.ndim != 2 or outputs.shape[1] < 2 or targets.shape != outputs.shape[:1] or not len(targets):
        raise ValueError(
            f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} must be (n, k) and (n,), n ≥ 1, k ≥ 2"
        )
    return int((outputs.argmax(1) == targets).sum()) / len(targets)
