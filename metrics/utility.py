"""How useful a model is: accuracy on a test set, beside what no model gets."""

from __future__ import annotations

import torch
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


def class_balanced_accuracy(predicted: Tensor, targets: Tensor) -> float:
    """The mean over classes of the share of a class's records that are right (Brodersen et al. 2010): an answer that
    looks at no record gets 1/classes, however unequal the classes are.

    Args:
        predicted, targets: (n,), class numbers, n ≥ 1. A class of which `targets` has no record is left out.

    >>> import torch
    >>> class_balanced_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.5
    """
    count = targets.bincount()
    right = targets[predicted == targets].bincount(minlength=len(count))
    return float((right[count > 0].double() / count[count > 0]).mean())


def area_under_roc(scores: Tensor, targets: Tensor) -> float | None:
    """P(score of a record of class 1 > score of one of class 0) + ½ P(equal); None where a class has no record.

    Args:
        scores: (n,), larger for class 1. targets: (n,), of 0 and 1.

    >>> import torch
    >>> area_under_roc(torch.tensor([2.0, 1.0, 3.0, 2.0]), torch.tensor([0, 0, 1, 1]))
    0.875
    """
    ones, zeros = scores[targets == 1].contiguous(), scores[targets == 0].sort().values
    if not len(ones) or not len(zeros):
        return None
    below, not_above = torch.searchsorted(zeros, ones), torch.searchsorted(zeros, ones, right=True)
    return float((below + not_above).double().mean()) / (2 * len(zeros))
