"""Counts by least squares over class-wise rows: iLRG (Ma et al. 2023, AAAI: batch label restoration via gradients)."""

from __future__ import annotations

import torch
from torch import Tensor

from .counts import nearest_counts


def class_features(weight_gradient: Tensor, bias_gradient: Tensor) -> Tensor:
    """(classes, width): row c of G_W over g_b[c], the mean feature that class c's own images have, if they dominate.

    Where an entry of g_b is next to nothing the quotient says nothing, and is 0.
    """
    tiny = bias_gradient.abs() <= 1e-9 * bias_gradient.abs().max()
    safe = torch.where(tiny, torch.ones_like(bias_gradient), bias_gradient)
    return torch.where(tiny[:, None], torch.zeros_like(weight_gradient), weight_gradient / safe[:, None])


def counts_of(bias_gradient: Tensor, expected: Tensor, count: int) -> Tensor:
    """The whole numbers k (classes,) of sum n = `count` for which Σ_j k_j (P_j − e_j) is nearest to n·g_b.

    That is the mean cross-entropy's gradient at the bias, if images of class j have the softmax P_j on average: then
    the answer is exact. The scale of the gradient must be known: with another one a multiple of the stationary law
    of P fits as well.

    Args:
        bias_gradient: (classes,). expected: (classes, classes), row j the mean softmax of images of class j.
        count: n ≥ 1.

    Raises:
        ValueError: shapes do not fit, or a number is not finite.
    """
    classes = len(bias_gradient)
    if bias_gradient.shape != (classes,) or expected.shape != (classes, classes):
        raise ValueError(
            f"bias_gradient has shape {tuple(bias_gradient.shape)} and expected {tuple(expected.shape)}, they must be"
            " (classes,) and (classes, classes)"
        )
    errors = expected.double().T - torch.eye(classes, dtype=torch.float64)
    rows = torch.cat([errors, torch.ones(1, classes, dtype=torch.float64)])
    wanted = torch.cat([count * bias_gradient.double(), torch.tensor([float(count)], dtype=torch.float64)])
    return nearest_counts(torch.linalg.pinv(rows) @ wanted, count)


def restore(bias_gradient: Tensor, weight_gradient: Tensor, weight: Tensor, bias: Tensor, count: int) -> Tensor:
    """iLRG's counts (classes,): `counts_of` with the softmax of each class's recovered features.

    Exact where all images have the same features, so of one image always.

    Args:
        bias_gradient, bias: (classes,). weight_gradient, weight: (classes, width). count: n ≥ 1.
    """
    features = class_features(weight_gradient.double(), bias_gradient.double())
    expected = (features @ weight.double().T + bias.double()).softmax(1)
    return counts_of(bias_gradient, expected, count)
