"""What a reproduced table is asked for, what it gives back, and how it is printed: as text, markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...defenses.progress import Progress
from ...defenses.workers import HERE, Workers
from .trends import TrendAnswer

Row = Mapping[str, Any]  # flat: numbers, strings, None
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `audit reproduce`.

    data_root: folder of data sets, None for bundled ones. data: a data set's name, None for the table's own choice.
    trials: None for the table's own number. output: where finished cells are kept, None for nowhere.
    workers: who makes the cells. device: where inversions compute, "cpu" or "cuda".
    """

    data_root: Path | None = None
    data: str | None = None
    quick: bool = False
    trials: int | None = None
    seed: int = 0
    output: Path | None = None
    progress: Progress | None = None
    workers: Workers = HERE
    device: str = "cpu"

    def sized(self, quick: T, whole: T) -> T:
        """A part of the table's size: what --quick makes of it, or all of it."""
        if self.quick:
            return quick
        return whole


@dataclass(frozen=True)
class Column:
    heading: str
    show: Callable[[Row], str]


@dataclass(frozen=True)
class FilledTable:
    """A table with its figures.

    setting: what was run, in one sentence. rows: plain values. notes: what differs from the publication. trends: what
    the publication found, asked of these figures.
    """

    setting: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    notes: Sequence[str]
    trends: Sequence[TrendAnswer] = ()


def text(title: str, filled: FilledTable) -> str:
    """Columns under each other, the first flush left, the others flush right.

    >>> row = {"name": "a", "ours": 0.5}
    >>> columns = [Column("name", lambda r: r["name"]), Column("ours", lambda r: f"{r['ours']:.3f}")]
    >>> print(text("T", FilledTable("S.", [row], columns, ["N."])), end="")
    T
    S.
    <BLANKLINE>
    name   ours
    a     0.500
    <BLANKLINE>
    - N.
    """
    lines = [[c.heading for c in filled.columns], *([c.show(row) for c in filled.columns] for row in filled.rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    table = [
        "  ".join(v.rjust(w) if i else v.ljust(w) for i, (v, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]
    trends = [answer.sentence.replace("**", "") for answer in filled.trends]
    return "\n".join([title, filled.setting, "", *table, "", *_below(trends, filled.notes)]) + "\n"


def markdown(title: str, filled: FilledTable) -> str:
    heads = [c.heading for c in filled.columns]
    lines = [
        heads,
        ["---", *["---:"] * (len(heads) - 1)],
        *([c.show(row) for c in filled.columns] for row in filled.rows),
    ]
    table = [f"| {' | '.join(line)} |" for line in lines]
    below = _below([answer.sentence for answer in filled.trends], filled.notes)
    return "\n".join([f"**{title}**", "", filled.setting, "", *table, "", *below]) + "\n"


def _below(trends: Sequence[str], notes: Sequence[str]) -> list[str]:
    """Trends first, by themselves, then the notes."""
    asked = [*(f"- {trend}" for trend in trends), ""] if trends else []
    return [*asked, *(f"- {note}" for note in notes)]


def as_csv(filled: FilledTable) -> str:
    """All values of all rows, unrounded."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in filled.rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(filled.rows)
    return out.getvalue()


def span(row: Row, low: str, high: str, digits: int = 3) -> str:
    """An interval's two limits, or a dash.

    >>> span({"low": 0.25, "high": 0.5}, "low", "high", 2)
    '0.25–0.50'
    """
    if row[low] is None:
        return "–"
    return f"{row[low]:.{digits}f}–{row[high]:.{digits}f}"
