"""Reproduced tables: what they hold, the same bytes after a kill, an attack that finds what is there and no more."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.reproduce.cells import Cells
from dpfl_audit.audit.reproduce.geometric import TableSetting, table_3
from dpfl_audit.audit.reproduce.tables import TABLES, reproduce
from dpfl_audit.defenses.workers import HERE

TINY = TableSetting("overfitted", clients=2, participants=2, records=20, steps=20, rounds=5, lr=0.3, shadows=4)
CELLS = ((None, None), (1.0, 5.0))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        TABLES,
        "geometric-table3",
        replace(TABLES["geometric-table3"], run=lambda request: table_3(request, (TINY,), CELLS)),
    )


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- geometric-table3 ---


@pytest.mark.full
def test_an_overfitted_target_is_told_apart_without_noise_and_not_with_it(tiny: None, tmp_path: Path) -> None:
    table = reproduce("geometric-table3", trials=6, output=tmp_path / "o")
    plain, noisy = table.rows
    assert (plain["ϑ"], plain["ε"], plain["published_success"]) == ("no DP", "∞", 0.993)
    assert (noisy["ϑ"], noisy["ε"], noisy["published_success"]) == ("1", "5", 0.582)
    assert plain["trials"] == 6
    assert plain["accuracy_members"] > 0.95 > 0.9 > plain["accuracy_others"]
    assert plain["success_low"] > 0.55 and plain["auc"] > 0.6
    assert plain["control_low"] < 0.5 < plain["control_high"] and plain["control"] < plain["success_low"]
    assert noisy["success_low"] < 0.5 < noisy["success_high"]
    assert plain["noise_std"] == 0.0
    # Eq. 8 at ϑ = 1, q = 1: Δ·√(2M ln(1/δ))/ε, Δ = 2C/n.
    assert noisy["noise_std"] == pytest.approx(2 * 5 / 20 * (2 * 5 * 6.907755) ** 0.5 / 5)


def test_the_same_figures_as_text_markdown_csv_and_json(tiny: None, tmp_path: Path) -> None:
    table = reproduce("geometric-table3", quick=True, trials=1, output=tmp_path)
    success = f"{table.rows[0]['success']:.3f}"
    assert (
        all(row["quick"] is True for row in table.rows) and "ours (quick)" in table.text and "[quick" in table.markdown
    )
    for shown in (table.text, table.markdown):
        assert success in shown and "0.993" in shown and "0.582" in shown and table.notes[0] in shown
    assert (tmp_path / "table.md").read_text() == table.markdown
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert [float(row["success"]) for row in lines] == [row["success"] for row in table.rows]
    assert lines[0]["quick"] == "True"
    results = json.loads((tmp_path / "results.json").read_text())
    assert results == table.document() and results["quick"] is True and results["rows"] == table.rows
    assert not reproduce("geometric-table3", trials=1).quick


# --- bad input ---


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("geometric-tabel3", {}, "there is no table 'geometric-tabel3'; did you mean 'geometric-table3'?"),
        ("geometric-table3", {"trials": 0}, "--trials 0: at least one is needed"),
        ("geometric-table3", {"data": "adult"}, "data = 'adult': the table is made on mnist, fashion_mnist, digits"),
        ("geometric-table3", {"data": "mnist"}, "mnist is read from a folder; give --data-root DIR, with DIR/MNIST"),
        (
            "geometric-table3",
            {"data_root": Path("nowhere")},
            "--data-root nowhere holds neither MNIST nor FashionMNIST",
        ),
    ],
)
def test_bad_input_is_one_sentence(name: str, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as error:
        reproduce(name, **asked)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_folder_that_holds_something_else_is_left_alone(tiny: None, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not empty and holds no reproduced table"):
        reproduce("geometric-table3", trials=1, output=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(BadInput, match="is a file"):
        reproduce("geometric-table3", trials=1, output=tmp_path / "mine.txt")
    store = Cells(tmp_path / "new", ["content"])

    def cells(value: float) -> list[dict[str, Any]]:
        return list(store.all(lambda key, progress: {"x": value}, ["a"], HERE, lambda n: lambda *_: None))

    assert cells(0.1) == cells(2.0) == [{"x": 0.1}]
    (tmp_path / "new" / "cells" / "a.json").write_text('{"x": 0.')
    with pytest.raises(BadInput, match=r"a\.json is damaged; remove it"):
        cells(0.1)
