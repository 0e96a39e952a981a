"""What replay finds, and in how many seconds: published violations as small fixtures, right trainings, Flower.

The fixtures are the tests' own (`tests/audit/replay/`, `tests/audit/worlds/flower/`), as of the imports.
usage: python benchmarks/replay.py > benchmarks/measured/replay.md
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import dpfl_audit

TESTS = Path(__file__).parent.parent / "tests"
LEFT = """
Not found by replay, as they are of the accounting and of no sensitivity: a budget spent twice (MOSTLY AI), an
odometer without a logarithm (SmartNoise #621). A replay that is killed by signal 9 goes on with what was left
and ends in the same bytes (`tests/audit/replay/test_replay.py`)."""
SEEDS = range(10)  # of right trainings, in each of three adjacencies


def tests_of(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, TESTS / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(
    call: Callable[..., dpfl_audit.Replay], *given: object, **asked: object
) -> tuple[dpfl_audit.Replay, float, float]:
    """What it found, wall and CPU seconds."""
    wall, cpu = time.monotonic(), time.process_time()
    found = call(*given, **asked)
    return found, time.monotonic() - wall, time.process_time() - cpu


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sys.path.insert(0, str(TESTS))  # for `command`
    plain, flower = tests_of("audit/replay/test_replay.py"), tests_of("audit/worlds/flower/test_replayed.py")
    rows = []
    (cases,) = [m.args[1] for m in plain.test_a_published_violation_is_named.pytestmark if m.name == "parametrize"]
    for case in cases:
        train, expected, options = case.values
        asked = {"adjacency": "add_remove", **options}
        records = asked.pop("records", None) or plain.data()
        found, wall, cpu = timed(dpfl_audit.replay, train, records, **asked)
        named = expected in [(v.kind, v.name) for v in found.violations]
        rows.append((case.id, "named" if named else "MISSED", expected[0], wall, cpu))
    local = flower.LOCAL.replace("SENSITIVITY", "1e-4")
    adaptive = f"DifferentialPrivacyServerSideAdaptiveClipping({flower.PLAIN}, 0.8, 10)"
    heavy = {"weight": "(41 if client == 0 else 1)"}
    apps = [
        ("Flower: sensitivity 1e-4, clip 1", local + ", whole", flower.PLAIN, {}),
        ("Flower: no number, no length", "", flower.FIXED, {}),
        ("Flower: an adaptive clip's noise", "whole", adaptive, {}),
        ("Flower: unequal weights", "whole", flower.FIXED, heavy),
    ]
    for name, mods, strategy, more in apps:
        with tempfile.TemporaryDirectory() as folder:
            found, wall, cpu = timed(flower.replayed, Path(folder), mods, strategy, **more)
        rows.append((name, "named" if found.violations else "MISSED", found.violations[0].kind, wall, cpu))
    accused, slowest = 0, 0.0
    for adjacency in ("add_remove", "zero_out", "replace_one"):
        for seed in SEEDS:
            train = plain.dpsgd(bound=2 * plain.CLIP if adjacency == "replace_one" else plain.CLIP)
            found, wall, _ = timed(dpfl_audit.replay, train, plain.data(seed), adjacency=adjacency, seed=seed)
            accused, slowest = accused + bool(found.violations), max(slowest, wall)
    for mods, strategy, adjacency, _ in flower.RIGHT:
        with tempfile.TemporaryDirectory() as folder:
            found, _, _ = timed(flower.replayed, Path(folder), mods, strategy, adjacency=adjacency)
        accused += bool(found.violations)
    schemes = tests_of("contracts/test_schemes_replayed.py")
    passed: dict[bool, list[Any]] = {True: [], False: []}
    own = time.monotonic()
    for case in schemes.CASES:
        passed[not schemes.replayed(case).violations].append(case)
    own = time.monotonic() - own
    print("# Replay: what it finds, and how fast\n\n`python benchmarks/replay.py`, after imports, on a busy core.\n")
    print("| published violation | outcome | kind | seconds | CPU seconds |\n|---|---|---|---:|---:|")
    for name, outcome, kind, wall, cpu in rows:
        print(f"| {name} | {outcome} | {kind} | {wall:.2f} | {cpu:.2f} |")
    right = 3 * len(SEEDS)
    print(f"\nRight trainings accused: {accused} of {right} by hand and {len(flower.RIGHT)} Flower apps;", end=" ")
    print(f"the slowest took {slowest:.1f} s.")
    proven = [case for case in passed[True] if case.proven]
    names = ", ".join(sorted({case.preset for case in passed[False]}))
    print(
        f"\nThis tool's own {len({case.preset for case in schemes.CASES})} schemes, in {len(schemes.CASES)} settings of"
        f" two rounds,\nbeside six neighbours each ({own:.0f} s): {len(proven)} settings pass, all of which something"
        f" is proven. Named are\n{len(passed[False])}, of which nothing is proven, as a value goes out without a bound"
        f" or its noise follows private data:\nsettings of {names}."
    )
    print(LEFT)


if __name__ == "__main__":
    main()
