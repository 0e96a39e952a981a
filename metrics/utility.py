"""How useful a model is: accuracy on a test set, beside what no model gets."""

from __future__ import annotations

from torch import Tensor


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of rows of `outputs` (n, k), k ≥ 2, whose largest entry is at `targets` (n,).

    >>> import torch
    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    if outputs.ndim != 2 or outputs.shape[1] < 2 or targets.shape != outputs.shape[:1] or not len(targets):
        raise ValueError(
            f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} must be (n, k) and (n,), n ≥ 1, k ≥ 2"
        )
    return int((outputs.argmax(1) == targets).sum()) / len(targets)


def majority_accuracy(targets: Tensor) -> float:
    """The accuracy of the best answer that looks at no record: the share of class numbers `targets` (n,), n ≥ 1, that
    are of the most frequent class. A model that has no more has learned nothing that is of use.

    Raises:
        ValueError: there are no targets.

    >>> import torch
    >>> majority_accuracy(torch.tensor([0, 1, 1, 2]))
    0.5
    """
    if targets.ndim != 1 or not len(targets):
        raise ValueError(f"targets {tuple(targets.shape)} must be (n,), n ≥ 1")
    return int(targets.bincount().max()) / len(targets)
