"""Does a change keep the evidence and the ε? The tutorial, every kind of data, every example: their numbers
under two versions of the code, compared one by one.

    git worktree add ../before REVISION
    python benchmarks/same_results.py collect before.json --tree ../before
    python benchmarks/same_results.py collect after.json
    python benchmarks/same_results.py compare before.json after.json --allow allowed.txt

`collect` runs that version's own commands on two cores (--jobs); killed, it goes on where it was. `--quick` takes a
few minutes, `--only PATTERN` some pieces. `compare` prints every difference and ends with 1 if there is any. Numbers
must be equal to the last bit; sentences too, unless `--numbers` leaves them out. A line of the allow-list is a pattern
of names (`*` and `?`), then `#` and the reason; one that fits no difference is told as well. What a change renamed on
purpose is given with `--renamed OLD=NEW`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from same_pieces import Piece, pieces

HERE = Path(__file__).resolve().parent.parent
# What names a row of a table; what is of this run, machine or format alone; and what is kept as a digest.
NAMES = (
    "observer",
    "unit",
    "adjacency",
    "delta",
    "attack",
    "manner",
    "round",
    "client",
    "metric",
    "gate",
    "name",
    "number",
)
PASSING = (
    *(
        "digest",
        "messages",
        "versions",
        "run",
        "folder",
        "setup",
        "source",
        "seconds",
        "format",
        "config",
        "study",
        "page",
    ),
    "results",  # beside what `audit run` and `audit report` print; its file is read
)
DETAIL = ("pairs", "roc", "histogram", "per_class", "per_client", "most_exposed", "rounds")
LONG = 8  # longer lists of numbers are kept as a digest


# --- values


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The numbers, words and sentences of a document by their names; what is null or empty is left out.

    >>> dict(flat({"rows": [{"observer": "model", "proven": 2.0, "notes": []}]}, "epsilon"))
    {'epsilon/rows/model/proven': 2.0}
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key in DETAIL and isinstance(part, list | dict):
                yield f"{name}/{key}", digest(json.dumps(part, sort_keys=True).encode())
            elif key not in PASSING:
                yield from flat(part, f"{name}/{key}")
    elif isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        counts: dict[str, int] = {}
        for row in value:
            known = {key: str(row[key]) for key in NAMES if isinstance(row.get(key), str | int | float)}
            place = " ".join(known.values())
            counts[place] = counts.get(place, 0) + 1
            there = place if counts[place] == 1 else f"{place}#{counts[place]}"
            yield from flat({key: part for key, part in row.items() if key not in known}, f"{name}/{there}")
    elif isinstance(value, list) and len(value) > LONG:
        yield name, f"{len(value)}:{digest(json.dumps(value).encode())}"
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from flat(part, f"{name}/{number}")
    elif value is not None and value != "":
        yield name, value


def arrays(folder: Path) -> Iterator[tuple[str, str]]:
    """A digest of every array and table in a folder of a setup or of results."""
    from safetensors import safe_open

    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, "np") as file:
            for key in sorted(file.keys()):
                array = file.get_tensor(key)
                yield (
                    f"{path.relative_to(folder)}:{key}",
                    f"{array.dtype}{list(array.shape)}:{digest(array.tobytes())}".replace(" ", ""),
                )
    for path in sorted([*folder.rglob("scores/*.csv"), *folder.rglob("rounds.csv"), *folder.rglob("releases.jsonl")]):
        yield str(path.relative_to(folder)), digest(path.read_bytes())


# --- collecting


@dataclass(frozen=True)
class Notebook:
    """The `Book` of one piece."""

    folder: Path
    tree: Path
    data: Path
    quick: bool
    values: dict[str, Any] = field(default_factory=dict)

    def audit(self, name: str, *words: str) -> int:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = forked(self.folder, [*words, "--json"], out.fileno(), err.fileno())
            out.seek(0)
            err.seek(0)
            printed, complained = out.read().decode(), err.read().decode()
        self.values[f"{name}/exit code"] = code
        if code not in (0, 1):
            print(f"  {name}: {' '.join(words)}\n  {complained.strip()[-300:]}", flush=True)
            self.values[f"{name}/complaint"] = complained.strip().splitlines()[-1].replace(str(self.tree), "TREE")
        with contextlib.suppress(ValueError):
            self.values.update(flat(json.loads(printed), name))
        return code

    def files(self, name: str, folder: str) -> None:
        self.values.update((f"{name}/{key}", value) for key, value in arrays(self.folder / folder))
        results = self.folder / folder / "results.json"
        if results.exists():
            self.values.update(flat(json.loads(results.read_text(encoding="utf-8")), f"{name}/results"))

    def lines(self, name: str, file: str) -> None:
        text = (self.folder / file).read_text(encoding="utf-8")
        self.values.update((f"{name}/{number}", line) for number, line in enumerate(text.splitlines()) if line)


def forked(folder: Path, words: list[str], out: int, err: int) -> int:
    """The exit code of one command, in a process of its own that has everything imported already."""
    child = os.fork()
    if child == 0:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        code: Any = 70
        try:
            from dpfl_audit import cli

            cli.main(words)
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def imported() -> None:
    """Imports the product once, for all commands that are forked; without what needs extras."""
    import dpfl_audit
    import torch

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(dpfl_audit.__path__, "dpfl_audit."):
        room = module.name.split(".")[1]
        if room in ("attacks", "audit", "defenses", "metrics", "cli") and "flower" not in module.name:
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def measured(piece: Piece, tree: Path, data: Path, quick: bool, output: Path) -> int:
    """Runs one piece in a process of its own, which writes its values into `output`; the process's number."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException), tempfile.TemporaryDirectory(prefix="same-") as folder:
            try:
                book = Notebook(Path(folder), tree, data, quick)
                piece(book)
                output.write_text(json.dumps(book.values), encoding="utf-8")
                code = 0
            except BaseException:
                traceback.print_exc()
        os._exit(code)
    return child


def collect(file: Path, tree: Path, data: Path, quick: bool, jobs: int, only: str) -> int:
    """Every piece that the file does not hold yet; 1 where one failed."""
    begun = {"commit": revision(tree), "quick": quick}
    held: dict[str, Any] = {**begun, "pieces": {}}
    if file.exists():
        held = json.loads(file.read_text(encoding="utf-8"))
    if {name: held[name] for name in begun} != begun:
        print(f"{file} was begun at {held['commit']}, quick: {held['quick']}; give another file", file=sys.stderr)
        return 2
    left = {
        name: p for name, p in pieces(tree, quick).items() if name not in held["pieces"] and fnmatchcase(name, only)
    }
    imported()
    running: dict[int, tuple[str, Path, float]] = {}
    failed, work = 0, Path(tempfile.mkdtemp(prefix="same-work-"))
    try:
        while left or running:
            while left and len(running) < jobs:
                name = next(iter(left))
                output = work / f"{digest(name.encode())}.json"
                running[measured(left.pop(name), tree, data, quick, output)] = (name, output, time.monotonic())
            child, status, used = os.wait4(-1, 0)
            name, output, since = running.pop(child)
            spent = f"{time.monotonic() - since:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of a core"
            print(f"{name}: {'done' if status == 0 else 'FAILED'} in {spent}", flush=True)
            if status != 0:
                failed = 1
                continue
            held["pieces"][name] = json.loads(output.read_text(encoding="utf-8"))
            partial = file.with_name(f"{file.name}.part")
            partial.write_text(json.dumps(held, indent=0, sort_keys=True, ensure_ascii=False), encoding="utf-8")
            os.replace(partial, file)
    finally:
        shutil.rmtree(work)
    return failed


def revision(tree: Path) -> str:
    call = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()


def in_tree(tree: Path) -> None:
    """Starts this program anew in an environment where `dpfl_audit` is `tree`, unless it is in one."""
    link = tree / ".link"
    wanted = {
        "PYTHONPATH": str(link),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "TORCH_HOME": str(Path(tempfile.gettempdir()) / "same-results-no-weights"),  # as on a fresh machine
        "COLUMNS": "110",
    }
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return
    link.mkdir(exist_ok=True)
    if not (link / "dpfl_audit").exists():
        (link / "dpfl_audit").symlink_to("..")
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


# --- comparing


def is_sentence(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) > 3


def allowed(path: Path | None) -> dict[str, str]:
    """Patterns and their reasons. Raises ValueError for a line without a reason."""
    lines = [] if path is None else path.read_text(encoding="utf-8").splitlines()
    reasons: dict[str, str] = {}
    for line in lines:
        pattern, _, reason = (part.strip() for part in line.partition("#"))
        if pattern and not reason:
            raise ValueError(f"{path}: {pattern}: say why after #")
        if pattern:
            reasons[pattern] = reason
    return reasons


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], renamed: Mapping[str, str], numbers: bool
) -> dict[str, tuple[Any, Any]]:
    """What two collections differ in: by name, the two values, None where there is none. A piece that only one of them
    has is one difference.
    """
    first, second = named(before, renamed), named(after, {})
    different: dict[str, tuple[Any, Any]] = {}
    for piece in sorted(first.keys() | second.keys()):
        if piece not in first or piece not in second:
            different[piece] = (first.get(piece) and "collected", second.get(piece) and "collected")
            continue
        for key in sorted(first[piece].keys() | second[piece].keys()):
            left, right = first[piece].get(key), second[piece].get(key)
            if not (same(left, right) or (numbers and all(v is None or is_sentence(v) for v in (left, right)))):
                different[f"{piece}/{key}"] = left, right
    return different


def named(held: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The values of every piece, by the names of today."""

    def today(name: str) -> str:
        for old, new in renamed.items():
            name = name.replace(old, new)
        return name

    return {today(piece): {today(k): value for k, value in found.items()} for piece, found in held["pieces"].items()}


def same(left: Any, right: Any) -> bool:
    """Equal, and of one kind: 1 is not true."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def compare(before: Path, after: Path, allow: Path | None, renamed: Mapping[str, str], numbers: bool) -> int:
    """Prints every difference that is not allowed; their number."""
    first, second = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    different, reasons = differences(first, second, renamed, numbers), allowed(allow)
    used = {name: next((p for p in reasons if fnmatchcase(name, p)), "") for name in different}
    for name, (left, right) in different.items():
        if not used[name]:
            print(f"{name[:200]}: {str(left)[:80]} | {str(right)[:80]}")
    for pattern in reasons:
        print(f"allowed, {reasons[pattern]}: {sum(p == pattern for p in used.values())} of {pattern}")
    left_over = sum(not pattern for pattern in used.values())
    for held in (first, second):
        print(f"{sum(map(len, held['pieces'].values()))} values in {len(held['pieces'])} pieces at {held['commit']}")
    print(f"{left_over} different, {len(used) - left_over} allowed")
    return left_over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("collect")
    one.add_argument("file", type=Path)
    one.add_argument("--tree", type=Path, default=HERE, help="the checkout to measure; default: this one")
    one.add_argument("--data", type=Path, default=HERE.parent / "shared" / "data")
    one.add_argument("--quick", action="store_true")
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("--only", default="*", metavar="PATTERN", help="pieces, such as 'examples/*'")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--allow", type=Path, metavar="FILE")
    two.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    two.add_argument("--numbers", action="store_true", help="leave sentences out")
    given = parser.parse_args()
    if given.command == "collect":
        tree = given.tree.resolve()
        in_tree(tree)
        return collect(given.file, tree, given.data.resolve(), given.quick, given.jobs, given.only)
    renamed = dict(pair.split("=", 1) for pair in given.renamed)
    return int(compare(given.before, given.after, given.allow, renamed, given.numbers) > 0)


if __name__ == "__main__":
    sys.exit(main())
