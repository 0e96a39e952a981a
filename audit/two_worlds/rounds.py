"""A vector that is several messages of equal length, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .likelihood import Deviations


@dataclass(frozen=True)
class RoundShape:
    """A vector as `rounds` messages of `sizes`. columns: those of each round's deviations."""

    sizes: tuple[int, ...]
    rounds: int

    @classmethod
    def of(cls, centres: Sequence[Tensor], sizes: Sequence[int] | None, rounds: int) -> RoundShape:
        dim = len(centres[0])
        if rounds < 1 or dim % rounds:
            raise ValueError(f"a vector of {dim} numbers is no {rounds} messages of equal length")
        parts = [dim // rounds] if sizes is None else list(sizes)
        if sum(parts) * rounds != dim or len(centres[1]) != dim:
            of = "" if rounds == 1 else f" in each of {rounds} rounds"
            raise ValueError(
                f"the vectors have {dim} and {len(centres[1])} numbers and the sizes add up to {sum(parts)}{of}; all"
                " must agree"
            )
        return cls(tuple(parts), rounds)

    def each_round(self, order: Tensor) -> Tensor:
        """The numbers' order in all rounds, of `order` in one."""
        return (order + len(order) * torch.arange(self.rounds)[:, None]).flatten()

    @property
    def parts(self) -> list[int]:
        return [*self.sizes] * self.rounds

    @property
    def columns(self) -> list[slice]:
        width = len(self.sizes)
        return [slice(k * width, (k + 1) * width) for k in range(self.rounds)]

    def of_round(self, found: Deviations, columns: slice) -> Deviations:
        """A round's own columns; what is not finite anywhere counts in the first."""
        odd = found[:, -1:] if columns.start == 0 else np.zeros((len(found), 1))
        return np.concatenate([found[:, columns], odd], 1)
