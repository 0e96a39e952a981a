"""Tables as people export them: values by hand, the same under every seed, and what is no number in one sentence."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pandas as pd
import pytest
import torch
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.cells import Said, read_column, usual_decimal

NOTHING = Said()


def column(*cells: str, said: Said = NOTHING, usual=None):
    return read_column(pd.Series(cells, name="x"), said, usual)


def many(*cells: str, times: int = 20) -> tuple[str, ...]:
    return cells * times


NUMBERS = {
    "thousands": (("78,578", "1,234,567", "999"), (78578, 1234567, 999)),
    "thousands alone": (("78,578", "12,000"), (78578, 12000)),
    "decimal comma": (("30,1", "0,25", "7"), (30.1, 0.25, 7)),
    "points and commas": (("1.234,5", "12,75"), (1234.5, 12.75)),
    "points between thousands": (("1.234.567", "1.234"), (1234567, 1234)),
    "commas and points": (("1,234.5", "12.75", "1,234"), (1234.5, 12.75, 1234)),
    "blanks": (("1 234", "12\u00a0345,5", "7"), (1234, 12345.5, 7)),
    "apostrophes": (("1'234.50", "12\u2019000.25"), (1234.5, 12000.25)),
    "dollars": (("$1,200.00", "-$3.50", "$-1.25", "($2.00)"), (1200, -3.5, -1.25, -2)),
    "euros": (("1.200,00 €", "3,50 €"), (1200, 3.5)),
    "codes": (("CHF 12.50", "CHF 1'000.75"), (12.5, 1000.75)),
    "percent": (("41%", "3.5 %", "7"), (41, 3.5, 7)),
    "units": (("30.1 kg", "7kg"), (30.1, 7)),
    "one and many": (("1 month", "36 months"), (1, 36)),
    "minus behind, and a minus of printers": (("12.5-", "\u22123.5", "+4.25"), (-12.5, -3.5, 4.25)),
    "powers": (("1e-3", "2.5E+03", "1,5e2"), (0.001, 2500, 150)),
    "no leading nought": ((".5", "-.25", "3."), (0.5, -0.25, 3)),
    "two decimal marks": (("30,1", "30.2"), (30.1, 30.2)),
    "days": (("2024-03-01", "1970-01-02"), (19783, 1)),
    "days of letters": (("2024/03/01", "1970/01/02"), (19783, 1)),
    "moments": (("1970-01-02 12:00", "1970-01-01T06:00:00Z"), (1.5, 0.25)),
    "days first": (("31.01.1970", "02.01.1970"), (30, 1)),
    "months first": (("01/31/1970", "01/02/1970"), (30, 1)),
    "short years": (("02.01.70", "13.01.00"), (1, 10969)),
}


@pytest.mark.parametrize("notation", NUMBERS)
def test_numbers_are_read_in_whatever_notation(notation):
    cells, values = NUMBERS[notation]
    read = column(*many(*cells))
    assert read.number and read.cells.tolist() == pytest.approx(list(values) * 20) and not read.missing
    assert column(*many(*cells[::-1])).cells.tolist() == pytest.approx(list(values[::-1]) * 20)


WORDS = {
    "words": ("ill", "well"),
    "classes": ("1st", "2nd", "3rd"),
    "flats": ("12A", "3B", "7C", "8D"),
    "words of missing": ("None", "NA", "Mild"),
    "codes of letters": ("A1", "B2"),
    "half and half": ("1", "2", "low", "high", "middle", "none at all"),
    "ranges": ("10-20", "20-30", "30-40"),
    "other groups": ("1,23,456", "12,34"),
}


@pytest.mark.parametrize("kind", WORDS)
def test_words_stay_words(kind):
    read = column(*many(*WORDS[kind]))
    assert not read.number and read.cells.tolist() == list(WORDS[kind]) * 20


@pytest.mark.parametrize(
    "stray", ["unknown", "-", ".", "<null>", "inf", "n/k", "Bad Input", "#N/A", "keine Angabe", "nan"]
)
@pytest.mark.parametrize("share", [1, 12])
def test_stray_words_among_numbers_are_missing(stray, share):
    """1 % and a third of the cells."""
    cells = [f"{20 + i % 50}" for i in range(36 - share)] * 3 + [stray] * share * (1 if share == 1 else 3)
    read = column(*cells)
    assert read.number and int(np.isnan(read.cells).sum()) == cells.count(stray)
    assert read.missing == {stray: cells.count(stray)}


def test_one_odd_cell_decides_nothing():
    """A comma for a point, a word, a date: the other cells are read as they were."""
    for cells in (many("78,578", "12,345"), many("30,1", "2,75"), many("30.125", "2.250"), many("1", "2", "3")):
        plain = column(*cells).cells.tolist()
        for odd in ("word", "2024-03-01", "3,1", "3.1", "1.234,5", "7 kg", "12x4", "$5", ""):
            assert column(odd, *cells).cells.tolist()[1:] == pytest.approx(plain)


def test_the_table_decides_where_a_column_does_not():
    one = [pd.Series(many("0,5", "30,25"), name="a"), pd.Series(many("1,234", "5,678"), name="b")]
    usual = usual_decimal(one)
    assert usual == "," and read_column(one[1], Said(), usual).cells[0] == 1.234
    assert read_column(one[1], Said(), None).cells[0] == 1234
    assert read_column(one[1], Said(decimal=","), None).cells[0] == 1.234
    assert column(*many("1.234", "5.678"), usual=",").cells[0] == 1234


def test_an_owner_says_otherwise():
    assert not column(*many("1", "2"), said=Said(words=frozenset("x"))).number
    read = column(*many("1", "2", "low", "high", "middle", "5", "6"), said=Said(numbers=frozenset("x")))
    assert read.number and set(read.missing) == {"low", "high", "middle"}
    gone = column(*many("1", "2", "999"), said=Said(missing=frozenset(["999"])))
    assert gone.number and gone.missing == {"999": 20} and np.nanmax(gone.cells) == 2
    assert column(*many("03/04/1970"), said=Said(day_first=True)).cells[0] == 92
    assert column(*many("03/04/1970"), said=Said(day_first=False)).cells[0] == 62
    with pytest.raises(ValueError, match="called one of numbers"):
        column(*many("a", "b"), said=Said(numbers=frozenset("x")))


def test_several_units_are_refused():
    with pytest.raises(ValueError, match=r"several units \('kg', 'lb'\)"):
        column(*(f"{i} kg" for i in range(30)), *(f"{2 * i} lb" for i in range(20)))


# --- files


def rows(count: int = 60, mark: str = ",", decimal: str = ".") -> list[str]:
    return [
        mark.join((str(20 + i % 40), f"{i % 7}{decimal}5", ("f", "m")[i % 2], ("ill", "well")[i % 3 > 0]))
        for i in range(count)
    ]


def loaded(folder, text: str | bytes, name: str = "x.csv", target: str = "outcome", **options):
    content = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(content)
    return load("csv", root=str(folder / name), target=target, seed=options.pop("seed", 0), **options)


HEADER = ["age", "bmi", "sex", "outcome"]
PLAIN = "\n".join([",".join(HEADER), *rows()]) + "\n"
EXPORTS = {
    "semicolons": (";".join(HEADER) + "\n" + "\n".join(rows(mark=";", decimal=",")), "semicolons between cells"),
    "tabs": ("\t".join(HEADER) + "\n" + "\n".join(rows(mark="\t")), "tabs between cells"),
    "bars": ("|".join(HEADER) + "\n" + "\n".join(rows(mark="|")), "bars between cells"),
    "Excel's first line": ("sep=;\n" + ";".join(HEADER) + "\n" + "\n".join(rows(mark=";", decimal=",")), "semicolons"),
    "a byte order mark": ("\ufeff" + PLAIN, ""),
    "UTF-16": (PLAIN.encode("utf-16"), "utf-16 text"),
    "gzip": (gzip.compress(PLAIN.encode()), ""),
    "bzip2": (bz2.compress(PLAIN.encode()), ""),
    "an index of pandas": (
        "," + ",".join(HEADER) + "\n" + "\n".join(f"{i},{row}" for i, row in enumerate(rows())),
        "the first column, which has no name",
    ),
    "names of rows of R": (
        ",".join(HEADER) + "\n" + "\n".join(f"p{i},{row}" for i, row in enumerate(rows())),
        "the first column, which has no name",
    ),
    "a comma at every end": (",".join(HEADER) + ",\n" + "\n".join(f"{row}," for row in rows()), "without a name"),
    "Windows": (PLAIN.replace("\n", "\r\n"), ""),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_is_the_plain_table(export, plain, tmp_path):
    text, note = EXPORTS[export]
    data = loaded(tmp_path, text, "y.csv")
    for name in ("inputs", "targets", "test_inputs", "auxiliary_inputs"):
        assert torch.equal(getattr(data, name), getattr(plain, name))
    assert data.input_shape == (5,) and note in data.description.get("read_as", "")


def test_a_number_column_is_one_under_every_seed_and_its_owner_is_told(tmp_path):
    """Some lots had the odd cell among the rows that decided, others not."""
    dirty = [
        ("unknown" if i % 30 == 7 else row.partition(",")[0]) + "," + row.partition(",")[2]
        for i, row in enumerate(rows(90))
    ]
    text = "\n".join([",".join(HEADER), *dirty])
    shapes = {loaded(tmp_path, text, seed=seed).input_shape for seed in range(4)}
    assert shapes == {(5,)}
    data = loaded(tmp_path, text)
    of_target, of_age = data.remarks
    assert HEADER[-1] in of_target and "3 cells" in of_age and "'unknown'" in of_age
    assert "unknown" not in str(data.description) and "in age" in data.description["read_as"]
    assert loaded(tmp_path, text, words=["age"]).input_shape[0] > 10


def test_what_stands_for_missing_elsewhere_is_a_class(tmp_path):
    cells = ["None", "Mild", "NA", "None"] * 25
    text = "bmi,treat,outcome\n" + "\n".join(f"{i % 9}.5,{cells[i]},{cells[i + 1]}" for i in range(99))
    data = loaded(tmp_path, text)
    assert data.description["labels"] == ["Mild", "NA", "None"]
    named = loaded(tmp_path, text, labels=["None", "Mild", "NA"])
    assert named.description["labels"] == ["None", "Mild", "NA"]
    (treat,) = [one for one in data.description["columns"] if one["name"] == "treat"]
    assert treat["words"] == ["Mild", "NA", "None"]
    asked = "x,outcome\n" + "\n".join(f"{i},{'?' if i % 9 == 0 else i % 2}" for i in range(60))
    with pytest.raises(ValueError, match=r"the target 'outcome' is '.' in 7 rows"):
        loaded(tmp_path, asked)
    assert loaded(tmp_path, asked, labels=["0", "1", "?"]).classes == 3


RECORDS = {
    "a person": ["48,78578,30.1,m,ill", *(f"{20 + i},{1000 + i},2{i % 9}.5,{'fm'[i % 2]},well" for i in range(50))],
    "numbers alone": ["63.0,1.0,1.0,145.0,0", *(f"{20 + i}.0,1.0,{i % 4}.0,1{i}.0,{i % 2}" for i in range(50))],
    "words alone": [
        "red,round,yes",
        *(f"{('red', 'blue')[i % 2]},{('round', 'flat')[i % 3 > 0]},{('yes', 'no')[i % 2]}" for i in range(50)),
    ],
}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_is_no_header_and_its_cells_are_not_published(kind, tmp_path):
    lines = RECORDS[kind]
    last = lines[0].split(",")[-1]
    with pytest.raises(ValueError, match=r"its first row looks like a record.*header = ") as error:
        loaded(tmp_path, "\n".join(lines), target=last)
    words = str(error.value).replace(str(tmp_path), "")  # pytest numbers its folders
    assert "48" not in words and "145" not in words
    names = [f"c{i}" for i in range(len(lines[0].split(",")))]
    data = loaded(
        tmp_path, "\n".join(lines), target=names[-1], header=names, labels=sorted({l.split(",")[-1] for l in lines})
    )
    assert sum(data.description["sizes"].values()) == 51


@pytest.mark.parametrize("names", ["2019,2020,2021", "0,1,2", "x1,x2,x3"])
def test_years_and_places_are_names(names, tmp_path):
    text = f"{names},outcome\n" + "\n".join(f"{i}.5,{i % 7},{i % 3}.25,{'ab'[i % 2]}" for i in range(60))
    assert loaded(tmp_path, text).input_shape == (3,)


def test_another_encoding_names_the_byte_the_line_and_the_cure(tmp_path):
    text = ("age,ward,outcome\n20,nord,well\n21,s\u00fcd,ill\n" + "22,nord,ill\n" * 40).encode("latin-1")
    with pytest.raises(ValueError, match=r'the byte 0xfc in line 3 is no UTF-8; .*encoding = "latin-1"') as error:
        loaded(tmp_path, text)
    assert "\n" not in str(error.value)
    assert loaded(tmp_path, text, encoding="latin-1").classes == 2


def test_brackets_for_a_minus_are_noted():
    assert "brackets" in column(*many("(12)", "7")).notation
    assert "brackets" in column(*many("($1,200.50)", "$3")).notation
