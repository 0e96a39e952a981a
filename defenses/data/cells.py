"""How a column's cells are read: as numbers in whatever notation people write them, dates, or words.

All cells decide together, and no lot does: the same file is read alike under every seed, and a single odd cell decides
nothing. Marks that a cell leaves open ("1,234") are read as most of the others show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import nan
from typing import Literal

import numpy as np
import pandas as pd

Mark = Literal[".", ","]

MISSING = {  # words that stand for a missing number, in small letters; in a column of words they are words
    *("?", "-", "--", "---", ".", "..", "...", "*", "#", "x", "na", "n/a", "n.a.", "n.a", "nan", "nil", "null", "none"),
    *("<null>", "<na>", "#n/a", "#na", "#value!", "#div/0!", "#ref!", "inf", "-inf", "infinity", "missing", "unknown"),
    *("unk", "nd", "n/d", "n.d.", "n/k", "nk", "not known", "not available", "not applicable", "nat", "void"),
}
FEW = 0.05  # of a column's cells, so many may be no numbers
HALF = 0.5  # or so many, if they are one or two words, as where a third of a column says "n/k"
WORDS_OF_MISSING = 2
MOST_UNITS = 3  # that a column is told to have; what stands behind more kinds of numbers is no unit
ODD = 0.05  # of the cells with a mark, so many at least must show what it stands for
CURRENCIES = r"US\$|R\$|[$€£¥₹₽₺₩]|CHF|EUR|USD|GBP|JPY|SEK|NOK|DKK|PLN|kr\.?|Fr\.?|zł"
SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2212": "-", "\u2019": "'"})
CELL = re.compile(
    rf"(?P<open>\()?(?P<sign>[+-])?\s*(?P<before>{CURRENCIES})?\s*(?P<minus>[+-])?"
    r"(?P<number>\d[\d.,' ]*|[.,]\d+)(?P<power>[eE][+-]?\d+)?"
    r"\s*(?P<after>-|[^\d\s().,+-][^\d()]{0,15}?)?\s*(?P<close>\))?"
)
ISO = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?"
)
DAYS = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")
EPOCH = datetime(1970, 1, 1)
THIS_CENTURY = 68  # years of two digits up to here are of it, as POSIX has them


@dataclass(frozen=True)
class ReadColumn:
    """A column as it was read. cells: float64 where it is numbers or dates, NaN for what is missing; else words, None
    for an empty cell.

    notation: how its numbers are written, for everybody. missing: words that count as missing, with how many cells,
    for the owner of the table.
    """

    cells: pd.Series
    number: bool
    notation: str = ""
    missing: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """What the owner says of columns. numbers, words: names of those that are. missing: words for a missing cell.
    decimal: the mark of all tables' numbers. day_first: whether 03/04/2024 is in April.
    """

    numbers: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    decimal: Mark | None = None
    day_first: bool | None = None


@dataclass(frozen=True)
class _Part:
    """A cell of digits. number: its digits and marks. unit: what stands round them. negative, power: as written."""

    number: str
    unit: str
    negative: bool
    power: str

    def shows(self) -> dict[str, str]:
        """What each mark stands for where the cell leaves no doubt: "decimal" or "thousands"; "?" where it does."""
        marks = [mark for mark in ".," if mark in self.number]
        if len(marks) == 2:
            last = max(marks, key=self.number.rfind)
            return {last: "decimal", next(mark for mark in marks if mark != last): "thousands"}
        if not marks:
            return {}
        parts = self.number.split(marks[0])
        if len(parts) > 2:
            return {marks[0]: "thousands"}
        before, after = re.sub(r"\D", "", parts[0]), parts[1]
        open_ = len(after) == 3 and 1 <= len(before) <= 3 and not before.startswith("0") and not self.power
        return {marks[0]: "?" if open_ else "decimal"}

    def decimal(self, usual: str) -> str:
        """Its mark of decimals; `usual` where the cell leaves a doubt."""
        return next((mark for mark, what in self.shows().items() if what == "decimal"), usual)

    def value(self, usual: str) -> float:
        """The number; NaN where its groups are not of three digits. usual: as of `decimal`."""
        whole, _, rest = self.number.partition(self.decimal(usual))
        groups = re.split(r"[.,' ]", whole.strip())
        if any(not part.isdigit() for part in groups if part) or (rest and not rest.strip().isdigit()):
            return nan
        if len(groups) > 1 and (not 1 <= len(groups[0]) <= 3 or any(len(part) != 3 for part in groups[1:])):
            return nan
        number = float(f"{''.join(groups) or '0'}.{rest.strip() or '0'}{self.power}")
        return -number if self.negative else number


def read_column(cells: pd.Series, said: Said, usual: Mark | None = None) -> ReadColumn:
    """A column of texts, "" for an empty cell.

    Args:
        said: by the owner. usual: the mark of decimals that other columns of the table show.

    Raises:
        ValueError: the owner calls it numbers, and hardly any cell is; or its numbers have several units.
    """
    name, texts = str(cells.name), _plain(cells)
    if not (name in said.words or said.missing or "," in (said.decimal, usual)):
        plain = pd.to_numeric(texts.where(texts != "", None), errors="coerce").to_numpy(dtype=float)
        if np.isfinite(plain).any() and bool(np.isfinite(plain[(texts != "").to_numpy()]).all()):
            return ReadColumn(pd.Series(plain, cells.index, name=cells.name), True)  # as a program writes them
    counts = texts[texts != ""].value_counts()
    gone = {word for word in counts.index if word in said.missing}
    counts = counts.drop(list(gone))
    words = ReadColumn(cells.str.strip().where(~texts.isin({"", *gone}), None), False)
    if name in said.words or counts.empty:
        return words
    parts = {text: part for text in counts.index if (part := _part(text)) is not None}
    unit = _unit(parts, counts, name, must=name in said.numbers)
    decimal = said.decimal or _decimal(parts, counts, usual)
    values = {text: part.value(decimal) for text, part in parts.items() if not part.unit or _same(part.unit, unit)}
    values = {text: value for text, value in values.items() if not np.isnan(value)}
    notation = _notation([parts[text] for text in values], unit, decimal)
    if any("(" in str(text) for text in values):
        notation = f"{notation}, brackets for a minus".removeprefix(", ")
    if not _most_are(values, counts, name in said.numbers):
        dates, notation = _dates(counts, said.day_first)
        if not _most_are(dates, counts, must=False):
            if name in said.numbers:
                raise ValueError(f"the column {name!r} is called one of numbers, and fewer than half of its cells are")
            return words
        values = dates
    missing = {str(text): int(count) for text, count in counts.items() if text not in values}
    missing |= {word: int((texts == word).sum()) for word in gone}
    return ReadColumn(texts.map(values).astype(np.float64), True, notation, missing)


def usual_decimal(columns: Iterable[pd.Series]) -> Mark | None:
    """The mark of decimals that most columns show which show one."""
    votes: list[Mark] = []
    for cells in columns:
        counts = _plain(cells).value_counts()
        parts = {text: part for text in counts.index if text and (part := _part(text)) is not None}
        if parts and counts[list(parts)].sum() > HALF * counts.sum():
            shown = _shown(parts, counts)
            votes += [mark for mark in (".", ",") if shown[mark]["decimal"] > ODD * sum(shown[mark].values())]
    if votes.count(",") == votes.count("."):
        return None
    return "," if votes.count(",") > votes.count(".") else "."


def _plain(cells: pd.Series) -> pd.Series:
    """With one kind of blanks, of minus signs and of apostrophes."""
    return cells.str.translate(SPACES).str.strip()


def _part(text: str) -> _Part | None:
    match = CELL.fullmatch(text)
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    after = (match["after"] or "").strip()
    unit = (match["before"] or "") or after.removesuffix("-").strip()
    if match["before"] and after.strip("-"):
        return None
    negative = "-" in (match["sign"], match["minus"]) or after.endswith("-") or bool(match["open"])
    number = match["number"].strip()
    if number[-1] in ".,'" and number[-1:] != ".":
        return None
    return _Part(number, unit, negative, match["power"] or "")


def _unit(parts: Mapping[str, _Part], counts: pd.Series, name: str, must: bool) -> str:
    """What stands round most numbers, "" for nothing; one and several of a thing ("1 month") are the same.

    Raises:
        ValueError: it is numbers in several units, each of some weight.
    """
    weights: dict[str, int] = {}
    numbers: dict[str, set[str]] = {}
    for text, part in parts.items():
        if part.unit:
            weights[part.unit] = weights.get(part.unit, 0) + int(counts[text])
            numbers.setdefault(part.unit, set()).add(part.number)
    if not weights:
        return ""
    most = max(weights, key=lambda unit: weights[unit])
    others = {u for u, w in weights.items() if not _same(u, most) and w > FEW * sum(weights.values())}
    # Letters behind the numbers of wards and flats are names: a unit stands behind several numbers.
    of_several = others and all(len(numbers[unit]) > 2 for unit in [most, *others])
    units = of_several and len(others) < MOST_UNITS and sum(weights.values()) > HALF * int(counts.sum())
    if others and (must or units):
        listed = ", ".join(repr(unit) for unit in [most, *sorted(others)][:MOST_UNITS])
        raise ValueError(
            f"the column {name!r} has numbers in several units ({listed}); write them in one, or say"
            f' words = ["{name}"] in [data] options'
        )
    return most


def _same(unit: str, other: str) -> bool:
    """Whether two units are one but for a plural."""
    return unit.lower().rstrip("s") == other.lower().rstrip("s")


def _shown(parts: Mapping[str, _Part], counts: pd.Series) -> dict[str, dict[str, int]]:
    """Cells by what a mark stands for in them."""
    shown: dict[str, dict[str, int]] = {mark: {"decimal": 0, "thousands": 0, "?": 0} for mark in ".,"}
    for text, part in parts.items():
        for mark, what in part.shows().items():
            shown[mark][what] += int(counts[text])
    return shown


def _decimal(parts: Mapping[str, _Part], counts: pd.Series, usual: Mark | None) -> Mark:
    shown = _shown(parts, counts)
    sure: dict[str, int] = {}
    least = ODD * sum(sum(of_mark.values()) for of_mark in shown.values())
    for mark in ".,":
        of_mark = shown[mark]
        other = "," if mark == "." else "."
        for what, points in (("decimal", mark), ("thousands", other)):
            if of_mark[what] > least:
                sure[points] = sure.get(points, 0) + of_mark[what]
    if sure:
        return "," if sure.get(",", 0) > sure.get(".", 0) else "."
    if shown[","]["?"] and not shown["."]["?"]:
        return "," if usual == "," else "."  # 1,234 is a thousand where nothing speaks of decimal commas
    return usual or "."


def _notation(parts: Iterable[_Part], unit: str, usual: str) -> str:
    """How numbers are written, where not as a program writes them."""
    decimals, thousands = set[str](), set[str]()
    for part in parts:
        decimal = part.decimal(usual)
        marks = {mark for mark in ".,' " if mark in part.number}
        decimals |= marks & {decimal}
        thousands |= marks - {decimal}
    told = ["a decimal comma"] if "," in decimals else []
    told += [f"{' and '.join(repr(mark) for mark in sorted(thousands))} between thousands"] if thousands else []
    return ", ".join(told + ([f"the unit {unit!r}"] if unit else []))


def _most_are(values: Mapping[str, float], counts: pd.Series, must: bool) -> bool:
    """Whether so many cells have a value that the others count as missing."""
    total = int(counts.sum())
    others = counts.drop(list(values))
    known = others[[str(word).lower() in MISSING for word in others.index]]
    strays = others.drop(known.index)
    have = total - int(others.sum())
    if must:
        return have > HALF * total
    of_digits = sum(int(count) for word, count in strays.items() if any(c.isdigit() for c in str(word)))
    if have == 0 or have <= HALF * (total - int(known.sum())) or of_digits > FEW * total:
        return False
    return int(strays.sum()) <= FEW * total or len(strays) <= WORDS_OF_MISSING


def _dates(counts: pd.Series, day_first: bool | None) -> tuple[dict[str, float], str]:
    """Days since 1970-01-01 of each text that is a date, and how they are written."""
    iso = {text: _day(m[1], m[3], m[4], m[5], m[6], m[7]) for text in counts.index if (m := ISO.fullmatch(text))}
    found = {text: m for text in counts.index if (m := DAYS.fullmatch(text))}
    notation = "dates, as days since 1970-01-01"
    if found:
        days = sum(int(counts[text]) for text, m in found.items() if int(m[1]) > 12)
        months = sum(int(counts[text]) for text, m in found.items() if int(m[3]) > 12)
        dots = next(iter(found.values()))[2] == "."
        first = day_first if day_first is not None else (days > months if days != months else dots)
        notation = f"{notation}, {'the day' if first else 'the month'} first"
        order = (1, 3) if first else (3, 1)
        iso |= {text: _day(_year(m[4]), m[order[1]], m[order[0]], m[5], m[6], m[7]) for text, m in found.items()}
    return {text: value for text, value in iso.items() if not np.isnan(value)}, notation


def _year(text: str) -> str:
    if len(text) == 4:
        return text
    return f"{'20' if int(text) <= THIS_CENTURY else '19'}{text}"


def _day(year: str, month: str, day: str, *time: str | None) -> float:
    hour, minute, second = (int(part or 0) for part in time)
    try:
        moment = datetime(int(year), int(month), int(day), hour, minute, second)
    except ValueError:
        return nan
    return (moment - EPOCH) / timedelta(days=1)
