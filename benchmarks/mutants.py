"""Would the tests notice? One-line mutants of the rooms where a wrong line makes an audit lie, each against the tests
that can tell.

    python -m pip install 'dpfl-audit[mutants]'
    python benchmarks/mutants.py -o mutants.jsonl > mutants.md

A mutant is one change of one expression: cosmic-ray's operators (arithmetic, comparisons, and/or, constants, signs,
loops), and two of ours for what its operators leave out: min for max and the like, and a keyword argument dropped.
`--count` of them are drawn by `--seed`, all alike, at most one a line; not those that change no meaning (annotations,
the text of an error) or a number that is only a parameter's default, which every result states. Each is put into a
scratch copy, never into the work tree.

Every test of `make test` runs once, unchanged, and which lines it runs is written down (lines.py). A mutant meets the
doctests of its module and the tests that run its statement, until one fails: those in files that import the module or
have its name, then those of its room, then all others, each time quick files first. What runs at import (constants,
decorators, fields, signatures) meets whole files of the first two. A mutant in a statement that no test runs survives.

Each answer is a line of the output file, so that killed work goes on where it was: killed mutants stay killed, and
survivors meet the tests again, which by then may be better ones. Beside it, NAME.lines/ has what each test file runs,
until it or the product changes. The page that is printed has every survivor's diff.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# A room whose lines are mutated -> the tests that its mutants meet after those that import the module.
ROOMS: dict[str, tuple[str, ...]] = {
    "defenses": ("tests/defenses", "tests/audit/proven", "tests/audit/proof", "tests/contracts/test_schemes.py"),
    "audit/proof": ("tests/audit/proof", "tests/audit/proven"),
    "audit/proven": ("tests/audit/proven", "tests/audit/proof", "tests/contracts/test_setups.py"),
    "audit/two_worlds": ("tests/audit/two_worlds", "tests/audit/worlds/federation"),
    "audit/worlds/federation": ("tests/audit/worlds/federation",),
    "attacks": ("tests/attacks", "tests/contracts/test_attacks.py"),
    "metrics": ("tests/metrics", "tests/audit/results"),
}
OPERATORS = (
    *(
        f"ReplaceBinaryOperator_{a}_{b}"
        for pair in ("Add Sub", "Mul Div", "BitOr BitAnd")
        for a, b in (pair.split(), pair.split()[::-1])
    ),
    "ReplaceBinaryOperator_FloorDiv_Div",
    "ReplaceBinaryOperator_Mod_Mul",
    "ReplaceBinaryOperator_Pow_Mul",
    *(
        f"ReplaceComparisonOperator_{a}_{b}"
        for pair in ("Eq NotEq", "Is IsNot", "Lt LtE", "Gt GtE", "Lt Gt")
        for a, b in (pair.split(), pair.split()[::-1])
    ),
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Invert",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
PAIRS = [("min", "max"), ("amin", "amax"), ("any", "all"), ("floor", "ceil"), ("minimum", "maximum")]
PRELOADED = ("torch", "torchvision", "scipy.stats", "dp_accounting", "pandas", "matplotlib.pyplot", "pytest")
MEMORY = 12 * 2**30  # bytes a mutant's tests may map: one that never stops growing must not take the machine along


class Swap:
    """min for max, any for all: the extreme of the other end. In the shape of cosmic-ray's operators."""

    names: dict[str, str] = dict(PAIRS) | {b: a for a, b in PAIRS}

    def mutation_positions(self, node: Any) -> list[tuple[Any, Any]]:
        known = node.type == "name" and node.value in self.names
        return [(node.start_pos, node.end_pos)] if known and "import" not in node.parent.type else []

    def mutate(self, node: Any, index: int) -> Any:
        del index
        node.value = self.names[node.value]
        return node


class DropArgument:
    """A keyword argument that a call leaves out, so that the default comes in. In the shape of cosmic-ray's."""

    def mutation_positions(self, node: Any) -> list[tuple[Any, Any]]:
        return [(child.start_pos, child.end_pos) for child in self._keywords(node)]

    def mutate(self, node: Any, index: int) -> Any:
        place = node.children.index(self._keywords(node)[index])
        if node.type == "trailer":
            del node.children[place]
        else:  # with the comma before it, or after the first
            del node.children[max(place - 1, 0) : max(place, 1) + 1]
        return node

    def _keywords(self, node: Any) -> list[Any]:
        if node.type not in ("arglist", "trailer") or node.parent.type in ("decorator", "classdef"):
            return []
        return [c for c in node.children if c.type == "argument" and getattr(c.children[1], "value", "") == "="]


@dataclass(frozen=True, order=True)
class Mutant:
    """One change. path: in the repository. line: of the change, from 1. diff: what changed, three lines around it."""

    path: str
    line: int
    operator: str
    diff: str
    code: str = field(repr=False)

    @property
    def room(self) -> str:
        return next(room for room in ROOMS if self.path.startswith(f"{room}/"))


@dataclass(frozen=True)
class Answer:
    """outcome: killed, survived or timeout (which is killed too). by: the test that failed first. seconds: of its
    tests.
    """

    path: str
    line: int
    operator: str
    diff: str
    outcome: str
    by: str
    seconds: float


def meaning(code: str) -> str:
    """A module's code without what no test can or need tell: annotations of functions, the texts of errors, what a
    repr leaves out, and the numbers that parameters and fields have by default.
    """
    tree = ast.parse(code)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.returns = None
            case ast.arg():
                node.annotation = None
            case ast.AnnAssign():
                if not any(isinstance(part, ast.Call) for part in ast.walk(node.annotation)):  # Field(gt=0) is code
                    node.annotation = ast.Constant(None)
                node.value = without_number(node.value)
            case ast.arguments():
                # A bare `*` or `/` reads like an operator, and `/` for `*` only lets more calls through.
                node.args, node.posonlyargs, node.kwonlyargs = node.posonlyargs + node.args + node.kwonlyargs, [], []
                given = [*node.defaults, *(value for value in node.kw_defaults if value is not None)]
                node.defaults, node.kw_defaults = [without_number(value) for value in given], []
            case ast.Call():
                node.keywords = [keyword for keyword in node.keywords if keyword.arg != "repr"]
            case ast.Raise(exc=ast.Call() as error):
                error.args, error.keywords = [], []
    return ast.dump(tree)


def without_number(value: Any) -> Any:
    number = isinstance(value, ast.Constant) and type(value.value) in (int, float)
    negative = isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
    return ast.Constant(0) if number or negative else value


@cache
def operators() -> dict[str, Any]:
    from cosmic_ray.plugins import get_operator

    return {name: get_operator(f"core/{name}")() for name in OPERATORS} | {
        "Swap": Swap(),
        "DropArgument": DropArgument(),
    }


def places(path: Path) -> Iterator[tuple[str, int, int]]:
    """(operator, occurrence, line) of all that can be changed in a module."""
    from cosmic_ray.ast import ast_nodes, get_ast

    tree = get_ast(path.read_text(encoding="utf-8"))
    for name, operator in operators().items():
        positions = [position for node in ast_nodes(tree) for position in operator.mutation_positions(node)]
        yield from ((name, occurrence, start[0]) for occurrence, (start, _) in enumerate(positions))


def mutate(root: Path, path: str, operator: str, occurrence: int, line: int) -> Mutant | None:
    """The mutant, None where its code means what the original does, or is none."""
    from cosmic_ray.mutating import mutate_code

    original = (root / path).read_text(encoding="utf-8")
    code = mutate_code(original, operators()[operator], occurrence)
    try:
        if code is None or meaning(code) == meaning(original):
            return None
    except SyntaxError:
        return None
    before, after = original.splitlines(keepends=True), code.splitlines(keepends=True)
    return Mutant(path, line, operator, "".join(difflib.unified_diff(before, after, path, path)), code)


def draw(root: Path, modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants by lot, every place of every module alike; fewer where there are not so many lines.

    A place's lot hangs on its own line alone, so that a change of the code elsewhere draws the same mutants again.
    """
    every: list[tuple[str, str, str, int, int]] = []  # lot, path, operator, occurrence, line
    for path in modules:
        code = (root / path).read_text(encoding="utf-8").splitlines()
        before: Counter[tuple[str, str]] = Counter()  # places alike: the same operator on the same words
        for operator, occurrence, line in places(root / path):
            alike = (operator, code[line - 1].strip())
            lot = hashlib.sha256(repr((seed, path, *alike, before[alike])).encode()).hexdigest()
            before[alike] += 1
            every.append((lot, path, operator, occurrence, line))
    mutants: dict[tuple[str, int], Mutant] = {}  # by line: two on one line tell little more than one
    for _, path, operator, occurrence, line in sorted(every):
        if len(mutants) == count:
            break
        if (path, line) not in mutants and (mutant := mutate(root, path, operator, occurrence, line)) is not None:
            mutants[path, line] = mutant
    return list(mutants.values())


def modules_of(root: Path, only: Sequence[str]) -> list[str]:
    found = [
        str(path.relative_to(root))
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        if path.stat().st_size
    ]
    return [path for path in found if not only or path.startswith(tuple(only))]


@cache
def imports(test: Path) -> frozenset[str]:
    """The modules of the package that a test file imports, as paths."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpfl_audit."):
            base = (node.module or "").split(".", 1)[1].replace(".", "/")
            found |= {f"{base}.py", *(f"{base}/{name.name}.py" for name in node.names)}
    return frozenset(found)


@cache
def test_files(root: Path) -> dict[str, Path]:
    """By name."""
    return {str(test.relative_to(root)): test for test in sorted((root / "tests").rglob("test_*.py"))}


def tests_for(root: Path, path: str) -> list[list[str]]:
    """All test files, nearest first: those that import a module or have its name, those of its room, all others."""
    room = next(room for room in ROOMS if path.startswith(f"{room}/"))
    rings: list[list[str]] = [[], [], []]
    for name, test in test_files(root).items():
        near = path in imports(test) or Path(path).stem in test.stem
        rings[0 if near else 1 if name.startswith(ROOMS[room]) else 2].append(name)
    return rings


def statement(code: str, line: int) -> tuple[frozenset[int], bool]:
    """The lines of the innermost statement around a line, without those of the statements in it, and whether it runs
    when a function is called; else it runs at import.
    """
    around = [
        (node, frozenset(range(min([node.lineno, *decorators(node)]), (node.end_lineno or node.lineno) + 1)))
        for node in ast.walk(ast.parse(code))  # from the outermost inwards
        if isinstance(node, ast.stmt)
    ]
    around = [(node, lines) for node, lines in around if line in lines]
    if not around:
        return frozenset({line}), False
    node, lines = around[-1]
    inner = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node and n.lineno != line]
    lines -= {i for n in inner for i in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return lines, any(isinstance(n, functions) and line >= n.body[0].lineno for n, _ in around)


def decorators(node: ast.stmt) -> list[int]:
    return [decorator.lineno for decorator in getattr(node, "decorator_list", [])]


def listed(root: Path) -> list[str]:
    """The files that git tracks or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in names if name and (root / name).is_file())


def copy_of(root: Path) -> Path:
    """A scratch copy of the files that git tracks or would."""
    copy = Path(tempfile.mkdtemp(prefix="mutants-"))
    for name in listed(root):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, copy / name)
    (copy / ".link").mkdir()
    (copy / ".link" / "dpfl_audit").symlink_to("..")
    return copy


def pytest(copy: Path, tests: Sequence[str], limit: float, lines: Path | None = None) -> tuple[int | None, str]:
    """The exit code (None: out of time) and what was printed, of these tests of the scratch copy up to the first
    failure; with `lines` all of them, and which lines they run is written there.
    """
    # Most of a mutant's time would be imports: its process comes from one that has the packages, and none of ours.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(PRELOADED))
    with tempfile.NamedTemporaryFile(dir=copy) as printed:
        process = server.Process(target=_pytest, args=(copy, tests, lines, printed.name))
        process.start()
        process.join(limit)
        if process.exitcode is None:
            os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
            return None, ""
        return process.exitcode, printed.read().decode(errors="replace")


def _pytest(copy: Path, tests: Sequence[str], lines: Path | None, printed: str) -> None:
    """In a process, and a group of processes, of its own."""
    os.setsid()
    os.chdir(copy)
    with open(printed, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    paths = [str(copy / ".link"), str(copy / "benchmarks")]
    sys.path[:0] = paths
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",  # with cached bytecode a change of equal length within a second goes unseen
        "MUTANTS_LINES": str(lines),
    }
    sys.dont_write_bytecode = True
    import pytest

    options = ["-rfE", "--tb=no", "-m", "not full", "--hypothesis-seed=0"]
    code = pytest.main([*options, *(["-x"] if lines is None else ["-p", "lines"]), *tests])
    sys.stdout.flush()
    os._exit(code)


@dataclass(frozen=True)
class Record:
    """What a test file runs. seconds: of each test. lines: module -> line -> the tests that run it, or the file."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]


class Bench:
    """Scratch copies, and what each test file runs in them unchanged."""

    def __init__(self, root: Path, jobs: int, cache: Path) -> None:
        self.root = copy_of(root)  # stays as it is, whatever becomes of the work tree or of the other copies
        self.cache = cache
        self.copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(jobs):
            self.copies.put(copy_of(root))
        product = [
            name
            for name in listed(root)
            if name.endswith(".py") and name.startswith((*(f"{room}/" for room in ROOMS), "audit/", "tests/"))
        ]
        product = [name for name in product if not Path(name).name.startswith("test_")]
        self.digest = hashlib.sha256(b"".join((self.root / name).read_bytes() for name in product))
        self.records: dict[str, Record] = {}
        self.lock = Lock()

    def close(self) -> None:
        shutil.rmtree(self.root)
        while not self.copies.empty():
            shutil.rmtree(self.copies.get())

    def record(self, test: str) -> Record:
        """What a test file runs where nothing is changed. One that fails there, as browsers may, tells nothing and is
        left out, which the log says.
        """
        with self.lock:
            if test not in self.records:
                self.records[test] = self._recorded(test)
            return self.records[test]

    def _kept(self, test: str) -> Path:
        key = self.digest.copy()
        key.update((self.root / test).read_bytes())
        return self.cache / f"{Path(test).stem}-{key.hexdigest()[:16]}.json"

    def unknown(self, mutant: Mutant, ring: int) -> int:
        """How many of the ring's test files have yet to be watched. None: the answer is near."""
        return sum(not self._kept(test).exists() for test in tests_for(self.root, mutant.path)[ring])

    def _recorded(self, test: str) -> Record:
        known = self._kept(test)
        if not known.exists():
            copy, start, fresh = self.copies.get(), time.monotonic(), known.with_suffix(".new")
            try:
                code, _ = pytest(copy, [test], 3600, fresh)
                if code not in (0, 5):  # 5: all of its tests are slow ones
                    code, printed = pytest(copy, [test], 1800)  # it may be that it fails only when watched
                    if code != 0:
                        print(f"{test} fails unchanged, so it is left out:\n{printed}", file=sys.stderr, flush=True)
                        fresh.write_text(json.dumps(asdict(Record({}, {}))), encoding="utf-8")
            finally:
                self.copies.put(copy)
            fresh.rename(known)
            print(f"{time.monotonic() - start:6.1f} s  {test}, unchanged", file=sys.stderr, flush=True)
        return Record(**json.loads(known.read_text(encoding="utf-8")))

    def selected(self, mutant: Mutant, ring: int) -> dict[str, float]:
        """The tests, or test files, of a ring that a mutant meets -> their seconds; by file, quick files first."""
        lines, called = statement((self.root / mutant.path).read_text(encoding="utf-8"), mutant.line)
        by_file: list[dict[str, float]] = []
        for file in tests_for(self.root, mutant.path)[ring]:
            record = self.record(file)
            of_module = record.lines.get(mutant.path, {})
            tests = sorted({test for line in lines for test in of_module.get(str(line), [])})
            if file in tests or (not called and ring < 2):
                by_file.append({file: sum(record.seconds.values())})
            elif tests:
                by_file.append({test: record.seconds[test] for test in tests})
        by_file.sort(key=lambda tests: sum(tests.values()))
        if ring == 0 and ">>>" in (self.root / mutant.path).read_text(encoding="utf-8"):
            by_file.insert(0, {f"tests/test_layout.py::test_doctests[dpfl_audit.{module_name(mutant.path)}]": 0.0})
        return {test: seconds for tests in by_file for test, seconds in tests.items()}

    def judge(self, mutant: Mutant, ring: int) -> Answer:
        tests = self.selected(mutant, ring)
        if not tests:
            return Answer(mutant.path, mutant.line, mutant.operator, mutant.diff, "survived", "", 0.0)
        limit = 60 + 3 * sum(tests.values())
        copy = self.copies.get()
        target = copy / mutant.path
        original = target.read_text(encoding="utf-8")
        try:
            target.write_text(mutant.code, encoding="utf-8")
            start = time.monotonic()
            code, printed = pytest(copy, list(tests), limit)
            if code == 4:  # a test's name may have the changed number in it, and a module may be past importing
                files = list(
                    dict.fromkeys(test if "::test_doctests[" in test else test.split("::")[0] for test in tests)
                )
                limit = 60 + 3 * sum(sum(self.records[f].seconds.values()) for f in files if f in self.records)
                code, printed = pytest(copy, files, limit)
            taken = time.monotonic() - start
        finally:
            target.write_text(original, encoding="utf-8")
            self.copies.put(copy)
        if code == 5:
            raise SystemExit(f"no test was collected for {mutant.path}")
        outcome = "timeout" if code is None else "survived" if code == 0 else "killed"
        failed = [line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR"))]
        if code == 1 and not failed:  # pytest says which test; without one it never ran
            raise SystemExit(f"no test ran for {mutant.path}:{mutant.line}:\n{printed}")
        by = failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""
        return Answer(mutant.path, mutant.line, mutant.operator, mutant.diff, outcome, by, round(taken, 1))


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read(output: Path) -> dict[str, Answer]:
    """The last answer to each mutant, by what it changes."""
    if not output.exists():
        return {}
    lines = output.read_text(encoding="utf-8").splitlines()
    return {change(answer): answer for answer in (Answer(**json.loads(line)) for line in lines)}


def change(mutant: Mutant | Answer) -> str:
    """A mutant's name: its diff without line numbers, which move with the code above."""
    return "\n".join(line for line in mutant.diff.splitlines() if not line.startswith("@@"))


def page(answers: Sequence[Answer]) -> str:
    """Markdown: how many were killed by room, every mutant, and the survivors' diffs."""
    by_room: dict[str, list[Answer]] = {room: [] for room in ROOMS}
    for answer in answers:
        by_room[next(room for room in ROOMS if answer.path.startswith(f"{room}/"))].append(answer)
    lines = ["| room | mutants | killed | survived |", "|---|---|---|---|"]
    for room, of_room in [*by_room.items(), ("all", list(answers))]:
        survived = sum(a.outcome == "survived" for a in of_room)
        share = f" ({1 - survived / len(of_room):.0%})" if of_room else ""
        lines.append(f"| `{room}` | {len(of_room)} | {len(of_room) - survived}{share} | {survived} |")
    lines += ["", "| mutant | operator | outcome | noticed by | s |", "|---|---|---|---|---|"]
    for a in sorted(answers, key=lambda a: (a.outcome != "survived", a.path, a.line)):
        by = f"`{a.by}`".replace("|", "\\|") if a.by else ""
        lines.append(f"| `{a.path}:{a.line}` | {a.operator} | {a.outcome} | {by} | {a.seconds:g} |")
    for a in sorted(answers, key=lambda a: (a.path, a.line)):
        if a.outcome == "survived":
            lines += ["", f"### `{a.path}:{a.line}` survived ({a.operator})", "", "```diff", a.diff.rstrip("\n"), "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("mutants.jsonl"), help="one answer a line")
    parser.add_argument("--count", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", action="append", default=[], metavar="PATH", help="a file or folder, e.g. metrics/")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once, each in a scratch copy of its own")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and run nothing")
    arguments = parser.parse_args()
    mutants = draw(ROOT, modules_of(ROOT, arguments.only), arguments.count, arguments.seed)
    if arguments.list:
        print("\n".join(f"# {m.operator}\n{m.diff}" for m in sorted(mutants)))
        return
    known = read(arguments.output)
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    os.environ.setdefault("DPFL_AUDIT_DATA", str(ROOT.parent / "shared" / "data"))
    cache = arguments.output.with_suffix(".lines").resolve()
    cache.mkdir(parents=True, exist_ok=True)
    bench, lock = Bench(ROOT, arguments.jobs, cache), Lock()

    def judged(mutant: Mutant, ring: int) -> Answer:
        answer = bench.judge(mutant, ring)
        line = f"{answer.seconds:6.1f} s  {answer.outcome:8}  ring {ring}  {answer.path}:{answer.line}"
        print(line, file=sys.stderr, flush=True)
        if ring == 2 or answer.outcome != "survived":
            with lock, arguments.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(answer), ensure_ascii=False) + "\n")
        return answer

    answers = {name: answer for name, answer in known.items() if answer.outcome != "survived"}
    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for ring in range(3):  # of all mutants first the nearest tests, so that the far ones meet few
                alive = [m for m in mutants if change(m) not in answers or answers[change(m)].outcome == "survived"]
                alive.sort(key=lambda m: bench.unknown(m, ring))
                answers |= {change(answer): answer for answer in pool.map(judged, alive, [ring] * len(alive))}
    finally:
        bench.close()
    print(page([answers[change(mutant)] for mutant in mutants]), end="")


if __name__ == "__main__":
    main()
