"""Labels of a batch read off the gradient of the classifier's bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...defenses.layout import Layout
from .target import Target


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


def classifier_bias(module: nn.Module) -> str:
    """The name of the bias of the last linear layer of `module`.

    Raises:
        ValueError: there is none, or it has no bias.
    """
    heads = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not heads:
        raise ValueError(
            "labels cannot be inferred: the network has no linear layer as its classifier; give the labels"
            " (labels='known')"
        )
    name, head = heads[-1]
    if head.bias is None:
        raise ValueError(
            f"labels cannot be inferred: the classifier {name!r} has no bias; give the labels (labels='known')"
        )
    return f"{name}.bias" if name else "bias"


def infer_labels(module: nn.Module, layout: Layout, target: Target) -> Tensor:
    """`labels_from_bias` for the last linear layer of `module`.

    Raises:
        ValueError: as `classifier_bias`.
    """
    return labels_from_bias(layout.split(target.gradient)[classifier_bias(module)], target.count)
