"""What `make house` prints: no figure of the code rises above its ceiling, and whoever raises one is named."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    house = importlib.import_module("house")
finally:
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def today():
    return house.House.of(house.files_here(ROOT))


@pytest.mark.parametrize("row", house.ROWS, ids=lambda row: row.name)
def test_a_figure_stays_at_or_below_its_ceiling(row, today):
    figure = row.measure(today)
    if figure.value > row.ceiling:
        blamed = house.risen(row, figure, row.measure(house.since_ceilings()))
        pytest.fail(f"{row.name}: {figure.value:g}, ceiling {row.ceiling:g}; by " + ", ".join(blamed[:10]), False)


def test_a_ceiling_is_at_or_above_its_end_and_an_allowance_is_not_overdrawn():
    assert [row.name for row in house.ROWS if row.end > row.ceiling] == []
    used = [(a.lines_used <= a.lines, a.pages_used <= a.pages) for a in house.ALLOWANCES.values()]
    assert used == [(True, True)] * 4


NEW = {  # what raises every figure
    "attacks/inversion/new.py": '''
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...audit.new import judged


def branchy(a, b):
    """Three lines
    of a docstring
    do not count."""
    while a and b and not a:
        a = 1 if b else 2
    try:
        return [x for x in a for y in b]
    except ValueError:
        return a or b
''',
    "audit/new.py": """
class C:
    def long(self, a, b, c, d, e, f, g, *h, i=1):
        return 1 if a else 2


def priced(release, r, draw, values, rows: list[Epsilon]) -> Epsilon:
    from dpfl_audit.attacks.inversion import new

    Release(ratio=1.0)
    Release(**{"ratio": 1.0})
    replace(release, ratio=2.0)
    replace(draw, ratio=2.0)
    replace(release.correlation, chain="")
    verdict(refutations(rows))
    return row.having(proven=1.0)
""",
    "audit/proof/new.py": "def inside(release):\n    return replace(release, slot='')\n",
    "tests/test_new.py": """
def test_new():
    assert "one two three" in words
    assert words == "one two"
    assert words, "one two three is a message"
""",
    "docs/new.md": "x" * 1500,
}


def test_what_each_figure_counts():
    """Counted by hand of the four files above."""
    small = house.House.of(NEW)
    values = {row.measure.__name__: row.measure(small).value for row in house.ROWS}
    assert values == {
        "circles": 1,
        "files_in_circles": 2,
        "inversion_files": 1,
        "inversion_lines": 17,
        "inversion_top": 1,
        "longest_function": 10,
        "most_branches": 8,  # while, and, if, try, two for, except, or
        "ratios": 3,
        "constructors": 2,
        "replaced_releases": 1,
        "proof_makers": 1,
        "verdict_calls": 1,
        "refuters": 1,
        "row_choosers": 1,
        "long_signatures": 1,
        "sentence_asserts": 1,
        "sentence_files": 1,
        "ternaries": round(1000 / 18, 1),
        "product_lines": 17 + 16 + 2,
        "test_lines": 5,
        "page_sizes": 2,
    }


@pytest.mark.parametrize("row", house.ROWS, ids=lambda row: row.name)
def test_whoever_raises_a_figure_is_named(row):
    low, before, after = replace(row, ceiling=0), house.House.of({}), row.measure(house.House.of(NEW))
    blamed = house.risen(low, after, row.measure(before))
    assert {place.split(" ")[0].split(":")[0] for place in blamed} <= set(NEW) and blamed
    assert house.risen(replace(row, ceiling=1000), after, after) == []
