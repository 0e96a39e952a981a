"""From estimates of how often each class occurs, or the gradient of a classifier's bias alone, to labels."""

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


def labels_from_bias(bias_gradient: Tensor, count: int) -> Tensor:
    """The `count` labels (n,), sorted, repeats allowed, that explain the gradient (classes,) of a classifier's bias.

    For a mean cross-entropy the gradient at class c is (mean probability of c) − n_c/n: only present classes can be
    negative, and each label of a class adds the same amount m = Σ_{negative} gradient / n. Every negative class gets
    one label, most negative first, and is raised by −m; then the lowest class gets one until there are `count` (Wainakh
    et al. 2022, arXiv:2105.09369, as corrected to biases and repeats in JonasGeiping/breaching, "bias-corrected"). Only
    the entries' ratios matter, so an unknown scale does not. It weakens with training and fails under noise whose std
    comes near 1/classes. If no entry is negative (noise alone can do that) m is −Σ|gradient| / n.

    >>> labels_from_bias(torch.tensor([0.25, -0.5, 0.25, -0.25, 0.25]), 3).tolist()
    [1, 1, 3]
    """
    if bias_gradient.dim() != 1 or count < 1:
        raise ValueError(
            f"bias_gradient has shape {tuple(bias_gradient.shape)} and count is {count}, expected (classes,) and at"
            " least 1"
        )
    left = bias_gradient.detach().double().clone()
    negative = left < 0
    impact = (left[negative].sum() if negative.any() else -left.abs().sum()) / count
    present = left.argsort()[: min(count, int(negative.sum()))]
    left[present] -= impact
    labels = present.tolist()
    while len(labels) < count:
        lowest = int(left.argmin())
        labels.append(lowest)
        left[lowest] -= impact
    return torch.tensor(sorted(labels))
