"""The root is the package: it installs under one name, imports one way, and ships every file it needs."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import dpfl_audit
import pytest
from dpfl_audit import cli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
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


AUDIT = (  # rooms of audit/, each may import those before it
    "files errors devices extras lock options owners_code progress timetable cluster tensors labelled",
    "setup",
    "results judge say",  # a gate reads a judgement, which is of results
    "proven proof",
    # A recording prices what it has so far and replays its loop; an audit of trainings replays them first.
    "record two_worlds worlds replay",
    "theory",
    "report",
    "scoring catalogue weights",
    "run",
    "choose",
    "reproduce",
    "demo api",
    "ci",
    "commands",
)


def test_the_rooms_of_audit_import_those_before_them():
    order = {name: place for place, names in enumerate(AUDIT) for name in names.split()}
    for path in (ROOT / "audit").rglob("*.py"):
        parts = path.relative_to(ROOT / "audit").with_suffix("").parts
        if parts == ("__init__",):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == len(parts):
                rooms = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
                late = [room for room in rooms if order[room] > order[parts[0]]]
                assert not late, f"audit/{'/'.join(parts)}.py imports {late[0]}, which comes after {parts[0]}"


def test_a_new_idea_in_audit_has_a_room():
    """Beside the rooms lies what `audit run` goes through and what serves everybody; all else belongs into a room."""
    files = {
        "__init__",
        "demo",
        "api",
        "weights",
        "catalogue",
        "files",
        "errors",
        "devices",
        "extras",
        "lock",
        "owners_code",
        "progress",
        "timetable",
        "cluster",
        "tensors",
        "labelled",
    }
    assert {path.stem for path in (ROOT / "audit").glob("*.py")} == files


def test_a_public_function_of_many_parameters_says_what_each_is():
    """A command's docstring is its help, where its options say it. What a class does for a protocol of
    `attacks/base.py` is said there.
    """
    for room in ALLOWED:
        for path in set((ROOT / room).rglob("*.py")) - set((ROOT / "audit" / "commands").glob("*.py")):
            bodies = [(ast.parse(path.read_text()).body, 0)]
            bodies += [(n.body, 1) for n in bodies[0][0] if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
            for body, bound in bodies:
                for node in body:
                    if isinstance(node, ast.FunctionDef) and node.name[0] != "_":
                        if bound and node.name in ("run_part", "run_group") and path != ROOT / "attacks" / "base.py":
                            continue
                        count = len(node.args.args) + len(node.args.kwonlyargs) - bound
                        said = "Args:" in (ast.get_docstring(node) or "")
                        assert count <= 4 or said, f"{path.relative_to(ROOT)}: {node.name} has {count} and no Args"


def test_every_path_of_the_architecture_exists():
    """It leads through the rooms of both flows."""
    paths = set(re.findall(r"`((?:attacks|audit|defenses|metrics|tests)/[\w/]+(?:\.py)?)`", ARCHITECTURE.read_text()))
    assert len(paths) > 40 and [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    rooms = {path.split("/")[1] for path in paths if path.startswith("audit/")}
    assert {"setup", "record", "run", "scoring", "results", "report", "choose", "worlds", "two_worlds"} <= rooms


def test_every_command_is_a_file_of_its_name():
    """Beside them lies what several share. `import` and `list` are Python's words, and their files end in _."""
    files = {path.stem for path in (ROOT / "audit" / "commands").glob("*.py")}
    shared = {"__init__", "options", "printing", "gated"}
    assert {name.rstrip("_") for name in files - shared} == set(cli.audit.commands)


def test_only_cli_lies_beside_the_root_package():
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "cli.py"}


# Names that a contract gives to one function a module.
CONTRACT = {"build", "load", "text", "command"}


def public_names(path: Path) -> Iterable[str]:
    """A module's classes, functions and type aliases; an alias is a capitalised name that is no constant."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            names = [name for name in names if name[0].isupper() and not name.isupper()]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def test_no_two_public_classes_or_functions_share_a_name():
    """One name, one idea. Those of audit/api.py are the user's and may repeat a function's."""
    places: dict[str, list[str]] = {}
    for path in (path for room in ALLOWED for path in sorted((ROOT / room).rglob("*.py"))):
        for name in public_names(path) if path != ROOT / "audit" / "api.py" else ():
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1 and name not in CONTRACT} == {}


STATE = {  # what changes while it is used
    *("State", "UploadTrials", "HubTrials", "_Rounds", "OpenRound"),
    *("Calls", "PlantedDataset", "ReplayRecords", "Tap", "Trainings", "Descent", "Watching", "LearnedSteps"),
    *("KeptPairs", "ToldNoise"),
}


def test_a_dataclass_is_a_value():
    """Frozen; and where it holds arrays it is not compared by them, as an array is neither equal nor unequal."""
    arrays = re.compile(r"^(?!.*Callable).*(Tensor\b|ndarray|NDArray|Scores|Deviations)")
    for name in modules():
        for cls in vars(importlib.import_module(name)).values():
            if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__module__ == name:
                assert cls.__dataclass_params__.frozen != (cls.__name__ in STATE), f"{name}.{cls.__name__}"
                held = [f.name for f in dataclasses.fields(cls) if arrays.search(str(f.type))]
                assert not (held and cls.__dataclass_params__.eq), f"{name}.{cls.__name__} would compare {held}"


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Given by the project's owner, imported or not.
GIVEN = {"torch", "torchvision", "lpips", "scikit-image", "numpy", "pandas", "click"}


def names_of(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def test_every_import_is_a_declared_dependency_and_the_other_way_round():
    """Shipped code imports no package that only happens to be installed, and asks for none that it does not import."""
    imported: set[str] = set()
    for path in [*ROOT.glob("*.py"), *(path for room in ALLOWED for path in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                imported.add(node.module.split(".")[0])
    givers = packages_distributions()
    asked_for = [line for name in ("flower", "dicom", "nvflare") for line in PROJECT["optional-dependencies"][name]]
    extra = names_of(asked_for)  # of whoever asks for it; imported by nobody else, and only when it is used
    assert extra <= imported
    strangers = imported - sys.stdlib_module_names - {"dpfl_audit"} - extra
    needed = {canonicalize_name(givers[name][0]) for name in strangers}
    declared = names_of(PROJECT["dependencies"])
    assert needed - names_of(PROJECT["optional-dependencies"]["ray"]) <= declared <= needed | GIVEN


def test_every_declared_package_is_pinned_once():
    """And nothing else is: a pin that nothing asks for only ages."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    extras = [line for group in PROJECT["optional-dependencies"].values() for line in group]
    assert names_of(lines) == names_of([*PROJECT["dependencies"], *extras]) and len(names_of(lines)) == len(lines)


def with_doctests() -> list[str]:
    files = ((name, importlib.util.find_spec(name).origin) for name in modules())
    return [name for name, path in files if ">>>" in Path(path).read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", with_doctests())
def test_doctests(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_nothing_heavy_or_networked_happens_at_import():
    """`audit --help` must not pay for torch."""
    code = "import sys, dpfl_audit.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.full
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
