"""The one reader of exported tables: encoding, marks between cells, header, rows' names; each decision in words.

It gives texts alone; `cells` tells what they say.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

MARKS = (",", ";", "\t", "|")
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LOOKED_AT = 200  # lines, to tell what stands between cells
BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
PACKED = {  # how a packed file begins
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"PK\x03\x04": lambda content: _only_member(content),
}
OPEN = re.compile(r'(?:^|\t)"(?:[^"\n]|"")*$', re.MULTILINE)  # a quote that its line does not close
UNNAMED = "Unnamed: "  # as pandas calls a column without a name


@dataclass(frozen=True)
class Delimited:
    """A table of texts, "" for an empty cell. notes: what was decided of the file, for everybody."""

    table: pd.DataFrame
    notes: tuple[str, ...]


def read_delimited(
    path: Path, *, separator: str | None = None, header: bool | Sequence[str] | None = None, encoding: str | None = None
) -> Delimited:
    """A table of a file, packed or not.

    Args:
        path: of the file. separator: what stands between cells, None to tell it by the lines.
        header: whether the first row has the columns' names, or these names, where no row has them; None to look.
        encoding: of its text; None for UTF-8, or what a byte order mark says.

    Raises:
        ValueError: one sentence: it cannot be read, has two columns of one name, or its first row looks like a record.
    """
    text, how = _text(path, encoding)
    notes = [] if how is None else [f"{how} text"]
    if text.lower().startswith("sep=") and "\n" in text:  # as Excel writes it
        first, _, text = text.partition("\n")
        separator = separator or first.rstrip("\r")[4:]
    mark = _mark(text) if separator is None else separator
    if len(mark) != 1:
        raise ValueError(f"separator = {separator!r}: expected one character, such as ';'")
    if mark != ",":
        notes.append(f"{NAMES.get(mark, repr(mark))} between cells")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    if mark == "\t" and OPEN.search(text):  # as in GLUE's files, whose quotes are their texts'
        quoting = csv.QUOTE_NONE
        notes.append("quotes as parts of cells")
    rows = _rows(path, text, mark, quoting)
    if isinstance(header, Sequence) and not isinstance(header, str):
        names = [str(name) for name in header]
        if len(names) != rows.shape[1]:
            raise ValueError(f"header has {len(names)} names, and {str(path)!r} has {rows.shape[1]} columns")
        body = rows
    else:
        names, body = [str(cell).strip() for cell in rows.iloc[0]], rows.iloc[1:].reset_index(drop=True)
        if names[-1] == "" and "" not in names[:-1] and body[0].is_unique and (body.iloc[:, -1] != "").any():
            names = ["", *names[:-1]]  # R gives the column of its rows' names none
        if header is not True:
            _check_header(path, names, body)
    table = body.set_axis(names, axis=1)
    return Delimited(*_without_index(path, table, notes))


def _text(path: Path, encoding: str | None) -> tuple[str, str | None]:
    """The file's text, and its encoding where that is not UTF-8."""
    try:
        content = path.read_bytes()
        unpack = next((unpack for begin, unpack in PACKED.items() if content.startswith(begin)), None)
        content = content if unpack is None else unpack(content)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable CSV table ({error})") from error
    told = encoding or BOMS.get(content[:2])
    try:
        return content.decode(told or "utf-8-sig"), told
    except LookupError:
        raise ValueError(f'encoding = {encoding!r} is none that is known, such as "latin-1" or "cp1252"') from None
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path} is not a readable CSV table: the byte 0x{content[error.start]:02x} in line {line} is no"
            f' {told or "UTF-8"}; say options = {{ encoding = "latin-1" }} in [data], or save the file as UTF-8'
        ) from None


def _only_member(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        if len(names) != 1:
            raise ValueError(f"the archive holds {len(names)} files, and one table is needed")
        return archive.read(names[0])


def _mark(text: str) -> str:
    """The first mark by which the lines have as many cells each, and more than one; a comma where none has."""
    lines = text.splitlines()[: LOOKED_AT + 1]
    if len(lines) > LOOKED_AT:
        lines.pop()
    best, most = ",", 1
    for mark in MARKS:
        counts = [len(row) for row in csv.reader(lines, delimiter=mark, skipinitialspace=True) if row]
        same = bool(counts) and all(count in (counts[-1], counts[-1] - (i == 0)) for i, count in enumerate(counts))
        if same and counts[-1] > most:
            best, most = mark, counts[-1]
    return best


def _rows(path: Path, text: str, mark: str, quoting: Literal[0, 3]) -> pd.DataFrame:
    """All rows, the header's too, as texts; a row that lacks cells at its end has empty ones."""
    first = [row for row in csv.reader(text.splitlines()[:2], delimiter=mark, skipinitialspace=True) if row]
    if not first:
        raise ValueError(f"{path} is not a readable CSV table (it is empty)")
    width = max(len(row) for row in first)
    try:
        rows = pd.read_csv(
            io.StringIO(text),
            sep=mark,
            header=None,
            names=range(width),
            index_col=False,
            dtype=str,
            keep_default_na=False,
            na_values=[],
            skipinitialspace=True,
            quoting=quoting,
            engine="c",
        )
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a readable CSV table ({' '.join(str(error).split())})") from error
    return rows.fillna("")


def _check_header(path: Path, names: Sequence[str], body: pd.DataFrame) -> None:
    """Raises ValueError where the first row looks like a record: it is one's, and would be published."""
    advice = (
        'a table needs a name for every column: say them by options = { header = ["age", …] } in [data], or header ='
        " true if the first row has them"
    )
    looks = f"{str(path)!r}: its first row looks like a record"
    numbers = pd.to_numeric(pd.Series(names), errors="coerce").notna().tolist()
    of_numbers = [i for i in range(len(names)) if _share_of_numbers(body.iloc[:, i]) > 0.5]
    seen = [i for i in range(len(names)) if i not in of_numbers and names[i] and (body.iloc[:, i] == names[i]).any()]
    if any(numbers) and not _in_sequence([name for name, number in zip(names, numbers) if number]):
        raise ValueError(f"{looks}, with numbers where names stand; {advice}")
    if len(seen) == len(names) or (any(numbers) and seen):
        raise ValueError(f"{looks}, whose cells other rows have too; {advice}")
    held = [name for name in names if name]
    if twice := [name for i, name in enumerate(held) if name in held[:i]]:
        raise ValueError(f"{str(path)!r} has two columns {twice[0]!r}; every column needs a name of its own")


def _share_of_numbers(cells: pd.Series) -> float:
    held = cells[cells != ""]
    return float(pd.to_numeric(held, errors="coerce").notna().mean()) if len(held) else 0.0


def _in_sequence(numbers: Sequence[str]) -> bool:
    """Whether names are years, or places as a program numbers columns: 0, 1, 2, …"""
    if not all(number.isdigit() for number in numbers):
        return False
    whole = [int(number) for number in numbers]
    return whole == list(range(whole[0], whole[0] + len(whole))) and len(whole) > 1


def _counts(cells: pd.Series) -> bool:
    """Whether cells are 0, 1, 2, … or 1, 2, 3, …, as a program numbers rows."""
    try:
        numbers = cells.astype("int64").to_numpy()
    except (ValueError, OverflowError):
        return False
    return len(numbers) > 0 and numbers[0] in (0, 1) and bool((numbers[1:] - numbers[:-1] == 1).all())


def _without_index(path: Path, table: pd.DataFrame, notes: Sequence[str]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Without a first column that only numbers or names the rows, and columns that have neither name nor cell."""
    empty = [i for i, name in enumerate(table.columns) if name == "" and (table.iloc[:, i] == "").all()]
    table = table.iloc[:, [i for i in range(table.shape[1]) if i not in empty]]
    told = [*notes, *([f"{len(empty)} columns without a name or a cell left out"] if empty else [])]
    first = str(table.columns[0]) if table.shape[1] else ""
    if table.shape[1] > 1 and (first == "" or first.startswith(UNNAMED)):
        cells = table.iloc[:, 0]
        if _counts(cells) or cells.is_unique:
            table = table.iloc[:, 1:]
            told.append("the first column, which has no name and tells rows apart, left out")
    if "" in table.columns:
        raise ValueError(
            f"{str(path)!r} has more cells in its rows than names in its header; every column needs a name"
        )
    return table, tuple(told)
