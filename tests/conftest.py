"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from dpfl_audit.audit import progress
from dpfl_audit.defenses import process
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.metrics import closer_test

hypothesis.settings.register_profile("the same every time", derandomize=True)
hypothesis.settings.load_profile("the same every time")

os.environ["OMP_NUM_THREADS"] = (
    "1"  # for the programs tests start: sums over other numbers of threads round differently
)

DATA = Path(os.environ.get("DPFL_AUDIT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """A network that a module makes as it is imported is the same one, whichever modules came before it."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A test that draws without a seed of its own draws the same, whichever tests came before it."""
    torch.manual_seed(1)  # 0 is of collecting


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test with the mark `few(n)`, n that lie evenly among all stay in `make test`."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and isinstance(item, pytest.Function):
            cases[item.path, item.originalname].append(item)
    for family in cases.values():
        (n,) = family[0].get_closest_marker("few").args
        kept = {i * len(family) // n for i in range(n)}
        for i, item in enumerate(family):
            if i not in kept:
                item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small tensors are slower on many threads, and workers of pytest-xdist would fight over the cores."""
    process.ready()
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def notes() -> Dataset:
    return load("notes", seed=5)


@pytest.fixture(scope="session", autouse=True)
def no_lines_of_progress() -> None:
    """A command that a busy machine keeps ten seconds would else say so among what a test asserts."""
    progress.LINE = 3600.0


@pytest.fixture(scope="module")
def without_closeness() -> Iterator[None]:
    """No p-value of closeness, half of the work of scoring, for a module that does not read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closer_test, "closer_p_value", lambda *_, **__: 1.0)
        yield


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """`shared_data(name)` is the path of a file or folder of real data, or skips the test where it is absent.

    Looked for in $DPFL_AUDIT_DATA, else in ../shared/data beside the repository.
    """

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"{path} is absent: put it there, or set DPFL_AUDIT_DATA to the folder that holds {name}")
        return path

    return find
