"""Labels read off the sign and size of a classifier's bias gradient alone: nothing but its direction is needed."""

from __future__ import annotations

import torch
from torch import Tensor


def one_label(bias_gradient: Tensor) -> int:
    """iDLG (Zhao et al. 2020, arXiv:2001.02610): of one image's gradient (classes,) only its own class is negative.

    >>> one_label(torch.tensor([0.2, -0.7, 0.5]))
    1
    """
    return int(bias_gradient.argmin())


def distinct_labels(bias_gradient: Tensor, count: int) -> Tensor:
    """The `count` most negative classes (n,), sorted: of a batch in which no label comes twice (Yin et al. 2021,
    arXiv:2104.07586, on the bias instead of the weight's rows, so that features of either sign will do).

    Raises:
        ValueError: there are fewer classes than labels.

    >>> distinct_labels(torch.tensor([0.25, -0.5, 0.25, -0.25, 0.25]), 2).tolist()
    [1, 3]
    """
    if not 1 <= count <= len(bias_gradient):
        raise ValueError(f"count is {count}, of {len(bias_gradient)} classes at most so many can be distinct labels")
    return bias_gradient.argsort()[:count].sort().values


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
