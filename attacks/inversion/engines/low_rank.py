"""Matrices of low rank as two thin factors: a linear layer's gradient that nobody noised has no more than one rank for
each image.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .matmul import Linear

_MORE = (
    8  # directions beside those that are looked for (Halko, Martinsson and Tropp 2011, arXiv:0909.4061, section 4.2)
)
_EXACT = 8  # times the precision of the numbers may be missing, of the norm: rounding of products as long as these
_PAYS = 0.5  # of the numbers may be in the factors


def numbers(outputs: int, inputs: int, rank: int) -> int:
    """In the factors of a matrix of this rank."""
    return (rank + _MORE) * (outputs + inputs)


@dataclass(frozen=True, eq=False)
class Thin:
    """left (o, k) @ right (k, i)."""

    left: Tensor
    right: Tensor

    @property
    def mT(self) -> Thin:
        return Thin(self.right.mT, self.left.mT)

    @classmethod
    def of(cls, matrix: Tensor, rank: int) -> Thin | None:
        """`matrix` (o, i) to rounding, by a few directions more than `rank`; None where it has more, or factors of that
        size would not make products cheaper.

        Its columns' span is that of its products with random vectors, always the same ones.

        >>> thin = Thin.of(torch.outer(torch.arange(40.0), torch.arange(60.0)), rank=1)
        >>> thin.left.shape, thin.right.shape
        (torch.Size([40, 9]), torch.Size([9, 60]))
        >>> Thin.of(torch.eye(40), rank=1) is None
        True
        """
        outputs, inputs = matrix.shape
        if numbers(outputs, inputs, rank) > _PAYS * outputs * inputs:
            return None
        rng = torch.Generator().manual_seed(0)
        drawn = torch.randn(inputs, rank + _MORE, generator=rng).to(matrix)
        left = torch.linalg.qr(matrix @ drawn).Q
        right = left.mT @ matrix
        missing = torch.addmm(matrix, left, right, alpha=-1).norm()
        exact = missing <= _EXACT * torch.finfo(matrix.dtype).eps * matrix.norm()
        return cls(left, right) if exact else None


class ThinLinear:
    """rows ↦ rows @ matrix.T for about `rows` rows at a time, as `Linear`."""

    def __init__(self, matrix: Thin, rows: int) -> None:
        self.first, self.second = Linear(matrix.right, rows), Linear(matrix.left, rows)

    def __call__(self, rows: Tensor) -> Tensor:
        return self.second(self.first(rows))
