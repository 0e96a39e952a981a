"""The column of a table that attribute inference asks for, and the values that it may have, from public records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...defenses.data.columns import TableColumn
from ...defenses.nearest import instead

BINS = 10  # of a column of numbers, at most


@dataclass(frozen=True, eq=False)
class HiddenColumn:
    """A column and its values, the most frequent of the auxiliary records first.

    place: of its first feature in a record. edges: (b,) rising, the upper ends of a number's bins but the last. codes:
    (k,) int64, a word's feature or a number's bin. features: (k, width), how a record has each value: of a bin the
    median of its auxiliary records. shares: (k,) of the auxiliary records that have it.
    """

    column: TableColumn
    place: int
    edges: Tensor
    codes: Tensor
    features: Tensor
    shares: Tensor

    @classmethod
    def of(cls, column: TableColumn, place: int, auxiliary: Tensor) -> HiddenColumn:
        """auxiliary: (m, features), m ≥ 1. A number's bins are between tenths of these records."""
        own = auxiliary[:, place : place + column.width]
        edges = own.new_zeros(0)
        if not column.words:
            edges = own[:, 0].quantile(torch.arange(1, BINS) / BINS, interpolation="lower").unique()
        of_records = _codes(own, column, edges)
        codes, counts = of_records.unique(return_counts=True)
        order = counts.argsort(descending=True, stable=True)
        codes, shares = codes[order], counts[order].double() / len(own)
        features = torch.stack([own[of_records == code].median(0).values for code in codes])
        return cls(column, place, edges, codes, features, shares)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.column.cell(value) for value in self.features.tolist())

    @property
    def entropy(self) -> float:
        """Of the values of auxiliary records, in nats."""
        return float(-(self.shares * self.shares.log()).sum())

    def variants(self, records: Tensor) -> Tensor:
        """Every record (n, features) with each value in turn: (n·k, features). What it had there is not looked at."""
        n, k = len(records), len(self.codes)
        every = records[:, None].repeat(1, k, 1)
        every[:, :, self.place : self.place + self.column.width] = self.features
        return every.view(n * k, -1)

    def without(self, records: Tensor) -> Tensor:
        """What is not hidden of records (n, features)."""
        return torch.cat([records[:, : self.place], records[:, self.place + self.column.width :]], 1)

    def read(self, records: Tensor) -> Tensor:
        """Which value records (n, features) have: (n,) int64, −1 for one that no auxiliary record has."""
        own = records[:, self.place : self.place + self.column.width]
        same = _codes(own, self.column, self.edges)[:, None] == self.codes
        return torch.where(same.any(1), same.int().argmax(1), -1)


def hidden_column(columns: Sequence[TableColumn], auxiliary: Tensor, name: str = "") -> HiddenColumn:
    """The column `name`; "" for the one that is hardest to guess from auxiliary records alone, of the largest entropy:
    of those of words, whose value is a fact about somebody, or of all where none has two words.

    Args:
        columns: of the table. auxiliary: (m, features).

    Raises:
        ValueError: there is no such column, or it has one value alone.
    """
    check_column(columns, name)
    place, there = 0, []
    for column in columns:
        if name in ("", column.name):
            there.append(HiddenColumn.of(column, place, auxiliary))
        place += column.width
    usable = [each for each in there if len(each.codes) > 1]
    if not usable:
        which = f"the column {name!r} has" if name else "all columns have"
        raise ValueError(f"{which} one value alone in the auxiliary records, so there is nothing to guess")
    of_words = [each for each in usable if each.column.words]
    return max(of_words or usable, key=lambda each: each.entropy)


def check_column(columns: Sequence[TableColumn], name: str) -> None:
    """That a column has the name, or that none is named. Raises ValueError."""
    known = [column.name for column in columns]
    if name and name not in known:
        raise ValueError(f"column = {name!r}: the table has no such column{instead(name, known)}")


def _codes(own: Tensor, column: TableColumn, edges: Tensor) -> Tensor:
    """(n,) int64, of a column's features (n, width)."""
    return own.argmax(1) if column.words else torch.bucketize(own[:, 0].contiguous(), edges)
