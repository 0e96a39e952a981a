"""Linear equations of a symmetric matrix that is only known by its products, by preconditioned conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]

SOLVED = 1e-11  # share of the right side's norm


def conjugate_gradients(
    matrix: Operator, right: Tensor, steps: int, likely: Operator | None = None, solved: float = SOLVED
) -> Tensor:
    """x with matrix(x) = right, from 0: what is likely first.

    Args:
        matrix: symmetric, at least 0. right: flat. steps: at most. likely: a covariance, by which steps are drawn; None
            for all alike. solved: share of the right side's norm that may be left over.
    """
    x, left = torch.zeros_like(right), right.clone()
    drawn = left if likely is None else likely(left)
    along, size = drawn.clone(), torch.dot(left, drawn)
    end = size * solved**2
    for _ in range(steps):
        if not size > end:
            break
        moved = matrix(along)
        step = (size / torch.dot(along, moved)).item()
        x.add_(along, alpha=step)
        left.sub_(moved, alpha=step)
        drawn = left if likely is None else likely(left)
        before, size = size, torch.dot(left, drawn)
        along.mul_(size / before).add_(drawn)
    return x
