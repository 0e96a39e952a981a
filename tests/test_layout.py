"""The root is the package: it installs under one name, imports one way, and ships every file it needs."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import dpfl_audit
import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "metrics": {"metrics"},
    "defenses": {"defenses"},
    "attacks": {"attacks", "defenses", "metrics"},
    "audit": {"audit", "attacks", "defenses", "metrics"},
}


def modules() -> list[str]:
    return sorted(
        m.name
        for m in pkgutil.walk_packages(dpfl_audit.__path__, "dpfl_audit.")
        if not m.name.startswith(("dpfl_audit.tests", "dpfl_audit.benchmarks"))
    )


def test_every_package_is_listed_in_pyproject():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    present = {"dpfl_audit"}
    for room in ALLOWED:
        for init in (ROOT / room).rglob("__init__.py"):
            present.add(".".join(("dpfl_audit", *init.parent.relative_to(ROOT).parts)))
    assert listed == present


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_point_one_way(room):
    for path in (ROOT / room).rglob("*.py"):
        depth = len(path.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == depth and node.module:
                top = node.module.split(".")[0]
                assert top not in ALLOWED or top in ALLOWED[room], f"{path.relative_to(ROOT)} imports {node.module}"


def test_only_cli_lies_beside_the_root_package():
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "cli.py"}


@pytest.mark.parametrize("name", modules())
def test_doctests(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_nothing_heavy_or_networked_happens_at_import():
    """`audit --help` must not pay for torch."""
    code = "import sys, dpfl_audit.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_wheel_ships_what_git_tracks(tmp_path):
    """sdist then wheel from a clean copy of the tracked files; the wheel holds every module and data file and nothing
    else.
    """
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    names = [n for n in tracked.stdout.split("\0") if n]
    for name in names:
        if (ROOT / name).is_file():
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "src" / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(tmp_path / "src")],
        check=True,
        capture_output=True,
    )
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as wheel:
        shipped = {n.removeprefix("dpfl_audit/") for n in wheel.namelist() if n.startswith("dpfl_audit/")}
    rooms = (*ALLOWED, "__init__.py", "cli.py", "py.typed")
    expected = {n for n in names if n.split("/")[0] in rooms and (ROOT / n).is_file()}
    assert shipped == expected
