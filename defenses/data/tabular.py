"""Tables: `adult` (UCI census income) and `lending_club` (loans), as rows of standardised features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .dataset import Dataset, Records, make

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


def adult(root: str | None, seed: int) -> Dataset:
    """Whether a person earns over 50,000 a year, from 14 features: numbers standardised, words one-hot, a missing word
    a word of its own.

    root: a folder with adult.csv (header and a column `split`) or UCI's adult.data and adult.test, packed or not, or
    with a subfolder adult/. Published test rows are dealt into test (4/5) and auxiliary (1/5).
    """
    folder = _folder(root, "adult")
    csv = _find(folder, "adult.csv")
    if csv is not None:
        table = _read(csv, na_values="?")
        if not {"income", "split"} <= set(table.columns):
            raise ValueError(f"{csv} has no columns income and split; expected UCI's adult data with a header")
    else:
        parts = []
        for name, split in (("adult.data", "train"), ("adult.test", "test")):
            path = _find(folder, name)
            if path is None:
                raise ValueError(f"{folder} holds neither adult.csv nor {name} (plain or .gz)")
            part = _read(path, names=ADULT, skipinitialspace=True, na_values="?", comment="|")
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
    rows = _encoded(table.drop(columns=["income", "split"]), train)
    return _dealt("adult", rows, targets, train, 2, seed, "UCI Adult (Becker, Kohavi 1996), CC BY 4.0")


def lending_club(root: str | None, seed: int, components: int = 10) -> Dataset:
    """The interest rate of a loan (percent) by linear regression, from the first `components` principal components of
    the other features (ITER VI-A: 10, so 11 parameters). Two known layouts: the 9,578-row loan_data.csv and
    LendingClub's own wide CSV, of which the columns known at the time of the loan are used. Features missing in more
    than 70 % of the training rows are left out, as in the paper.

    A fifth is held out as test and a tenth as auxiliary; encoding and components are fitted on the training rows only.
    """
    folder = _folder(root, "lending_club")
    path = folder if folder.is_file() else _find(folder, "loan_data.csv") or _find(folder, "loan.csv")
    if path is None:
        raise ValueError(f"{folder} holds neither loan_data.csv nor loan.csv (plain or .gz)")
    table = _read(path, low_memory=False)
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
    table = table.loc[:, table[~held].isna().mean() <= 0.7]
    rows = _encoded(table, ~held)
    if not 1 <= components <= rows.shape[1]:
        raise ValueError(f"components = {components}: between 1 and the number of encoded features, {rows.shape[1]}")
    centre = rows[~held].mean(0)
    axes = np.linalg.svd(rows[~held] - centre, full_matrices=False)[2][:components]
    # A sign that does not depend on the library.
    axes *= np.sign(axes[np.arange(components), np.abs(axes).argmax(1)])[:, None]
    return _dealt(
        "lending_club",
        (rows - centre) @ axes.T,
        rate.astype(np.float32),
        ~held,
        0,
        seed,
        "LendingClub loans 2007-2010",
        (2, 3),
    )


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


def _encoded(table: pd.DataFrame, train: np.ndarray) -> np.ndarray:
    """Numbers standardised by the training rows (missing: their mean), words one-hot with the training rows' words."""
    columns = []
    for name in table.columns:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            values = column.to_numpy(dtype=float)
            mean, std = np.nanmean(values[train]), np.nanstd(values[train])
            columns.append((np.where(np.isnan(values), mean, values) - mean) / (std if std > 1e-12 else 1.0))
        else:
            words = column.fillna("?").astype(str).str.strip()
            columns += [(words == word).to_numpy(dtype=float) for word in sorted(set(words[train]))]
    return np.stack(columns, 1)


def _dealt(
    name: str,
    rows: np.ndarray,
    targets: np.ndarray,
    train: np.ndarray,
    classes: int,
    seed: int,
    source: str,
    share=(4, 5),
) -> Dataset:
    inputs, answers = torch.tensor(rows, dtype=torch.float32), torch.tensor(targets)
    held = torch.tensor(np.flatnonzero(~train))
    held = held[torch.randperm(len(held), generator=torch.Generator().manual_seed(seed))]
    cut = len(held) * share[0] // share[1]
    index: list[Tensor] = [torch.tensor(np.flatnonzero(train)), held[:cut], held[cut:]]
    splits: list[Records] = [(inputs[i], answers[i]) for i in index]
    return make(
        name, splits[0], splits[1], splits[2], classes, {"source": source, "seed": seed, "features": rows.shape[1]}
    )


def _folder(root: str | None, name: str) -> Path:
    if root is None:
        raise ValueError(f'{name} is read from a folder; give [data] root = "…"')
    path = Path(root)
    if not path.exists():
        raise ValueError(f"root = {root!r} does not exist; it should hold the {name} tables")
    return path / name if (path / name).is_dir() else path


def _find(folder: Path, name: str) -> Path | None:
    return next((folder / (name + end) for end in ("", ".gz") if (folder / (name + end)).is_file()), None)


def _read(path: Path, **options) -> pd.DataFrame:
    try:
        return pd.read_csv(path, **options)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a readable CSV table ({error})") from error
