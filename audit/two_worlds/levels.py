"""Which numbers of a tensor have less noise than its others: they are told apart, lest theirs hides behind.

A forgotten mask leaves single numbers without noise. With one spread for the whole tensor such a number weighs no more
than its neighbours; with a spread of its own it tells the worlds apart by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .likelihood import Deviations

APART = 4.0  # numbers are told apart by this factor of the noise's std: 10 draws of equal noise do not differ as much
LOWEST = 13  # APART⁻¹³ of a tensor's noise, 1.5e-8, and anything below


@dataclass(frozen=True, eq=False)
class Levels:
    """A vector's numbers, tensor by tensor and in each by their noise's level.

    order: (d,) which number stands where. sizes: of the groups, each of one tensor and one level. of_tensor: (groups,)
    the tensor of each.
    """

    order: Tensor
    sizes: tuple[int, ...]
    of_tensor: NDArray[np.int64]

    @classmethod
    def of(cls, variances: Sequence[Tensor], sizes: Sequence[int]) -> Levels:
        """Numbers that are alike in every one of `variances`.

        Args:
            variances: (d,) each, of every number's noise as separate draws show it: one for each world, say.
            sizes: of the tensors, in order.

        >>> found = Levels.of([torch.tensor([1.0, 0, 1, 1, 9, 9, 8])], [4, 3])
        >>> found.order.tolist(), found.sizes, found.of_tensor.tolist()
        ([0, 2, 3, 1, 4, 5, 6], (3, 1, 3), [0, 0, 1])
        """
        tensor = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(list(sizes)))
        key = tensor
        for variance in variances:
            key = key * (LOWEST + 1) + _levels(variance, sizes)
        order = torch.sort(key, stable=True).indices
        _, counts = torch.unique_consecutive(key[order], return_counts=True)
        ends = counts.cumsum(0)
        return cls(order, tuple(counts.tolist()), tensor[order][ends - 1].numpy())

    @property
    def several(self) -> bool:
        """Whether the numbers of a tensor differ at all."""
        return len(self.sizes) > len(np.unique(self.of_tensor))

    @property
    def tensors(self) -> tuple[int, ...]:
        """How many numbers each tensor has; those without any are left out."""
        return tuple(np.add.reduceat(self.sizes, self._first).tolist())

    @property
    def _first(self) -> NDArray[np.int64]:
        return np.flatnonzero(np.diff(self.of_tensor, prepend=-1))

    def by_tensor(self, found: Deviations) -> Deviations:
        """Deviations (n, groups + 1) with those of a tensor's groups added up: (n, tensors + 1)."""
        return np.concatenate([np.add.reduceat(found[:, :-1], self._first, axis=1), found[:, -1:]], 1)


def _levels(variance: Tensor, sizes: Sequence[int]) -> Tensor:
    """(d,) how many times APART each number's std lies below its tensor's root mean square, rounded down."""
    levels = []
    for part in variance.split(list(sizes)):
        # log(mean / 0) is infinite, which is the lowest level; a tensor without any noise has one level.
        below = torch.log(part.nanmean() / part) / (2 * float(np.log(APART)))
        levels.append(torch.nan_to_num(below, nan=0.0, posinf=LOWEST).clamp(0, LOWEST).long())
    return torch.cat(levels)
