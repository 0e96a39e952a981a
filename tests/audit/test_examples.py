"""The configs of examples/: one for every scheme, and each of them is read, built and priced."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.audit.proven import table as epsilon_table
from dpfl_audit.audit.setup import experiment
from dpfl_audit.audit.setup.config import read_config
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.presets import PRESETS

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.toml"))
FILES = {"fashion_mnist": "FashionMNIST", "lending_club": "lending_club"}  # where a data set lies in the shared data
EACH = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def loaded() -> dict[str, Dataset]:
    return {}


@pytest.fixture
def load_once(monkeypatch: pytest.MonkeyPatch, loaded: dict[str, Dataset]) -> None:
    """The configs differ in nothing that a data set depends on: read each set once."""
    load = experiment.load

    def remembered(name: str, **options: Any) -> Dataset:
        if name not in loaded:
            loaded[name] = load(name, **options)
        return loaded[name]

    monkeypatch.setattr(experiment, "load", remembered)


def test_every_scheme_has_its_example() -> None:
    assert {path.stem for path in EXAMPLES} == set(PRESETS)


@EACH
def test_an_example_is_read_and_says_how_to_run_it(path: Path) -> None:
    config = read_config(path)
    assert config.name == config.preset_name == path.stem
    assert f"examples/{path.name} -o" in path.read_text(encoding="utf-8")
    assert config.data.root is not None and not Path(config.data.root).is_absolute()
    assert config.seed == 0  # one data split for all, which `load_once` relies on


@pytest.mark.few(8)
@EACH
@pytest.mark.usefixtures("load_once")
def test_an_example_is_priced(path: Path, shared_data: Callable[[str], Path]) -> None:
    """Two rounds of it, a fraction of the time: a claim where its scheme makes one; a proven ε, or why not."""
    root = shared_data(FILES[read_config(path).data.name]).parent
    observer = str(read_config(path).audit.observer)
    rows = epsilon_table.table(path, observers=(observer,), overrides=(f'data.root="{root}"', "scheme.rounds=2")).rows
    claimed = [row.claimed for row in rows if row.claimed is not None]
    assert len(claimed) == (path.stem != "fedavg") and all(isfinite(value) and value > 0 for value in claimed)
    for row in rows:
        assert row.proven > 0 if row.proven != inf else any("be proven" in note for note in row.notes)
