"""What lies between an activation and the next layer of a stack: pooling, and rows made of images.

Both are linear once it is known which pixels of a maximum pooling are the largest: a tangent takes the way forth, an
error the way back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Pool = nn.AvgPool2d | nn.MaxPool2d
_ATEN = torch.ops.aten


@dataclass(frozen=True)
class Passage:
    """pool: one that `takes_pool`, of images (n, channels, h, w); None for none. into, out: from its images to what the
    next layer takes, and back; None where that takes images.
    """

    pool: Pool | None = None
    into: Callable[[Tensor], Tensor] | None = None
    out: Callable[[Tensor], Tensor] | None = None

    def first(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Where an activation goes, and what the other two are given of it as `seen`."""
        seen: tuple[Tensor, ...] = ()
        if isinstance(self.pool, nn.MaxPool2d):
            pooled, largest = F.max_pool2d_with_indices(x, _pair(self.pool.kernel_size), _pair(self.pool.stride))
            x, seen = pooled, (x, largest)
        elif self.pool is not None:
            x, seen = F.avg_pool2d(x, self.pool.kernel_size, self.pool.stride), (x,)
        return (x if self.into is None else self.into(x)), seen

    def forth(self, tangent: Tensor, seen: tuple[Tensor, ...]) -> Tensor:
        """Where its tangent goes."""
        if isinstance(self.pool, nn.MaxPool2d):
            tangent = tangent.flatten(2).gather(2, seen[1].flatten(2)).view_as(seen[1])
        elif self.pool is not None:
            tangent = F.avg_pool2d(tangent, self.pool.kernel_size, self.pool.stride)
        return tangent if self.into is None else self.into(tangent)

    def back(self, error: Tensor, seen: tuple[Tensor, ...]) -> Tensor:
        """Where the next layer's error goes."""
        error = error if self.out is None else self.out(error)
        if self.pool is None:
            return error
        size: list[Any] = [_pair(self.pool.kernel_size), _pair(self.pool.stride), (0, 0)]
        if isinstance(self.pool, nn.MaxPool2d):
            return _ATEN.max_pool2d_with_indices_backward(error, seen[0], *size, (1, 1), False, seen[1])
        return _ATEN.avg_pool2d_backward(error, seen[0], *size, False, True, None)


def _pair(size: Any) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def takes_pool(part: nn.Module) -> TypeGuard[Pool]:
    """Whether `Passage` does what this layer does."""
    if type(part) is nn.MaxPool2d:
        plain = _pair(part.padding) == (0, 0) and _pair(part.dilation) == (1, 1) and not part.return_indices
        return plain and not part.ceil_mode
    if type(part) is nn.AvgPool2d:
        return _pair(part.padding) == (0, 0) and not part.ceil_mode and part.divisor_override is None
    return False


def pooled(pool: Pool, height: int, width: int) -> tuple[int, int]:
    """The size that images of this size get.

    >>> pooled(nn.MaxPool2d(2), 9, 8)
    (4, 4)
    """
    each = zip((height, width), _pair(pool.kernel_size), _pair(pool.stride))
    high, wide = ((size - kernel) // stride + 1 for size, kernel, stride in each)
    return high, wide
