"""How well the labels of a batch were inferred, as a multiset, and what one gets without looking."""

from __future__ import annotations

import torch
from torch import Tensor


def label_accuracy(found: Tensor, truth: Tensor) -> float:
    """Σ_c min(found of c, true of c) / n: the share of labels (n,) that are right, if their order does not count.

    Raises:
        ValueError: nothing to compare, or not as many found as true ones.

    >>> label_accuracy(torch.tensor([0, 0, 1, 2]), torch.tensor([2, 0, 1, 1]))
    0.75
    """
    if not len(truth) or found.shape != truth.shape or truth.dim() != 1:
        raise ValueError(f"found labels {tuple(found.shape)} and true ones {tuple(truth.shape)}: expected equally many")
    classes = int(torch.cat([found, truth]).max()) + 1
    both = torch.minimum(_counts(found, classes), _counts(truth, classes))
    return float(both.sum()) / len(truth)


def label_control(truth: Tensor, auxiliary: Tensor, classes: int) -> float:
    """The accuracy of the best of two guesses that see no message: the same number of each class (the first ones by one
    more), and always the most frequent class of the attacker's records.

    Args:
        truth: (n,). auxiliary: (m,) labels of the attacker's own records, may be empty. classes: of the task.
    """
    guesses = [(torch.arange(len(truth)) % classes).to(truth)]
    if len(auxiliary):
        guesses.append(_counts(auxiliary, classes).argmax().expand(len(truth)).to(truth))
    return max(label_accuracy(guess, truth) for guess in guesses)


def _counts(labels: Tensor, classes: int) -> Tensor:
    return torch.bincount(labels.long().cpu(), minlength=classes)
