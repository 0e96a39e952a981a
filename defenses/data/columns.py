"""A table's columns: how a cell becomes features of a record, and what features say of the cell.

Whoever is to use the model must know which word is which feature, so all of it is as public as the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

WIDE = 4.0  # standard deviations to each side that a number is taken to lie within where nobody says
NOTHING = 0.01  # standard deviations that are shown as 0
OTHER = "another word"  # of a cell whose word has no feature of its own


@dataclass(frozen=True)
class TableColumn:
    """One column of a table.

    name: of its header. words: those that have a feature each, in this order, and one more feature for all others; ()
    for a number, which is one feature, (number − mean)/std.
    least, most: of that feature, as far as the rows have it that the encoding is fitted on, rounded outward. spread:
    its standard deviation.

    >>> TableColumn("age", mean=40.0, std=10.0).cell([1.23]), TableColumn("sex", ("f", "m")).cell([0.1, 0.8, 0.1])
    ('52.3', 'm')
    """

    name: str
    words: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    least: float = 0.0
    most: float = 1.0
    spread: float = 1.0

    @property
    def width(self) -> int:
        """How many features it is."""
        return len(self.words) + 1 if self.words else 1

    def features(self, cells: pd.Series) -> list[NDArray[np.float64]]:
        """Every cell's features, one array (n,) each. A missing or garbled number is the mean, a missing word "?"."""
        if not self.words:
            numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float)
            return [(np.where(np.isnan(numbers), self.mean, numbers) - self.mean) / self.std]
        words = _words(cells)
        hot = [*((words == word) for word in self.words), ~words.isin(self.words)]
        return [np.asarray(column, dtype=np.float64) for column in hot]

    def cell(self, features: Sequence[float]) -> str:
        """What features (width,) say: the likeliest word, or a number of three digits."""
        if not self.words:
            number = self.mean + self.std * features[0]
            return "0" if abs(number) < NOTHING * self.std * self.spread else f"{float(f'{number:.3g}'):,g}"
        return (*self.words, OTHER)[int(np.argmax(features))]

    def as_facts(self) -> dict[str, Any]:
        """For JSON; `table_columns` reads it."""
        own: dict[str, Any] = {"name": self.name}
        if self.words:
            return {**own, "words": list(self.words)}
        numbers = ("mean", "std", "least", "most", "spread")
        return {**own, **{name: getattr(self, name) for name in numbers}}


def fitted_column(cells: pd.Series, fitted: NDArray[np.int64], words: bool | None = None) -> TableColumn | None:
    """The encoding of a column as the rows `fitted` have it: a number, standardised by them, or words, those that they
    have. None where they have nothing of it.

    Args:
        cells: of the column. fitted: the rows. words: whether it is one of words; None for one of numbers where all
            that the rows know of it are numbers.
    """
    known = cells.iloc[fitted].notna().to_numpy()
    if not known.any():
        return None
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float)[fitted][known]
    if words or (words is None and not np.isfinite(values).all()):
        return TableColumn(str(cells.name), tuple(sorted(set(_words(cells).iloc[fitted]))))
    mean, std = float(values.mean()), float(values.std())
    std = std if std > 1e-12 else 1.0
    least, most = (round_outward(float(end), up) for end, up in ((values.min(), False), (values.max(), True)))
    return TableColumn(str(cells.name), (), mean, std, (least - mean) / std, (most - mean) / std)


def round_outward(number: float, up: bool) -> float:
    """Away from the other numbers of a column to one digit, so that an end of its range is no row's number.

    >>> round_outward(388892.0, up=True), round_outward(612.0, up=False), round_outward(-0.03, up=False)
    (400000.0, 600.0, -0.03)
    """
    if number == 0 or not np.isfinite(number):
        return number
    digit = 10.0 ** np.floor(np.log10(abs(number)))
    steps = number / digit
    near = round(steps)
    if abs(steps - near) < 1e-9:
        return number
    return float((np.ceil(steps) if up else np.floor(steps)) * digit)


def _words(cells: pd.Series) -> pd.Series:
    return cells.fillna("?").astype(str).str.strip()


def facts_of(columns: Sequence[TableColumn]) -> dict[str, Any]:
    """What joins a table's description: how its features are to be read."""
    return {"columns": [column.as_facts() for column in columns]}


def described_columns(told: Sequence[Mapping[str, Any]], features: int) -> tuple[TableColumn, ...]:
    """A description's columns as they stand there. features: of a record. Raises ValueError where they disagree."""
    columns = tuple(TableColumn(**{**own, "words": tuple(own.get("words", ()))}) for own in told)
    if (width := sum(column.width for column in columns)) != features:
        raise ValueError(f"the table's columns have {width} features, and its records {features}")
    return columns


def table_columns(
    facts: Mapping[str, Any], features: int, mean: Sequence[float] = (), std: Sequence[float] = ()
) -> tuple[TableColumn, ...]:
    """The columns of a table that is described by `facts`: those under "columns", or a number for each feature; of a
    number least and most are `WIDE` standard deviations of the feature from its mean at least.

    Args:
        facts: a data set's description. features: of a record. mean, std: (features,), those in front of the model; ()
            for 0 and 1.

    >>> table_columns({}, 1, [2.0], [0.5])
    (TableColumn(name='feature 1', words=(), mean=0.0, std=1.0, least=0.0, most=4.0, spread=0.5),)
    """
    told = facts.get("columns") or [{"name": f"feature {place + 1}"} for place in range(features)]
    columns = described_columns(told, features)
    mean, std = list(mean) or [0.0] * features, list(std) or [1.0] * features
    place, wide = 0, []
    for column, own in zip(columns, told):
        if column.words:
            wide.append(column)
        else:
            low, high = mean[place] - WIDE * std[place], mean[place] + WIDE * std[place]
            least, most = min(own.get("least", low), low), max(own.get("most", high), high)
            wide.append(replace(column, least=least, most=most, spread=std[place]))
        place += column.width
    return tuple(wide)
