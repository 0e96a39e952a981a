"""Reproduced tables: what they hold, the same bytes after a kill, an attack that finds what is there and no more."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.reproduce import cifar10 as table_cifar10
from dpfl_audit.audit.reproduce.cells import Cells
from dpfl_audit.audit.reproduce.cifar10 import CifarTable
from dpfl_audit.audit.reproduce.geometric import TableSetting, table_3
from dpfl_audit.audit.reproduce.tables import TABLES, reproduce
from dpfl_audit.defenses.workers import HERE
from torch import nn

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


# --- membership-cifar10 ---


def test_cifar10_with_a_stand_in_of_known_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The network sees in a pixel whether an image is a member, so its loss tells all of them apart."""
    data = fake_cifar()
    monkeypatch.setattr(table_cifar10, "load", lambda name, **_: data)
    monkeypatch.setattr(table_cifar10, "load_cifar_resnet", lambda path: Telltale())
    weights = tmp_path / table_cifar10.FOLDER
    weights.mkdir(parents=True)
    (weights / "resnet20-x.th").write_bytes(b"")
    table = CifarTable({"resnet20-x.th": 0.9})
    monkeypatch.setitem(TABLES, "membership-cifar10", replace(TABLES["membership-cifar10"], run=table.run))
    table = reproduce("membership-cifar10", data_root=tmp_path, output=tmp_path / "o")
    (row,) = table.rows
    assert (row["network"], row["published_accuracy"]) == ("resnet20", 0.9)
    assert (row["accuracy"], row["accuracy_members"]) == (0.5, 1.0)
    assert row["auc"] == 1.0 and row["auc_low"] < 1.0 and (row["members"], row["others"]) == (60, 120)
    # 120 others resolve 1 %, not .1 %.
    assert row["tpr_1"] == 1.0 and row["tpr_01"] is None and table.text.splitlines()[4].endswith("–")
    assert row["control_low"] < 0.5 < row["control_high"]
    assert row["loss_members"] < row["loss_others"]
    first = bytes_of(tmp_path / "o")
    monkeypatch.setattr(
        table_cifar10, "load_cifar_resnet", lambda path: pytest.fail("a finished cell is not computed again")
    )
    reproduce("membership-cifar10", data_root=tmp_path, output=tmp_path / "o")
    assert bytes_of(tmp_path / "o") == first


class Telltale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([10 * x[:, 0, 0, 0], 5 + 0 * x[:, 0, 0, 0], *[-9 + 0 * x[:, 0, 0, 0]] * 8], 1)


def fake_cifar() -> Any:
    """60 members with a lit pixel, all of class 0; 120 others without, half of class 0."""
    lit, dark = torch.zeros(60, 3, 4, 4), torch.zeros(120, 3, 4, 4)
    lit[:, 0, 0, 0] = 1
    y = torch.arange(120) % 2

    class Fake:
        inputs, targets = lit, torch.zeros(60, dtype=torch.long)
        test_inputs, test_targets = dark[:100], y[:100]
        auxiliary_inputs, auxiliary_targets = dark[100:], y[100:]
        description = {"sha256": "0"}  # noqa: RUF012

    return Fake()


# --- bad input ---


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("geometric-tabel3", {}, "there is no table 'geometric-tabel3'; did you mean 'geometric-table3'?"),
        ("geometric-table3", {"trials": 0}, "--trials 0: at least one is needed"),
        ("geometric-table3", {"data": "adult"}, "data = 'adult': the table is made on mnist, fashion_mnist, digits"),
        (
            "geometric-table3",
            {"data": "mnist"},
            "mnist is read from a folder; give --data-root DIR, with DIR/MNIST",
        ),
        (
            "geometric-table3",
            {"data_root": Path("nowhere")},
            "--data-root nowhere holds neither MNIST nor FashionMNIST",
        ),
        (
            "membership-cifar10",
            {},
            (
                "the images and weights are read from a folder; give --data-root DIR, with DIR/cifar-10-batches-py and"
                " DIR/weights"
            ),
        ),
        (
            "membership-cifar10",
            {"data_root": Path("nowhere")},
            "resnet20-12fca82f.th is missing; it is in pretrained_models/",
        ),
        ("membership-cifar10", {"trials": 3}, "leave --trials out"),
        ("membership-cifar10", {"data": "digits"}, "the table is made on cifar10"),
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
