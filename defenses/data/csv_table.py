"""The user's own table: a CSV file with a header, one column of which is the target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..nearest import instead
from .cells import Mark, ReadColumn, Said, read_column, usual_decimal
from .columns import TableColumn, facts_of, fitted_column
from .dataset import DEALT_BY_LOT, ENOUGH, OWN_TABLE, Dataset, Source
from .delimited import read_delimited
from .tabular import Deal, dealt

CATEGORIES = 100  # a column of words, or a target, with more values than this is an id, a date, free text or a number
OF_FILE = ("separator", "header", "encoding")
OPTIONS = ("drop", "holder", "labels", "regression", *OF_FILE, *Said.__dataclass_fields__)
SHOWN_HOLDERS = 8  # by name
LEAST = 3 * ENOUGH  # rows: a fifth for testing and ENOUGH for the encoding leave some to train on


def load(
    root: str | None,
    target: str | None,
    seed: int,
    statistics: Source | None = None,
    *,
    drop: Sequence[str] = (),
    labels: Sequence[str | float] | None = None,
    regression: bool = False,
    **reading: Any,
) -> Dataset:
    """A table from a file of separated values, packed or not, dealt by lot: a fifth of the rows for testing, a tenth
    (at least `ENOUGH`) as auxiliary, the others for training.

    What the file is like, and whether a column is numbers, dates or words, all its cells decide, and never the lot
    (`delimited`, `cells`): that much of a table is taken as public, as its columns' names and number of rows are, and
    `reading` says it where it must hang on no record. Everybody gets the encoding and the size of the model, so both
    come from rows that nobody trains on. A number is standardised by the auxiliary rows, and what is missing becomes
    their mean; a column of words is one of 0 and 1 for each word that they have, a missing one a word of its own, and
    one for all other words. A column of which they have nothing is left out. The description says what was decided
    under "read_as"; how many cells, and which words, the data set's `remarks` tell its owner.

    The target's values in the test and auxiliary rows decide what is learnt: numbers that are not all whole are
    regression; words or whole numbers are classes, in their order ("labels" in the description).

    Args:
        root: the file. target: the column to predict. seed: of the lot.
        statistics: "training" fits the encoding on the training rows, of which nothing can then be proven.
        drop: columns to leave out, such as ids.
        labels: the classes in their order, where the held-out rows do not have all. regression: for whole numbers that
            are a quantity.
        reading: holder, the column that says who holds a row, for the partition "writer", of which nothing is learnt;
            separator, header, encoding (`read_delimited`), numbers, words, missing, decimal, day_first (`Said`).

    Raises:
        ValueError: one sentence: no such file or column, too few rows, a target that is missing, constant, of too many
            values or of a class that only training rows have, a column of too many words.
    """
    if root is None or target is None:
        raise ValueError('csv needs the file and its target column: [data] root = "my.csv", target = "outcome"')
    if not Path(root).is_file():
        raise ValueError(f"root = {root!r} is no file; a CSV table with a header is needed")
    drop, there = (drop,) if isinstance(drop, str) else drop, Path(root).stat()
    key = json.dumps([root, there.st_mtime_ns, there.st_size, target, drop, labels, reading], default=str)
    if key not in _LAST:
        cells = _read_cells(root, target, drop, labels, reading)
        _LAST.clear()
        _LAST[key] = cells
    cells = _LAST[key]
    columns, answers = cells.columns, cells.answers
    deal = deal_of(len(answers), seed)
    targets, names = targets_of(root, answers, np.concatenate([deal.test, deal.auxiliary]), labels, regression)
    rows, encoded, left_out = _features(root, columns, deal.fitted(statistics))
    facts: dict[str, Any] = {"target": target, **facts_of(encoded)}
    if names:
        facts["labels"] = names
    read_as = [*cells.notes, *(f"{name}: {one.notation}" for name, one in columns.items() if one.notation)]
    if missing := [name for name, one in columns.items() if one.missing]:
        read_as.append(f"cells that are no numbers as missing in {', '.join(missing)}")
    if left_out:
        read_as.append(f"without {', '.join(left_out)}, of which the auxiliary rows have nothing")
    if read_as:
        facts["read_as"] = "; ".join(read_as)
    facts = {"source": Path(root).name, "test": DEALT_BY_LOT, **facts}
    made = dealt(OWN_TABLE, (rows, targets), deal, len(names), seed, facts, statistics)
    remarks = [_of_target(target, names, targets), *_remarks(columns)]
    if cells.holders is None:
        return replace(made, remarks=tuple(remarks))
    numbers, holders = pd.factorize(cells.holders, sort=True)
    remarks.append(_of_holders(list(holders), numbers[deal.train]))
    groups, of_test = torch.tensor(numbers[deal.train]), torch.tensor(numbers[deal.test])
    return replace(made, groups=groups, test_groups=of_test, group_names=tuple(holders), remarks=tuple(remarks))


@dataclass(frozen=True, eq=False)
class _Cells:
    """A file as its cells say it is to be read. columns: by name. answers: the target's cells. holders: who holds each
    row, None where no column says it. notes: on the file.
    """

    columns: Mapping[str, ReadColumn]
    answers: pd.Series
    holders: pd.Series | None
    notes: Sequence[str]


_LAST: dict[str, _Cells] = {}  # a study deals the same file by several lots


def _read_cells(
    root: str, target: str, drop: Sequence[str], labels: Sequence[str | float] | None, reading: Mapping[str, Any]
) -> _Cells:
    """The arguments are those of `load`. Raises ValueError."""
    reading = dict(reading)
    holder = reading.pop("holder", None)
    if holder is not None and (not isinstance(holder, str) or holder == target):
        raise ValueError(f"holder = {holder!r}: expected one column's name, and not the target's")
    drop = [*drop] if holder is None else [*drop, holder]
    of_file, said = _reading(reading)
    held = read_delimited(Path(root), **of_file)
    table = held.table
    for column in (target, *drop, *sorted(said.numbers | said.words)):
        if column not in table.columns:
            raise ValueError(f"{root!r} has no column {column!r}{_lacking(str(column), list(table.columns))}")
    if len(table) < LEAST:
        raise ValueError(f"{root!r} has {len(table) or 'no'} rows below its header; at least {LEAST} are needed")
    features = table.drop(columns=[target, *drop])
    commas = any(features[name].str.contains(",", regex=False).any() for name in features.columns)
    usual = usual_decimal(features[name] for name in features.columns) if commas else None
    columns = {}
    for name in features.columns:
        try:
            columns[str(name)] = read_column(features[name], said, usual)
        except ValueError as error:
            raise ValueError(f"{root!r}: {error}") from None
    holders = None if holder is None else _holders(root, table[holder], said)
    return _Cells(columns, _target_cells(root, table[target], labels, said, usual), holders, held.notes)


def _holders(root: str, cells: pd.Series, said: Said) -> pd.Series:
    """Who holds each row. Raises ValueError where nobody does."""
    names = cells.astype(str).str.strip().where(cells.notna(), "")
    if (empty := names.isin({"", *said.missing})).any():
        row = int(np.argmax(empty)) + 1
        raise ValueError(
            f"{root!r}: the holder {cells.name!r} is missing in row {row} below the header; every row has one"
        )
    return names


def _lacking(column: str, columns: Sequence[str]) -> str:
    """What would be right in place of a column that is not there."""
    if len(columns) == 1 and column in str(columns[0]):
        return f": all its columns were read as one, {str(columns[0])[:60]!r}; name what separates them by separator"
    return instead(column, columns)


def _reading(options: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
    """What the owner says of the file, and of its columns. Raises ValueError."""
    if unknown := sorted(set(options) - {*OF_FILE, *Said.__dataclass_fields__}):
        raise ValueError(f"csv does not know the option {unknown[0]}{instead(unknown[0], OPTIONS)}")
    said = {name: value for name, value in options.items() if name not in OF_FILE}
    for name in ("numbers", "words", "missing"):
        if name in said:
            given = [said[name]] if isinstance(said[name], str) else said[name]
            if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
                raise ValueError(f"{name} = {said[name]!r}: expected a list of texts")
            said[name] = frozenset(given)
    if said.get("decimal") not in (None, ".", ","):
        raise ValueError(f'decimal = {said["decimal"]!r}: expected "." or ","')
    if not isinstance(said.get("day_first", False), bool):
        raise ValueError(f"day_first = {said['day_first']!r}: expected true or false")
    if both := said.get("numbers", frozenset()) & said.get("words", frozenset()):
        raise ValueError(f"{min(both)!r} is called a column of numbers and one of words")
    return {name: options[name] for name in OF_FILE if name in options}, Said(**said)


def _target_cells(
    root: str, cells: pd.Series, labels: Sequence[str | float] | None, said: Said, usual: Mark | None
) -> pd.Series:
    """The target's texts; numbers in whatever notation as a program writes them. A word for a missing cell is a class
    of a target of words. Raises ValueError where numbers lack one.
    """
    name = str(cells.name)
    read = read_column(cells, said, usual)
    if labels is not None or not read.number:
        words = cells.str.strip()
        return words.where(~words.isin({"", *said.missing}), None)
    if read.missing:
        listed = ", ".join(map(repr, [*read.missing][:3]))
        raise ValueError(
            f"{root!r}: the target {name!r} is {listed} in {sum(read.missing.values())} rows and numbers in the others;"
            f' leave these rows out of the file, or say words = ["{name}"] in [data] options if it is a class'
        )
    return pd.Series([None if np.isnan(v) else repr(float(v)) for v in read.cells], cells.index, name=name)


def _of_target(target: str, names: Sequence[str], targets: np.ndarray) -> str:
    """What is learnt, for the table's owner: a column that was named by mistake trains as well as any other."""
    if not names:
        return f"the target is {target}, a number"
    most = int(np.bincount(targets).max()) / len(targets)
    return f"the target is {target}, of {len(names)} classes; the most frequent has {100 * most:.0f} % of the rows"


def _of_holders(holders: Sequence[str], numbers: NDArray[np.int64]) -> str:
    """Which client each holder is, and how many rows it trains on."""
    counts = np.bincount(numbers, minlength=len(holders)).tolist()
    listed = [f"client {n} is {name} ({count} training rows)" for n, (name, count) in enumerate(zip(holders, counts))]
    more = f" and {len(holders) - SHOWN_HOLDERS} more" if len(holders) > SHOWN_HOLDERS else ""
    return ", ".join(listed[:SHOWN_HOLDERS]) + more


def _remarks(columns: Mapping[str, ReadColumn]) -> Iterator[str]:
    """How many cells of each column are taken as missing, and which, for the table's owner."""
    for name, one in columns.items():
        if one.missing:
            words = sorted(one.missing, key=lambda word: -one.missing[word])
            listed = ", ".join(repr(word) for word in words[:3]) + (f" and {len(words) - 3} more" if words[3:] else "")
            count = sum(one.missing.values())
            yield (
                f'{name}: {count} cells that are no numbers ({listed}) count as missing; words = ["{name}"] in'
                " [data] options makes words of all"
            )


def deal_of(rows: int, seed: int) -> Deal:
    """A fifth of so many rows for testing, a tenth (at least `ENOUGH`) as auxiliary, the others for training."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).numpy()
    test, auxiliary = rows // 5, max(ENOUGH, rows // 10)
    return Deal(np.sort(order[test + auxiliary :]), order[:test], order[test : test + auxiliary])


def targets_of(
    root: str, column: pd.Series, held: NDArray[np.int64], labels: Sequence[str | float] | None, regression: bool | None
) -> tuple[NDArray[Any], list[str]]:
    """Class numbers and the classes' names; or real numbers and no names.

    Args:
        root: the file, for messages. column: the target's words. held: the rows that decide what is learnt.
        labels, regression: as of `load`; None where it cannot be asked for.
    """
    what = f"{root!r}: the target {column.name!r}"
    words = column.str.strip()
    if missing := int(words.isna().sum()):
        raise ValueError(f"{what} is missing in {missing} rows; leave these rows out of the file")
    numbers = pd.to_numeric(words, errors="coerce").to_numpy(dtype=float)
    shown = numbers[held]
    numeric = bool(np.isfinite(shown).all())
    if labels is None and (regression or (numeric and (shown % 1 != 0).any())):
        if not (finite := np.isfinite(numbers)).all():
            raise ValueError(f"{what} has {_first(words, ~finite)}; regression needs a finite number in every row")
        if shown.min() == shown.max():
            raise ValueError(f"{what} is {shown[0]:g} in every test and auxiliary row; there is nothing to learn")
        return numbers.astype(np.float32), []
    if numeric:  # 1 and 1.0 are one class
        words = pd.Series([f"{v:g}" if np.isfinite(v) else w for v, w in zip(numbers, words)], name=column.name)
    if labels is None:
        have = set(words.iloc[held])
        names = sorted(have, key=float) if numeric else sorted(have)
    else:
        names = [f"{name:g}" if isinstance(name, int | float) else str(name) for name in labels]
        if len(set(names)) < len(names):
            raise ValueError(f"labels = {list(labels)}: every class stands there once")
        if not (listed := words.isin(names)).all():
            raise ValueError(
                f"{what} has {_first(words, ~listed)}, which labels = {list(labels)} lacks; name every class"
            )
        if len(names) < 2:
            raise ValueError(f"labels = {list(labels)} names one class; two are needed")
    if len(names) < 2:
        raise ValueError(f"{what} has the one value {names[0]!r} in every test and auxiliary row; two are needed")
    if labels is None and len(names) > CATEGORIES:
        say = "another target"
        if numeric and regression is not None:
            say = "regression = true in [data] options if it is a quantity"
        raise ValueError(
            f"{what} has {len(names)} values in the {len(held)} test and auxiliary rows, and classes are at most"
            f" {CATEGORIES}; say {say}"
        )
    place = {name: number for number, name in enumerate(names)}
    if not words.isin(names).all():
        quantity = ""
        if numeric and regression is not None:
            quantity = "; or regression = true if it is a quantity"
        raise ValueError(
            f"{what} has a class that no test or auxiliary row has, and everybody sees how many classes a model has;"
            f' say all of them by labels = ["…", "…"] in [data] options{quantity}'
        )
    return words.map(place).to_numpy(dtype=np.int64), names


def _first(cells: pd.Series, bad: NDArray[np.bool_] | pd.Series) -> str:
    """The first bad cell, and its place."""
    row = int(np.argmax(bad))
    return f"{cells.iloc[row]!r} in row {row + 1} below its header"


def _features(
    root: str, read: Mapping[str, ReadColumn], fitted: NDArray[np.int64]
) -> tuple[NDArray[np.float64], list[TableColumn], list[str]]:
    """The features (n, features), the columns that they are of, and the names of those left out."""
    features: list[NDArray[np.float64]] = []
    columns: list[TableColumn] = []
    left_out = []
    for name, one in read.items():
        if one.number and (infinite := np.isinf(one.cells.to_numpy())).any():
            row = int(np.argmax(infinite)) + 1
            raise ValueError(
                f"{root!r}: the column {name!r} has a number beyond all bounds in row {row} below its header; a column"
                " of numbers needs finite ones"
            )
        column = fitted_column(one.cells, fitted, words=not one.number)
        if column is None:
            left_out.append(name)
            continue
        if len(column.words) > CATEGORIES:
            raise ValueError(
                f"{root!r}: the column {name!r} has {len(column.words)} different words in {len(fitted)} rows; at most"
                f' {CATEGORIES} become columns, so leave it out by drop = ["{name}"] in [data] options, or say'
                f' numbers = ["{name}"] if what is no number in it is missing'
            )
        columns.append(column)
        features += column.features(one.cells)
    if not columns:
        raise ValueError(f"{root!r} has no column to learn from beside the target")
    return np.stack(features, 1), columns, left_out
