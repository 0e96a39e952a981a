"""The sources of one version of the code, as text and by `ast`: of a checkout, or of a commit."""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("attacks", "audit", "defenses", "metrics")
PRODUCT = (*(f"{room}/" for room in ROOMS), "cli.py", "__init__.py")
PAGES = ("README.md", "CHANGELOG.md")


@dataclass(frozen=True, eq=False)
class Source:
    """One Python file. path: from the root, with slashes."""

    path: str
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> dict[type, list[tuple[str, ast.AST]]]:
        """Every node by its kind, with the place it stands in: the file, and the function or class of it."""
        by_kind: dict[type, list[tuple[str, ast.AST]]] = {}
        _collect(ast.parse(self.text), self.path, ":", by_kind)
        return by_kind

    def of(self, *kinds: type) -> Iterator[tuple[str, Any]]:
        return (pair for kind in kinds for pair in self.nodes.get(kind, ()))


def _collect(node: ast.AST, place: str, joint: str, by_kind: dict[type, list[tuple[str, ast.AST]]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside, then = f"{place}{joint}{child.name}", "."
        else:
            inside, then = place, joint
        by_kind.setdefault(type(child), []).append((inside, child))
        _collect(child, inside, then, by_kind)


@dataclass(frozen=True, eq=False)
class House:
    """The files of one version of the code. pages: path to size in bytes."""

    product: Sequence[Source]
    tests: Sequence[Source]
    pages: Mapping[str, int]

    @classmethod
    def of(cls, files: Mapping[str, str]) -> House:
        """Of the text of every file by its path."""
        code = [Source(path, text) for path, text in sorted(files.items()) if path.endswith(".py")]
        pages = {path: len(text.encode()) for path, text in files.items() if _ships(path)}
        return cls(
            [source for source in code if source.path.startswith(PRODUCT)],
            [source for source in code if source.path.startswith("tests/")],
            pages,
        )

    def room(self, folder: str) -> list[Source]:
        return [source for source in self.product if source.path.startswith(folder)]


def _ships(path: str) -> bool:
    return path in PAGES or (path.startswith("docs/") and path.endswith(".md"))


def files_here(root: Path) -> dict[str, str]:
    """What lies in a checkout, committed or not."""
    paths = [root / name for name in ("cli.py", "__init__.py", *PAGES)]
    paths += [path for room in (*ROOMS, "tests") for path in (root / room).rglob("*.py")]
    paths += (root / "docs").rglob("*.md")
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths if path.is_file()}


def files_at(commit: str) -> dict[str, str]:
    """What a commit of this repository holds. Raises subprocess.CalledProcessError where it is not known."""
    call = ["git", "archive", "--format=tar", commit]
    packed = subprocess.run(call, cwd=ROOT, capture_output=True, check=True).stdout
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith((".py", ".md")):
                texts[member.name] = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
    return texts
