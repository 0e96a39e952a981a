"""How large, how long and how tangled the code is; `tests/test_house.py` fails where a figure rises above its ceiling.

    python benchmarks/house.py                                      today, ceiling and end, as a table
    python benchmarks/house.py --page benchmarks/measured/house.md  the same beside the figures of an earlier commit

Whoever lowers a figure lowers its ceiling in `ROWS` in the same commit. Sources are read as text and by `ast`: nothing
of the product is imported.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

import networkx
from sources import ROOT, House, Source, files_at, files_here

BEFORE = "bbeffdf"  # the commit that the plan was made from
INVERSION = "attacks/inversion/"
KERNEL = "audit/proof/"
RELEASE = re.compile(r"(^|\W)r$|(release|releases\[\w+\]|release\(\w+\))$")
WORDS = 3  # a string of so many words is a sentence
PARAMETERS = 8  # a function of so many is long

BRANCHES = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp),
    *(ast.Try, ast.ExceptHandler, ast.BoolOp, ast.comprehension),
)


@dataclass(frozen=True)
class Figure:
    """value: the figure. places: the files or functions that make it up, and how much of it each is.

    largest: the figure is that of the largest place, and not of all together.
    """

    value: float
    places: Mapping[str, float]
    largest: bool = False


def _sum(places: Iterable[str]) -> Figure:
    counts = Counter(places)
    return Figure(counts.total(), counts)


def _most(places: Iterable[tuple[str, int]]) -> Figure:
    sizes = dict(places)
    return Figure(max(sizes.values(), default=0), sizes, largest=True)


def _lines(sources: Sequence[Source]) -> Figure:
    return Figure(sum(source.lines for source in sources), {source.path: source.lines for source in sources})


def _functions(house: House) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for source in house.product:
        yield from source.of(ast.FunctionDef, ast.AsyncFunctionDef)


def _calls(house: House) -> Iterator[tuple[str, ast.Call, str]]:
    """Every call in the product: its place, itself, and the last part of the name that is called."""
    for source in house.product:
        for place, node in source.of(ast.Call):
            yield place, node, getattr(node.func, "id", getattr(node.func, "attr", ""))


def _imports(source: Source, modules: Mapping[str, str]) -> Iterator[str]:
    """The files that a file imports anywhere in it, in functions and for types alone too."""
    package = source.path.split("/")[:-1]
    for _, node in source.of(ast.ImportFrom):
        named = node.module.split(".") if node.module else []
        if node.level:
            base = [*package[: len(package) - node.level + 1], *named]
        elif named[0] == "dpfl_audit":
            base = named[1:]
        else:
            continue
        for alias in node.names:
            target = modules.get(".".join([*base, alias.name])) or modules.get(".".join(base))
            if target is not None:
                yield target


def _tangles(house: House) -> list[list[str]]:
    """The sets of files of which each reaches every other by imports.

    The package's own `__init__.py` is left out: it names what is public for type checkers, and imports it when used.
    """
    sources = [source for source in house.product if source.path != "__init__.py"]
    modules = {s.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): s.path for s in sources}
    arrows = networkx.DiGraph((source.path, target) for source in sources for target in _imports(source, modules))
    return [sorted(files) for files in networkx.strongly_connected_components(arrows) if len(files) > 1]


def circles(house: House) -> Figure:
    return _sum(f"{tangle[0]} and {len(tangle) - 1} more" for tangle in _tangles(house))


def files_in_circles(house: House) -> Figure:
    return _sum(path for tangle in _tangles(house) for path in tangle)


def _inversion(house: House) -> list[Source]:
    return [source for source in house.room(INVERSION) if not source.path.endswith("/__init__.py")]


def inversion_files(house: House) -> Figure:
    return _sum(source.path for source in _inversion(house))


def inversion_lines(house: House) -> Figure:
    return _lines(_inversion(house))


def inversion_top(house: House) -> Figure:
    return _sum(source.path for source in _inversion(house) if "/" not in source.path.removeprefix(INVERSION))


def longest_function(house: House) -> Figure:
    """Lines from `def` to the end, without the docstring."""
    return _most((place, _length(node)) for place, node in _functions(house))


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return whole
    text = node.body[0]
    return whole - ((text.end_lineno or text.lineno) - text.lineno + 1)


def most_branches(house: House) -> Figure:
    """`if`, `for`, `while`, conditional expressions, `try`, `except`, each `for` of a comprehension, and chains of
    `and` or of `or`, one each however long; of functions within it too.
    """
    return _most((place, sum(isinstance(n, BRANCHES) for n in ast.walk(node))) for place, node in _functions(house))


def ratios(house: House) -> Figure:
    """Where `ratio` of a `Release` is computed: an argument of its constructor or of `replace` of one, a key where one
    is built of a dictionary, or its property.
    """
    calls = [(place, node, name) for place, node, name in _calls(house)]
    builders = {place for place, node, name in calls if name == "Release" and any(k.arg is None for k in node.keywords)}
    places = [
        place
        for place, node, name in calls
        if (name == "Release" or _replaces_release(node, name)) and any(k.arg == "ratio" for k in node.keywords)
    ]
    for source in house.product:
        for place, key in source.of(ast.Dict):
            if place in builders:
                places += [place for k in key.keys if isinstance(k, ast.Constant) and k.value == "ratio"]
    places += [place for place, _ in _functions(house) if place.endswith((":Release.ratio", ":ratio_of"))]
    return _sum(places)


def _replaces_release(node: ast.Call, name: str) -> bool:
    """Whether it is `replace` of a release, by the name of what is replaced: `r`, or one that ends in `release`."""
    of = ast.unparse(node.args[0]) if node.args else ""
    return name == "replace" and bool(RELEASE.search(of))


def constructors(house: House) -> Figure:
    return _sum(place for place, _, name in _calls(house) if name == "Release")


def replaced_releases(house: House) -> Figure:
    outside = [source for source in house.product if not source.path.startswith(KERNEL)]
    calls = _calls(House(outside, (), {}))
    return _sum(place for place, node, name in calls if _replaces_release(node, name))


def proof_makers(house: House) -> Figure:
    """Functions that build a `Proven`, or hand on a number by the name `proven` without being given a `Proven`. A row
    that is built by hand holds no proof: without its mark it is refused (`audit/results/seal.py`).
    """
    given = {place for place, node in _functions(house) if any("Proven" in text for text in _annotations(node))}
    calls = list(_calls(house))
    made = {place for place, _, name in calls if name == "Proven"}
    written = {p for p, node, _ in calls if any(k.arg == "proven" for k in node.keywords)}
    return _sum(made | written - given)


def verdict_calls(house: House) -> Figure:
    return _sum(place for place, _, name in _calls(house) if name == "verdict")


def refuters(house: House) -> Figure:
    """Files that compute, or ask again for, what a test refutes: by a `Refutation`, or by a function's name."""
    names = ("refutations", "refuted_on_condition")
    used = ((source.path, n) for source in house.product for _, n in source.of(ast.Name, ast.FunctionDef))
    asked = {path for path, node in used if getattr(node, "id", getattr(node, "name", "")) in names}
    return _sum(asked | {place.split(":")[0] for place, _, name in _calls(house) if name == "Refutation"})


def row_choosers(house: House) -> Figure:
    """Functions that are given rows of ε, and whose result is one of them, or one for each observer; not those that
    make a new row of a proof.
    """
    results = ("Epsilon", "Epsilon | None", "dict[str, Epsilon | None]")
    return _sum(
        place
        for place, node in _functions(house)
        if node.returns is not None
        and ast.unparse(node.returns) in results
        and any("Epsilon" in annotation or "Results" in annotation for annotation in _annotations(node))
        and not any(isinstance(n, ast.Name) and n.id == "row_of" for n in ast.walk(node))
    )


def long_signatures(house: House) -> Figure:
    """Parameters by place and by name, without `self` and `cls`, `*args` and `**kwargs`."""
    return _sum(place for place, node in _functions(house) if _parameters(node) >= PARAMETERS)


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [ast.unparse(a.annotation) for a in arguments if a.annotation is not None]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@cache
def sentence_asserts(house: House) -> Figure:
    """Asserts in which a comparison holds a string of three words or more."""
    places = []
    for source in house.tests:
        for place, node in source.of(ast.Assert):
            compared = (c for c in ast.walk(node.test) if isinstance(c, ast.Compare))
            strings = (s.value for c in compared for s in ast.walk(c) if isinstance(s, ast.Constant))
            if any(isinstance(value, str) and len(value.split()) >= WORDS for value in strings):
                places.append(place)
    return _sum(places)


def sentence_files(house: House) -> Figure:
    return _sum({place.split(":")[0] for place in sentence_asserts(house).places})


def ternaries(house: House) -> Figure:
    """Conditional expressions in 1,000 lines of audit/."""
    sources = house.room("audit/")
    counts = _sum(place for source in sources for place, _ in source.of(ast.IfExp))
    return Figure(round(1000 * counts.value / max(1, _lines(sources).value), 1), counts.places)


def product_lines(house: House) -> Figure:
    return _lines(house.product)


def test_lines(house: House) -> Figure:
    return _lines(house.tests)


def page_sizes(house: House) -> Figure:
    return Figure(ceil(sum(house.pages.values()) / 1000), {path: size / 1000 for path, size in house.pages.items()})


# --- ceilings


@dataclass(frozen=True)
class Allowance:
    """What a later issue may add to product (lines) and pages (kB), and how much of it is in the ceilings now."""

    lines: int
    pages: int = 0
    lines_used: int = 0
    pages_used: int = 0


ALLOWANCES = {
    "text": Allowance(4000, 20, lines_used=3345),
    "own trainings": Allowance(3000, 20, lines_used=2171),
    "first hour": Allowance(1500, 20, lines_used=1500),
    "evidence": Allowance(1500, lines_used=1450),
}


@dataclass(frozen=True)
class Row:
    """One figure. ceiling: what fails the tests above it. end: what is aimed at."""

    name: str
    measure: Callable[[House], Figure]
    ceiling: float
    end: float


ROWS = (
    Row("import circles, imports for types counted", circles, 0, 0),
    Row("files in import circles", files_in_circles, 0, 0),
    Row("inversion: files", inversion_files, 70, 70),
    Row("inversion: lines", inversion_lines, 11255, 11255),
    Row("inversion: files at its top", inversion_top, 6, 6),
    Row("lines of the longest function, docstring left out", longest_function, 70, 70),
    Row("branches of one function", most_branches, 30, 30),
    Row("places that compute the ratio of a release", ratios, 1, 1),
    Row("constructors of Release", constructors, 2, 2),
    Row("replace of a release outside the kernel", replaced_releases, 0, 0),
    Row("functions that can make a proven number", proof_makers, 1, 1),
    Row("callers of verdict", verdict_calls, 1, 1),
    Row("files that recompute refutations", refuters, 1, 1),
    Row("functions that choose a row", row_choosers, 1, 1),
    Row("functions of eight parameters or more", long_signatures, 24, 24),
    Row("asserts that pin a sentence", sentence_asserts, 14, 14),
    Row("files of such asserts", sentence_files, 4, 3),
    Row("ternaries in 1,000 lines of audit/", ternaries, 15, 15),
    Row("product: lines", product_lines, 82935 + sum(a.lines_used for a in ALLOWANCES.values()), 70000),
    Row("tests: lines", test_lines, 53174, 40000),
    Row("pages that ship: kB", page_sizes, 240 + sum(a.pages_used for a in ALLOWANCES.values()), 240),
)
BY_HAND = (
    ("`make test` on two cores: minutes", "17-20", "", "8"),
)  # what no reading of the code says: before, now, end


def risen(row: Row, now: Figure, before: Figure) -> list[str]:
    """The places to blame where a figure is above its ceiling: those that were not there before or are larger now;
    of a figure that is the largest of all its places, those above the ceiling.
    """
    known = dict.fromkeys(now.places, row.ceiling) if now.largest else before.places
    more = {place: size - known.get(place, 0) for place, size in now.places.items()}
    blamed = sorted((pair for pair in more.items() if pair[1] > 0), key=lambda pair: (-pair[1], pair[0]))
    return [f"{place} (+{size:.3g})" for place, size in blamed]


def since_ceilings() -> House:
    """The code as of the commit that wrote the ceilings last; nothing where git does not know."""
    try:
        call = ["git", "log", "-1", "--format=%H", "--", Path(__file__).relative_to(ROOT).as_posix()]
        commit = subprocess.run(call, cwd=ROOT, capture_output=True, check=True, text=True).stdout.strip()
        return House.of(files_at(commit or "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return House.of({})


def page(house: House, before: House) -> str:
    """The figures of two versions as a Markdown page."""
    lines = [
        "# The house, measured",
        "",
        f"Written by `python benchmarks/house.py --page benchmarks/measured/house.md`; before is commit {BEFORE}.",
        "What each figure counts is in `benchmarks/house.py`; `make house` prints them.",
        "",
        "| | before | now | ceiling | end |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        then, now = row.measure(before).value, row.measure(house).value
        lines.append(f"| {row.name} | {then:g} | {now:g} | {row.ceiling:g} | {row.end:g} |")
    lines += [f"| {name} | {then} | {now} | | {end} |" for name, then, now, end in BY_HAND]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the figures, beside those of the plan's commit, as a page")
    given = parser.parse_args()
    house = House.of(files_here(ROOT))
    if given.page is not None:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(page(house, House.of(files_at(BEFORE))), encoding="utf-8")
    print(f"{'':52}{'today':>9}{'ceiling':>9}{'end':>9}")
    for row in ROWS:
        now = row.measure(house).value
        mark = "above the ceiling" if now > row.ceiling else "lower the ceiling" if now < row.ceiling else ""
        print(f"{row.name:52}{now:9g}{row.ceiling:9g}{row.end:9g}  {mark}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
