"""Rows of a table as images of a channel for each feature and one pixel, in [0, 1]: what an inversion searches for."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from ..models import Normalise
from .columns import TableColumn


class NormalisedRow(Normalise):
    """`Normalise` of an image of one pixel, which goes on as a row.

    words: of each column of words its first feature and how many there are.
    """

    words: tuple[tuple[int, int], ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten(1)


@dataclass(frozen=True, eq=False)
class UnitScale:
    """Each feature from its least to its most as a pixel from 0 to 1.

    least, most: (features,) float64, of every feature; a word's is 0 to 1. words: of each column of words its first
    feature and how many there are.

    >>> scale = UnitScale.of([TableColumn("age", least=-4.0, most=4.0), TableColumn("sex", ("f",))])
    >>> scale.images(torch.tensor([[2.0, 1.0, 0.0]])).flatten().tolist()
    [0.75, 1.0, 0.0]
    """

    least: Tensor
    most: Tensor
    words: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, columns: Sequence[TableColumn]) -> UnitScale:
        """Of all columns, in their order."""
        least = [low for c in columns for low in ([0.0] * c.width if c.words else [c.least])]
        most = [high for c in columns for high in ([1.0] * c.width if c.words else [c.most])]
        firsts = accumulate((c.width for c in columns), initial=0)
        words = tuple((first, c.width) for first, c in zip(firsts, columns) if c.words)
        return cls(torch.tensor(least, dtype=torch.float64), torch.tensor(most, dtype=torch.float64), words)

    def images(self, rows: Tensor) -> Tensor:
        """(n, features, 1, 1) float32 in [0, 1] of rows (n, features); what lies outside is cut off."""
        pixels = (rows.double() - self.least) / (self.most - self.least)
        return pixels.clamp(0, 1).float()[:, :, None, None]

    def rows(self, images: Tensor) -> Tensor:
        """(n, features) float32 of images (n, features, 1, 1)."""
        return (self.least + (self.most - self.least) * images.flatten(1).double()).float()

    def module(self, module: nn.Module) -> nn.Module:
        """A copy of a model of rows that takes these images, with parameters of the same names.

        Raises:
            ValueError: it does not begin with a `Normalise`, as every model of this tool does.
        """
        if not isinstance(module, nn.Sequential) or not isinstance(module[0], Normalise):
            raise ValueError("the model does not begin with its records' mean and std, so its scale is not known")
        changed, first, width = copy.deepcopy(module), module[0], self.most - self.least
        mean, std = (first.mean.cpu().flatten() - self.least) / width, first.std.cpu().flatten() / width
        begin = NormalisedRow(mean.tolist(), std.tolist(), (len(mean), 1, 1))
        begin.words = self.words
        changed[0] = begin
        return changed


def words_of(module: nn.Module) -> tuple[tuple[int, int], ...]:
    """`UnitScale.words` of a model that `UnitScale.module` made; () of any other."""
    first = module[0] if isinstance(module, nn.Sequential) and len(module) else None
    return first.words if isinstance(first, NormalisedRow) else ()
