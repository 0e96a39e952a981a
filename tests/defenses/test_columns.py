"""A table's columns: cells to features and back, and rows as images of one pixel."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.columns import TableColumn, facts_of, fitted_column, table_columns
from dpfl_audit.defenses.data.unit_scale import UnitScale, words_of

CELLS = pd.Series(["red", "blue", None, "green", "blue"], name="colour")


def test_a_column_of_words_by_the_rows_it_is_fitted_on():
    column = fitted_column(CELLS, np.array([0, 1, 2]))
    assert column == TableColumn("colour", ("?", "blue", "red"))
    features = np.stack(column.features(CELLS), 1)
    assert features.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert [column.cell(row) for row in features] == ["red", "blue", "?", "another word", "blue"]


def test_a_column_of_numbers_by_hand():
    cells = pd.Series(["60", "20", "40", "sixty"], name="age")
    column = fitted_column(cells, np.array([1, 2]))  # mean 30, deviation 10
    (features,) = column.features(cells)
    assert features.tolist() == [3, -1, 1, 0] and (column.least, column.most) == (-1, 1)
    assert [column.cell([value]) for value in features] == ["60", "20", "40", "30"]
    assert fitted_column(cells, np.array([3])).words == ("sixty",)
    assert fitted_column(pd.Series([None, "x"], name="empty"), np.array([0])) is None


def test_what_a_description_says_of_columns_survives_json():
    columns = [TableColumn("age", (), 30.0, 10.0, -1.0, 6.0), TableColumn("colour", ("blue", "red"))]
    told = table_columns(json.loads(json.dumps(facts_of(columns))), 4, [0.0] * 4, [1.0] * 4)
    assert told[0].name == "age" and (told[0].least, told[0].most) == (-4, 6)  # four deviations at least
    assert told[1] == columns[1] and table_columns(facts_of(told), 4) == told
    with pytest.raises(ValueError, match="columns have 4 features, and its records 5"):
        table_columns(facts_of(columns), 5)


def test_a_csv_tells_its_columns(tmp_path):
    rng = np.random.default_rng(0)
    jobs, answers = rng.choice(["a", "b"], 60), rng.integers(0, 2, 60)
    table = pd.DataFrame({"age": rng.integers(18, 80, 60), "job": jobs, "y": answers})
    table.to_csv(tmp_path / "x.csv", index=False)
    data = load("csv", root=str(tmp_path / "x.csv"), target="y")
    columns = table_columns(data.description, data.input_shape[0], data.mean, data.std)
    assert [column.name for column in columns] == ["age", "job"] and columns[1].words == ("a", "b")
    rows = data.inputs[:5]
    shown = {(columns[0].cell(row[:1]), columns[1].cell(row[1:])) for row in rows.tolist()}
    assert shown <= {(str(age), job) for age, job in zip(table["age"], table["job"])}


def test_rows_as_images_ask_the_network_the_same():
    columns = (
        TableColumn("age", least=-4.0, most=6.0, spread=1.0),
        TableColumn("job", ("a", "b")),
        TableColumn("pay", most=9.0),
    )
    scale, rows = UnitScale.of(columns), torch.randn(7, 5).clamp(0, 1)
    images = scale.images(rows)
    assert images.shape == (7, 5, 1, 1) and images.min() >= 0 and images.max() <= 1
    assert torch.allclose(scale.rows(images), rows, atol=1e-6)
    assert scale.images(torch.full((1, 5), 99.0)).unique().tolist() == [1.0]  # what lies outside is cut off
    module = models.build("mlp", input_shape=(5,), classes=3, mean=[0.1] * 5, std=[0.5] * 5, seed=0, widths=[4])
    pictured = scale.module(module)
    assert [name for name, _ in pictured.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert torch.allclose(pictured(images), module(rows), atol=1e-5)
    assert words_of(pictured) == ((1, 3),) and words_of(module) == ()
    with pytest.raises(ValueError, match="does not begin with its records' mean"):
        scale.module(torch.nn.Linear(5, 2))
