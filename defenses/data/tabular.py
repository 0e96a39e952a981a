"""Tables: `adult` (UCI census income) and `lending_club` (loans), as rows of standardised features.

Whoever is to use the model must know which word is which column, so the encoding is as public as the model itself. It
is fitted on the auxiliary rows; on the training rows only where somebody asks for statistics = "training".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from .columns import TableColumn, facts_of, fitted_column
from .dataset import DEALT_BY_LOT, OF_ONE_SET, Dataset, Source, make, standardised

IntArray = NDArray[np.int64]

ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]


def adult(root: str | None, seed: int, statistics: Source | None = None) -> Dataset:
    """Whether a person earns over 50,000 a year, from 14 features: numbers standardised, words one-hot, a missing word
    a word of its own, and words that the fitted rows do not have one column together.

    root: a folder with adult.csv (header and a column `split`) or UCI's adult.data and adult.test, packed or not, or
    with a subfolder adult/. Published test rows are dealt into test (4/5) and auxiliary (1/5). statistics: "training"
    fits the encoding on the training rows.
    """
    folder = _folder(root, "adult")
    csv = _find(folder, "adult.csv")
    if csv is not None:
        table = read_table(csv, na_values="?")
        if not {"income", "split"} <= set(table.columns):
            raise ValueError(f"{csv} has no columns income and split; expected UCI's adult data with a header")
    else:
        parts = []
        for name, split in (("adult.data", "train"), ("adult.test", "test")):
            path = _find(folder, name)
            if path is None:
                raise ValueError(f"{folder} holds neither adult.csv nor {name} (plain or .gz)")
            part = read_table(path, names=ADULT, skipinitialspace=True, na_values="?", comment="|")
            parts.append(part.assign(split=split))
        table = pd.concat(parts, ignore_index=True)
    income = table["income"].astype(str).str.strip().str.rstrip(".")
    for column, known in ((income, {"<=50K", ">50K"}), (table["split"], {"train", "test"})):
        if set(column) != known:
            raise ValueError(
                f"{folder}: {column.name} has the values {sorted(map(str, set(column)))[:5]}; expected {sorted(known)}"
            )
    targets = (income == ">50K").to_numpy().astype(np.int64)
    train = (table["split"] == "train").to_numpy()
    deal = Deal.of(train, seed, (4, 5))
    rows, columns = _encoded(table.drop(columns=["income", "split"]), deal.fitted(statistics))
    source = "UCI Adult (Becker, Kohavi 1996), CC BY 4.0"
    facts = {"source": source, "test": OF_ONE_SET, **facts_of(columns)}
    return dealt("adult", (rows, targets), deal, 2, seed, facts, statistics)


def lending_club(root: str | None, seed: int, components: int = 10, statistics: Source | None = None) -> Dataset:
    """The interest rate of a loan (percent) by linear regression, from the first `components` principal components of
    the other features (ITER VI-A: 10, so 11 parameters). Two known layouts: the 9,578-row loan_data.csv and
    LendingClub's own wide CSV, of which the columns known at the time of the loan are used. Features missing in more
    than 70 % of the fitted rows are left out, as in the paper.

    A fifth is held out as test and a tenth as auxiliary, on which encoding and components are fitted; statistics =
    "training" fits them on the training rows.
    """
    folder = _folder(root, "lending_club")
    path = folder if folder.is_file() else _find(folder, "loan_data.csv") or _find(folder, "loan.csv")
    if path is None:
        raise ValueError(f"{folder} holds neither loan_data.csv nor loan.csv (plain or .gz)")
    table = read_table(path, low_memory=False)
    if "int.rate" in table:
        rate = table.pop("int.rate").to_numpy(dtype=float) * 100
        table = table.drop(columns=["not.fully.paid"], errors="ignore")
    elif "int_rate" in table:
        rate = _number(table["int_rate"]).to_numpy(dtype=float)
        table = pd.DataFrame(
            {c: _number(table[c]) if c not in WORDS else table[c] for c in (*NUMBERS, *WORDS) if c in table}
        )
        keep = np.isfinite(rate)
        table, rate = table[keep].reset_index(drop=True), rate[keep]
    else:
        raise ValueError(f"{path} has no column int.rate or int_rate; expected a LendingClub table")
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed)).numpy()
    held = np.zeros(len(table), dtype=bool)
    held[order[: int(0.3 * len(table))]] = True
    deal = Deal.of(~held, seed, (2, 3))
    fitted = deal.fitted(statistics)
    rows, _ = _encoded(table.loc[:, table.iloc[fitted].isna().mean() <= 0.7], fitted)
    most = min(rows.shape[1], len(fitted))
    if not 1 <= components <= most:
        raise ValueError(
            f"components = {components}: between 1 and {most}, as {len(fitted)} rows of {rows.shape[1]} encoded"
            " features have no more"
        )
    centre = rows[fitted].mean(0)
    axes = np.linalg.svd(rows[fitted] - centre, full_matrices=False)[2][:components]
    # A sign that does not depend on the library.
    axes *= np.sign(axes[np.arange(components), np.abs(axes).argmax(1)])[:, None]
    projected = (rows - centre) @ axes.T, rate.astype(np.float32)
    facts = {"source": "LendingClub loans 2007-2010", "test": DEALT_BY_LOT}
    return dealt("lending_club", projected, deal, 0, seed, facts, statistics)


NUMBERS = (
    "loan_amnt",
    "term",
    "installment",
    "annual_inc",
    "dti",
    "delinq_2yrs",
    "inq_last_6mths",
    "open_acc",
    "pub_rec",
    "revol_bal",
    "revol_util",
    "total_acc",
)
WORDS = ("purpose", "home_ownership", "emp_length", "verification_status")


def _number(column: pd.Series) -> pd.Series:
    """Numbers out of things like '13.5%' and '36 months'."""
    return pd.to_numeric(column.astype(str).str.extract(r"(-?[0-9.]+)", expand=False), errors="coerce")


@dataclass(frozen=True, eq=False)
class Deal:
    """Which rows of a table are for what, in their order."""

    train: IntArray
    test: IntArray
    auxiliary: IntArray

    @classmethod
    def of(cls, train: NDArray[np.bool_], seed: int, share: tuple[int, int]) -> Deal:
        """The rows that are not for training shuffled by `seed`; `share` of them, say (4, 5), are for testing."""
        held = np.flatnonzero(~train)
        held = held[torch.randperm(len(held), generator=torch.Generator().manual_seed(seed)).numpy()]
        cut = len(held) * share[0] // share[1]
        return cls(np.flatnonzero(train), held[:cut], held[cut:])

    def fitted(self, statistics: Source | None) -> IntArray:
        """The rows an encoding is fitted on. Raises ValueError where there are none."""
        rows = self.train if statistics == "training" else self.auxiliary
        if not len(rows):
            raise ValueError("the table leaves no auxiliary rows to fit its encoding on; it needs more test rows")
        return rows


def _encoded(table: pd.DataFrame, fitted: IntArray) -> tuple[NDArray[np.float64], list[TableColumn]]:
    """Every column of a table that the rows `fitted` have something of, as features side by side, and these columns."""
    columns = [column for name in table.columns if (column := fitted_column(table[name], fitted)) is not None]
    return np.stack([part for column in columns for part in column.features(table[column.name])], 1), columns


def dealt(
    name: str,
    table: tuple[NDArray[np.float64], NDArray[Any]],
    deal: Deal,
    classes: int,
    seed: int,
    facts: Mapping[str, Any],
    statistics: Source | None,
) -> Dataset:
    """A table's rows in their splits.

    Args:
        name: of the data set. table: rows (n, features) and targets (n,), encoded already. deal: which are for what.
        classes: 0 for regression. seed: of the deal.
        facts: source, where the table is from; test, how the test rows were parted from the training rows; and what
            else joins the description.
        statistics: where mean and std come from, None for `make`'s order.
    """
    rows, targets = table
    inputs, answers = torch.tensor(rows, dtype=torch.float32), torch.tensor(targets)
    train, test, auxiliary = ((inputs[i], answers[i]) for i in (deal.train, deal.test, deal.auxiliary))
    common = {"source": facts["source"], "seed": seed, "features": rows.shape[1], "test": facts["test"]}
    return standardised(make(name, train, test, auxiliary, classes, common | dict(facts)), statistics)


def _folder(root: str | None, name: str) -> Path:
    if root is None:
        raise ValueError(f'{name} is read from a folder; give [data] root = "…"')
    path = Path(root)
    if not path.exists():
        raise ValueError(f"root = {root!r} does not exist; it should hold the {name} tables")
    return path / name if (path / name).is_dir() else path


def _find(folder: Path, name: str) -> Path | None:
    return next((folder / (name + end) for end in ("", ".gz") if (folder / (name + end)).is_file()), None)


def read_table(path: Path, **options) -> pd.DataFrame:
    """A CSV table, packed or not. Raises ValueError where it cannot be read."""
    try:
        return pd.read_csv(path, **options)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a readable CSV table ({' '.join(str(error).split())})") from error
