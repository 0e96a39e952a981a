"""Products of every candidate's rows with its own target's message, where messages may have much in common.

Cells of one grid often differ in how much of the same noise was added and in how the same gradient was scaled: all
their messages lie in the span of two vectors. One candidate's message is read from memory for its few rows alone, and
the basis once for the rows of all. Whether that is so is found from the messages, nothing else. And a linear layer's
gradient that nobody noised has no more than one rank for each image, so that products with it go through thin factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .parts import Linear, Some

_EXACT = 1e-6  # of a message's norm may be missing: what its float32 numbers leave open
_BLOCK = 2**16  # numbers of each message at a time
_BALANCE = 34  # rows whose product takes as long as reading the matrix: 4 bytes at 10 GB/s, 2 operations at 170 GFLOP/s
_MORE = 8  # directions beside those looked for (Halko, Martinsson and Tropp 2011, arXiv:0909.4061, section 4.2)
_ROUNDED = 8  # times the precision of the numbers may be missing, of the norm: rounding of products as long as these
_PAYS = 0.5  # of the numbers may be in the factors


@dataclass(frozen=True, eq=False)
class Messages:
    """T messages: coefficients (T, r) @ basis (r, d), or the basis itself (T, d) where there are none."""

    basis: Tensor
    coefficients: Tensor | None = None

    @classmethod
    def of(cls, messages: Sequence[Tensor], rows: int, noise: Sequence[float] = ()) -> Messages:
        """Messages (d,) by a common basis, where that pays for `rows` rows of each one, and float32's last digit is all
        that it costs. noise: how noisy each one is known to be; the least noisy one is the first of a basis, as it may
        be of low rank.
        """
        many = len(messages)
        # r products with the rows of all against one with the own rows of each
        limit = int(0.8 * many * (1 + rows / _BALANCE) / (1 + many * rows / _BALANCE))
        pays = many > 1 and limit and messages[0].dtype == torch.float32
        found = _spanned(messages, limit, min(range(many), key=noise.__getitem__) if noise else 0) if pays else None
        return cls(torch.stack(list(messages))) if found is None else found


def _spanned(messages: Sequence[Tensor], limit: int, begin: int) -> Messages | None:
    """By at most `limit` of them: `begin`, and then always the one that is worst told by those so far (a Cholesky
    decomposition of their cosines with pivots). In float64, where a squared norm shows what is missing to 1e-8 of a
    norm.
    """
    first = messages[0]
    gram = first.new_zeros(len(messages), len(messages), dtype=torch.float64)
    for start in range(0, len(first), _BLOCK):
        part = torch.stack([message[start : start + _BLOCK] for message in messages]).double()
        gram += part @ part.T
    if not gram.isfinite().all():
        return None
    norms = gram.diagonal().sqrt()
    cosines = gram / (norms[:, None] * norms).clamp_min(torch.finfo(first.dtype).tiny)
    left, chosen = cosines.clone(), list[int]()
    while left.diagonal().max() > _EXACT**2:
        if len(chosen) >= limit:
            return None
        worst = int(left.diagonal().argmax()) if chosen or not norms[begin] else begin
        chosen.append(worst)
        left = left - torch.outer(left[worst], left[worst]) / left[worst, worst]
    if not chosen:
        return None
    told = torch.linalg.solve(cosines[chosen][:, chosen], cosines[chosen]).T * norms[:, None] / norms[chosen]
    return Messages(torch.stack([messages[k] for k in chosen]), told.to(first))


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
        exact = missing <= _ROUNDED * torch.finfo(matrix.dtype).eps * matrix.norm()
        return cls(left, right) if exact else None


class ThinLinear:
    """rows ↦ rows @ matrix.T for about `rows` rows at a time, as `Linear`."""

    def __init__(self, matrix: Thin, rows: int) -> None:
        self.first, self.second = Linear(matrix.right, rows), Linear(matrix.left, rows)

    def __call__(self, rows: Tensor) -> Tensor:
        return self.second(self.first(rows))


class OwnProducts:
    """rows ↦ every candidate's rows @ its target's matrix.T.

    Args:
        matrices: T of (o, i), or those of the basis. coefficients: of `Messages`. rows: of one target's candidates.
            targets: T.
    """

    def __init__(self, matrices: Sequence[Tensor | Thin], coefficients: Tensor | None, rows: int, targets: int) -> None:
        self.coefficients = coefficients
        everyone = rows if coefficients is None else rows * targets
        self.each = [ThinLinear(m, everyone) if isinstance(m, Thin) else Linear(m, everyone) for m in matrices]

    @classmethod
    def both_ways(
        cls, matrices: Tensor, coefficients: Tensor | None, rows: int, targets: int, count: int
    ) -> tuple[OwnProducts, OwnProducts]:
        """These products, and those with the matrices transposed; by thin factors where a matrix has no more rank than
        its message images.

        Args:
            matrices: (T, o, i), or (r, o, i). coefficients, rows, targets: as above. count: of a message's images.
        """
        found = [Thin.of(m, count) or m for m in matrices]
        return cls(found, coefficients, rows, targets), cls([m.mT for m in found], coefficients, rows, targets)

    def __call__(self, rows: Tensor, some: Some) -> Tensor:
        """(T, n, o) of rows (T·n, i)."""
        if self.coefficients is not None:
            weights = some.of(self.coefficients).unbind(1)
            first, *others = (m(rows).unflatten(0, (some.many, -1)) for m in self.each)
            total = first * weights[0][:, None, None]
            for other, weight in zip(others, weights[1:]):
                total.addcmul_(other, weight[:, None, None])
            return total
        shares = some.shares()
        if len(shares) == 1:
            return self.each[shares[0][0]](rows).unflatten(0, (some.many, -1))
        sizes = [many * (len(rows) // some.many) for _, many in shares]
        parts = [self.each[target](part) for (target, _), part in zip(shares, rows.split(sizes))]
        return torch.cat(parts).unflatten(0, (some.many, -1))
