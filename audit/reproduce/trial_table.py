"""A published table whose cells are measured in trials: each trial trains all cells with seeds of its own, and is kept
when it is done; rows are means over trials with intervals, trends are answered trial by trial.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from ...defenses.progress import Progress
from ...defenses.randomness import stream
from ..say.words import times
from ..setup.description import versions
from .cells import Cells
from .table import Column, FilledTable, Request, Row
from .trends import Trend, TrialFigures, answer_of, student


@dataclass(frozen=True)
class Measure:
    """A column: a cell's figure. key: its name among the figures. digits: behind the point. least, most: what it can
    be, and so its limits.
    """

    key: str
    heading: str
    digits: int = 2
    least: float = -inf
    most: float = inf


@dataclass(frozen=True)
class TableCell:
    """A row of a table.

    name: tells it from others. shown: its first columns, heading → value. tables: what its config has that the
    others' have not. published: by metric. reads: which of a training's figures are its, where it has several.
    data: what it is measured on, where that is not the plan's.
    """

    name: str
    shown: Mapping[str, str]
    tables: Mapping[str, Mapping[str, Any]]
    published: Mapping[str, float] = field(default_factory=dict)
    reads: str = ""
    data: str = ""


Work = Callable[[Sequence[TableCell], int, Path, Progress | None], Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, eq=False)
class TrialPlan:
    """What is run for a request.

    setting: in one sentence. data: what every row is measured on, "photos for CIFAR-100" where a set stands in.
    content: JSON-able, all that decides figures beside cells and seed. work: (cells, seed, an empty folder or one that
    a killed run left, progress) → figures by cell. notes: beside the table's own.
    """

    setting: str
    data: str
    content: Any
    work: Work
    notes: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class TrialTable:
    """A table. plan: raises BadInput where the request cannot be met; nothing is written before. trials: the
    publication's or, where it has none, what gives an interval.
    """

    name: str
    cells: Sequence[TableCell]
    measures: Sequence[Measure]
    trends: Sequence[Trend]
    notes: Sequence[str]
    plan: Callable[[Request], TrialPlan]
    trials: int
    quick_trials: int

    def run(self, request: Request) -> FilledTable:
        plan = self.plan(request)
        cells = list(self.cells)
        asked = [[c.name, c.reads, without_root(c.tables)] for c in cells]
        store = Cells(request.output, [self.name, asked, plan.content, request.seed, versions()])
        count = request.trials or request.sized(self.quick_trials, self.trials)
        name, output, seed = self.name, request.output, request.seed  # a worker needs no more of the request

        def make(key: str, progress: Progress | None) -> dict[str, Any]:
            trial = int(key.removeprefix("trial-"))
            with _workplace(output, trial) as folder:
                return dict(plan.work(cells, stream(seed, name, trial), folder, progress))

        def watch(trial: int) -> Progress:
            def tick(done: int, total: int, /, words: str = "") -> None:
                if request.progress is not None:
                    request.progress(1000 * trial + 1000 * done // max(1, total), 1000 * count, words)

            return tick

        trials: list[TrialFigures] = []
        for kept in store.all(make, [f"trial-{trial:03d}" for trial in range(count)], request.workers, watch):
            trials.append({cell: {k: float(v) for k, v in figures.items()} for cell, figures in kept.items()})
            watch(len(trials))(0, 1, "trials")
        rows = [self._row(cell, plan.data, trials) for cell in cells]
        setting = f"{plan.setting} {times(count, 'trial')}, each with seeds of its own."
        answers = [answer_of(trend, trials) for trend in self.trends]
        return FilledTable(setting, rows, self._columns(request.quick), (*self.notes, *plan.notes, INTERVALS), answers)

    def _row(self, cell: TableCell, data: str, trials: Sequence[TrialFigures]) -> Row:
        row: dict[str, Any] = {"cell": cell.name, **cell.shown, "data": cell.data or data, "trials": len(trials)}
        for measure in self.measures:
            key, row[f"published_{measure.key}"] = measure.key, cell.published.get(measure.key)
            values = [figures[key] for trial in trials if key in (figures := trial[cell.name])]
            middle, low, high = student(values) if values else (None, None, None)
            if low is not None and high is not None:
                low, high = max(low, measure.least), min(high, measure.most)
            row |= {key: middle, f"{key}_low": low, f"{key}_high": high}
        return row

    def _columns(self, quick: bool) -> tuple[Column, ...]:
        heads = [Column(name, lambda row, name=name: str(row[name])) for name in self.cells[0].shown]  # type: ignore[misc]
        heads.append(Column("data", lambda row: str(row["data"])))
        for m in self.measures:
            if any(m.key in cell.published for cell in self.cells):
                heads.append(Column(f"{m.heading} published", lambda row, m=m: _shown(row[f"published_{m.key}"], m)))  # type: ignore[misc]
            ours = f"{m.heading} ours{' (quick)' if quick else ''}"
            heads.append(Column(ours, lambda row, m=m: _with_limits(row, m)))  # type: ignore[misc]
        return tuple(heads)


def without_root(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables without where their data lie, which decides no figure."""
    return {
        name: {k: v for k, v in table.items() if k != "root"} if isinstance(table, Mapping) else table
        for name, table in tables.items()
    }


INTERVALS = "Ours: mean over trials, in brackets its 95 % limits by Student's t; trends are compared within trials."


def _shown(value: float | None, measure: Measure) -> str:
    """Losses that noise has blown up are of any size.

    >>> _shown(27.4, Measure("a", "A")), _shown(123456.7, Measure("a", "A")), _shown(None, Measure("a", "A"))
    ('27.40', '1.23e+05', '–')
    """
    if value is None:
        return "–"
    if abs(value) >= 1e4:
        return f"{value:.3g}"
    return f"{value:.{measure.digits}f}"


def _with_limits(row: Row, measure: Measure) -> str:
    middle = _shown(row[measure.key], measure)
    if row[f"{measure.key}_low"] is None:
        return middle
    low, high = (_shown(row[f"{measure.key}_{end}"], measure) for end in ("low", "high"))
    return f"{middle} ({low} to {high})"


@contextmanager
def _workplace(output: Path | None, trial: int) -> Iterator[Path]:
    """Where a trial trains and attacks: beside the kept cells, so that a killed one goes on; gone when it is done."""
    if output is None:
        with tempfile.TemporaryDirectory(prefix="dpfl-audit-") as temporary:
            yield Path(temporary)
        return
    folder = output / "work" / f"trial-{trial:03d}"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    shutil.rmtree(output / "work")
