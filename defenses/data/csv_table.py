"""The user's own table: a CSV file with a header, one column of which is the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..nearest import instead
from .columns import TableColumn, facts_of, fitted_column
from .dataset import DEALT_BY_LOT, ENOUGH, Dataset, Source
from .tabular import Deal, dealt, read_table

CATEGORIES = 100  # a column of words, or a target, with more values than this is an id, a date, free text or a number
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
) -> Dataset:
    """A table from a CSV file (comma-separated, UTF-8, packed or not), dealt by lot: a fifth of the rows for testing, a
    tenth (at least `ENOUGH`) as auxiliary, the others for training.

    Everybody gets the encoding and the size of the model, so both come from rows that nobody trains on. Of every other
    column the auxiliary rows decide: if all that they have of it are numbers, it is standardised by them and what is
    missing or no number becomes their mean; else it is one column of 0 and 1 for each word that they have, a missing
    one a word of its own, and one for all other words. A column of which they have nothing is left out, and the
    description says so under "read_as". Every cell is read by itself, so that no record decides how another is read.

    The target's values in the test and auxiliary rows decide what is learnt: numbers that are not all whole are
    regression; words or whole numbers are classes, in their order ("labels" in the description).

    Args:
        root: the file. target: the column to predict. seed: of the lot.
        statistics: "training" fits the encoding on the training rows, of which nothing can then be proven.
        drop: columns to leave out, such as ids.
        labels: the classes in their order, where the held-out rows do not have all. regression: for whole numbers that
            are a quantity.

    Raises:
        ValueError: one sentence: no such file or column, too few rows, a target that is missing, constant, of too many
            values or of a class that only training rows have, a column of too many words.
    """
    if root is None or target is None:
        raise ValueError('csv needs the file and its target column: [data] root = "my.csv", target = "outcome"')
    if not Path(root).is_file():
        raise ValueError(f"root = {root!r} is no file; a CSV table with a header is needed")
    table = read_table(Path(root), dtype=str, na_values="?", skipinitialspace=True, encoding="utf-8-sig")
    _named_once(Path(root))
    drop = (drop,) if isinstance(drop, str) else drop
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError(f"{root!r} has more cells in its rows than names in its header; every column needs a name")
    for column in (target, *drop):
        if column not in table.columns:
            if len(table.columns) == 1 and (other := next((mark for mark in ";\t" if mark in table.columns[0]), None)):
                raise ValueError(f"{root!r} has {other!r} between its cells; a CSV table has commas there")
            raise ValueError(f"{root!r} has no column {column!r}{instead(str(column), list(table.columns))}")
    if len(table) < LEAST:
        raise ValueError(f"{root!r} has {len(table) or 'no'} rows below its header; at least {LEAST} are needed")
    deal = deal_of(len(table), seed)
    targets, names = targets_of(root, table[target], np.concatenate([deal.test, deal.auxiliary]), labels, regression)
    rows, columns, left_out = _features(root, table.drop(columns=[target, *drop]), deal.fitted(statistics))
    facts: dict[str, Any] = {"target": target, **facts_of(columns)}
    if names:
        facts["labels"] = names
    if left_out:
        facts["read_as"] = f"without {', '.join(left_out)}, of which the auxiliary rows have nothing"
    facts = {"source": Path(root).name, "test": DEALT_BY_LOT, **facts}
    return dealt("csv", (rows, targets), deal, len(names), seed, facts, statistics)


def _named_once(path: Path) -> None:
    """Raises ValueError where two columns have one name: pandas calls the second NAME.1, which `drop` would keep."""
    header = read_table(path, dtype=str, header=None, nrows=1, skipinitialspace=True, encoding="utf-8-sig")
    names = header.iloc[0].dropna()
    if len(twice := names[names.duplicated()]):
        raise ValueError(f"{str(path)!r} has two columns {twice.iloc[0]!r}; every column needs a name of its own")


def deal_of(rows: int, seed: int) -> Deal:
    """A fifth of so many rows for testing, a tenth (at least `ENOUGH`) as auxiliary, the others for training."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).numpy()
    test, auxiliary = rows // 5, max(ENOUGH, rows // 10)
    return Deal(np.sort(order[test + auxiliary :]), order[:test], order[test : test + auxiliary])


def targets_of(
    root: str, column: pd.Series, held: NDArray[np.int64], labels: Sequence[str | float] | None, regression: bool
) -> tuple[NDArray[Any], list[str]]:
    """Class numbers and the classes' names; or real numbers and no names.

    Args:
        root: the file, for messages. column: the target's words. held: the rows that decide what is learnt.
        labels, regression: as of `load`.
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
        say = "regression = true in [data] options if it is a quantity" if numeric else "another target"
        raise ValueError(f"{what} has {len(names)} values, and classes are at most {CATEGORIES}; say {say}")
    place = {name: number for number, name in enumerate(names)}
    if not words.isin(names).all():
        quantity = "; or regression = true if it is a quantity" if numeric else ""
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
    root: str, table: pd.DataFrame, fitted: NDArray[np.int64]
) -> tuple[NDArray[np.float64], list[TableColumn], list[str]]:
    """The features (n, features), the columns that they are of, and the names of those left out."""
    features: list[NDArray[np.float64]] = []
    columns: list[TableColumn] = []
    left_out = []
    for name in table.columns:
        infinite = np.isinf(pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float))
        finite = fitted_column(table[name].mask(infinite), fitted)
        if infinite.any() and finite is not None and not finite.words:
            cell = _first(table[name], infinite)
            raise ValueError(f"{root!r}: the column {name!r} has {cell}; a column of numbers needs finite ones")
        column = fitted_column(table[name], fitted)
        if column is None:
            left_out.append(str(name))
            continue
        if len(column.words) > CATEGORIES:
            raise ValueError(
                f"{root!r}: the column {name!r} has {len(column.words)} different words in {len(fitted)} rows; at most"
                f' {CATEGORIES} become columns, so leave it out by drop = ["{name}"] in [data] options'
            )
        columns.append(column)
        features += column.features(table[name])
    if not columns:
        raise ValueError(f"{root!r} has no column to learn from beside the target")
    return np.stack(features, 1), columns, left_out


__all__ = ["deal_of", "load", "targets_of"]
