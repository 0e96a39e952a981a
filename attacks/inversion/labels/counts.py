"""From estimates of how often each class occurs to whole numbers, and to labels."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_counts(estimate: Tensor, count: int) -> Tensor:
    """The whole numbers (classes,) from 0 on, of sum `count`, nearest to an estimate (classes,) in squared distance.

    Nearest because steps of one, each where it costs least, are optimal for a separable convex cost. Of equal ones the
    lower class.

    Raises:
        ValueError: the estimate is not a finite vector, or the count is below 1.

    >>> nearest_counts(torch.tensor([1.6, 0.7, -0.4, 1.1]), 3).tolist()
    [1, 1, 0, 1]
    """
    if estimate.dim() != 1 or count < 1 or not torch.isfinite(estimate).all():
        raise ValueError(
            f"an estimate of shape {tuple(estimate.shape)} for a count of {count}: expected finite numbers (classes,)"
            " and a count of at least 1"
        )
    wanted = estimate.detach().double().cpu().clamp_min(0)
    counts = wanted.floor()
    while counts.sum() < count:
        counts[int((wanted - counts).argmax())] += 1
    while counts.sum() > count:
        spare = torch.where(counts > 0, wanted - counts, torch.inf)
        counts[int(spare.argmin())] -= 1
    return counts.long()


def as_labels(counts: Tensor) -> Tensor:
    """Sorted labels (n,) of counts (classes,).

    >>> as_labels(torch.tensor([2, 0, 1])).tolist()
    [0, 0, 2]
    """
    return torch.repeat_interleave(torch.arange(len(counts)), counts.long().cpu())
