"""What is known of images beforehand: they are smooth (total variation) and their pixels lie in [0, 1] (box)."""

from __future__ import annotations

import torch
from torch import Tensor


def total_variation(images: Tensor) -> tuple[Tensor, Tensor]:
    """Anisotropic total variation mean|∂x| + mean|∂y| of each candidate, and its gradient.

    images: (T, n, c, h, w). Returns (T,), each mean taken over a candidate's images, channels and positions with a
    neighbour, and a subgradient of the same shape as `images`, 0 where neighbours are equal. This is the scale of
    Geiping et al.'s own code (JonasGeiping/invertinggradients, metrics.py), except that pixels here lie in [0, 1]: a
    weight quoted for images normalised by a standard deviation s is worth 1/s as much here.

    >>> value, gradient = total_variation(torch.tensor([0.0, 1.0, 1.0, 1.0]).view(1, 1, 1, 2, 2))
    >>> value.item(), gradient.flatten().tolist()
    (1.0, [-1.0, 0.5, 0.5, 0.0])
    """
    value = images.new_zeros(len(images))
    gradient = torch.zeros_like(images)
    for axis in (-1, -2):
        length = images.shape[axis]
        if length < 2:
            continue
        step = images.diff(dim=axis)
        count = step[0].numel()
        value += torch.linalg.vector_norm(step.flatten(1), 1, dim=1) / count
        step.sign_()
        gradient.narrow(axis, 1, length - 1).add_(step, alpha=1 / count)
        gradient.narrow(axis, 0, length - 1).sub_(step, alpha=1 / count)
    return value, gradient


def into_box(images: Tensor) -> Tensor:
    """The nearest images with pixels in [0, 1], in place."""
    return images.clamp_(0, 1)


def tv_for_noise(noise_share: float) -> float:
    """The weight .01 + .4·noise_share of the total variation; noise_share in [0, 1] of the value's energy is noise.

    Gaussian noise of variance σ² makes ‖g − g*‖²/(2σ²) the log-likelihood, so a prior of fixed strength weighs ∝
    σ²/‖g*‖² against ‖g − g*‖²/‖g*‖²: proportional to the share. The two numbers are ours, fitted on `photos` with a
    3×1024 network and 25 images.
    """
    if not 0 <= noise_share <= 1:
        raise ValueError(f"noise_share is {noise_share}, it must be between 0 and 1")
    return 0.01 + 0.4 * noise_share
