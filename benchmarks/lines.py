"""A plugin of pytest: which test runs which line of the product, and how long each test takes.

    MUTANTS_LINES=lines.json python -m pytest -p lines tests/metrics/test_auc.py

What tests share runs once, for whichever of them comes first: a fixture of more than one test, a cached function of a
test file. Its lines count for the whole file. The product's own caches are emptied before every test. What runs when a
module is imported counts for nobody, and what runs in another process is not seen.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [str(ROOT / room) for room in ("attacks", "audit", "defenses", "metrics")]
_cache = functools.cache


class Lines:
    """Coverage in memory, in a context at a time: the test's id or its file, as pytest takes them, or nothing."""

    def __init__(self) -> None:
        os.environ["COVERAGE_CORE"] = "ctrace"  # sys.monitoring reports a line once, not once a context
        self.coverage = coverage.Coverage(data_file=None, source=SOURCES, config_file=False)
        self.coverage.start()
        self.context = ""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def within(self, context: str) -> Iterator[None]:
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        try:
            yield
        finally:
            self.context = before
            self.coverage.switch_context(before)

    def shared(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """functools.cache for test files."""

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            with self.within(self.context.split("::")[0]):
                return function(*arguments, **named)

        return _cache(run if Path(function.__code__.co_filename).is_relative_to(ROOT / "tests") else function)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        for name, module in list(sys.modules.items()):
            if name.startswith("dpfl_audit."):
                for value in vars(module).values():
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
        with self.within(test_id(item)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        with self.within(self.context if fixturedef.scope == "function" else self.context.split("::")[0]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        self.seconds[test_id(item)] = self.seconds.get(test_id(item), 0.0) + call.duration
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, dict[int, list[str]]] = {}
        for file in sorted(data.measured_files()):
            by_line = {line: sorted({*names} - {""}) for line, names in data.contexts_by_lineno(file).items()}
            if of_tests := {line: names for line, names in sorted(by_line.items()) if names}:
                lines[str(Path(file).resolve().relative_to(ROOT))] = of_tests
        Path(os.environ["MUTANTS_LINES"]).write_text(json.dumps({"seconds": self.seconds, "lines": lines}))


def test_id(item: pytest.Item) -> str:
    """As pytest takes it in the root: its own ids are relative to the folder of pytest.ini."""
    return "::".join([str(item.path.relative_to(ROOT)), *item.nodeid.split("::")[1:]])


def pytest_configure(config: pytest.Config) -> None:
    lines = Lines()
    functools.cache = lines.shared  # type: ignore[assignment]
    config.pluginmanager.register(lines)
