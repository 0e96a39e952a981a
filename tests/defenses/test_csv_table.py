"""One's own table: what is read of it, by whose rows, and what is refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.dataset import DEALT_BY_LOT


def table(folder, columns, name="x.csv"):
    path = folder / name
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def columns(n=200, **others):
    rng = np.random.default_rng(0)
    return {
        "age": rng.integers(20, 60, n).tolist(),
        "work": rng.choice(["State", "Private", "?"], n).tolist(),
        "outcome": rng.choice(["no", "yes"], n).tolist(),
        **others,
    }


def read(folder, given=None, target="outcome", **options):
    return load("csv", root=table(folder, columns() if given is None else given), target=target, seed=3, **options)


def test_every_row_has_its_holder_and_the_holder_s_name_is_no_feature(tmp_path):
    """The code of a ward is a feature here, so that a row tells whose it is: 0 east, 1 north, 2 south."""
    given = {"code": [2, 1, 0, 1] * 50, "ward": ["south", "north ", "east", "north"] * 50, "outcome": ["a", "b"] * 100}
    data = read(tmp_path, given, holder="ward")
    assert data.input_shape == (1,) and data.groups is not None
    assert torch.equal(data.groups, data.inputs[:, 0].unique(return_inverse=True)[1])
    given["ward"][7] = ""
    with pytest.raises(ValueError, match="'ward' is missing in row 8 below"):
        read(tmp_path, given, holder="ward")


def test_rows_are_dealt_by_lot_and_every_one_once(tmp_path):
    """200 rows numbered in a column: a fifth for testing, a tenth auxiliary, the others in their order."""
    data = read(tmp_path, {"number": range(200), "outcome": ["a", "b"] * 100})
    splits = data.inputs, data.test_inputs, data.auxiliary_inputs
    assert [len(split) for split in splits] == [140, 40, 20]
    assert len(torch.cat(splits).unique()) == 200 and (data.inputs.diff(dim=0) > 0).all()
    assert data.description["test"] == DEALT_BY_LOT and data.statistics_of == "auxiliary"
    assert not torch.equal(data.inputs, load("csv", root=str(tmp_path / "x.csv"), target="outcome", seed=4).inputs)


def test_numbers_words_and_what_is_missing_by_hand(tmp_path):
    """age: mean 40, standard deviation 20 of the auxiliary rows, all of which are 20 or 60; a missing one is the mean.
    work: State, Private and missing, and one column for any other word. Class numbers go by the classes' order.
    """
    ages, works = ["20", "60"] * 100, ["State", "Private", "?", "State"] * 50
    numbers = _numbers(tmp_path)
    train, auxiliary = numbers["training"], numbers["auxiliary"]
    for k, row in enumerate(auxiliary):
        ages[row], works[row] = ("20", "60")[k % 2], ("State", "Private", "?")[k % 3]
    for row, age, work in zip(train, ("100", "", "old"), ("Never-heard-of", "State", "")):
        ages[row], works[row] = age, work
    outcomes = ["yes", "no"] * 100
    data = read(tmp_path, {"age": ages, "work": works, "outcome": outcomes})
    assert data.inputs[:3].tolist() == [[3, 0, 0, 0, 1], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0]]  # ?, Private, State, others
    assert data.targets[:3].tolist() == [["no", "yes"].index(outcomes[row]) for row in train[:3]]
    assert data.classes == 2 and data.description["labels"] == ["no", "yes"]


def _numbers(folder):
    """Which rows of 200 are dealt to which split under seed 3: a regression's target is not touched, so it tells."""
    data = read(folder, {"x": range(200), "outcome": [k + 0.5 for k in range(200)]})
    splits = {"training": data.targets, "test": data.test_targets, "auxiliary": data.auxiliary_targets}
    return {name: [int(value) for value in targets] for name, targets in splits.items()}


def test_no_training_row_decides_how_another_is_read(tmp_path):
    """A word among numbers, a new word or garbage in one training row changes no other row, no class, no column."""
    first = _numbers(tmp_path)["training"][0]
    plain = read(tmp_path)
    for age, work in (("old", "State"), ("1e9", "new"), ("", ""), ("1.5", "7")):
        changed = columns()
        changed["age"][first], changed["work"][first] = age, work
        data = read(tmp_path, changed)
        assert torch.equal(data.inputs[1:], plain.inputs[1:]) and torch.equal(data.test_inputs, plain.test_inputs)
        assert (data.mean, data.std, data.classes) == (plain.mean, plain.std, plain.classes)


def test_the_target_says_what_is_learnt(tmp_path):
    halves = [k / 2 for k in range(200)]
    real = read(tmp_path, columns(outcome=halves))
    assert real.classes == 0 and set(real.targets.tolist()) <= set(halves)
    whole = [("3", "10", "3.0")[k % 3] for k in range(200)]
    data = read(tmp_path, columns(outcome=whole))
    assert data.classes == 2 and data.description["labels"] == ["3", "10"]  # as numbers, not as words
    assert read(tmp_path, columns(outcome=list(range(200))), regression=True).classes == 0
    named = read(tmp_path, labels=["yes", "maybe", "no"])
    assert named.classes == 3 and set(named.targets.tolist()) == {0, 2}


def test_columns_are_left_out_when_asked_or_empty_and_it_is_said(tmp_path):
    given = columns(id=[f"p{k}" for k in range(200)], empty=[""] * 200)
    data = read(tmp_path, given, drop=["id"])
    assert data.input_shape == (5,) and "empty" in data.description["read_as"]
    assert read(tmp_path, given, drop="id").input_shape == (5,)


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ({}, {"target": "outcom"}, "no column 'outcom'.*'outcome'"),
        ({}, {"target": None}, 'target = "outcome"'),
        ({}, {"drop": ["nobody"]}, "no column 'nobody'"),
        ({}, {"separator": "|"}, "no column 'outcome': all its columns were read as one"),
        ({}, {"colour": 1}, "option colour"),
        ({}, {"classes": 3}, "csv has 2 classes"),
        ({"outcome": ["no"] * 200}, {}, "one value 'no'"),
        ({"outcome": [1.5] * 200}, {}, "1.5 in every"),
        ({"outcome": [""] + ["no", "yes"] * 99 + ["no"]}, {}, "missing in 1 rows"),
        ({"outcome": list(range(200))}, {}, "no test or auxiliary row has.*regression = true"),
        ({"outcome": [f"w{k}" for k in range(200)]}, {}, "no test or auxiliary row has"),
        ({"outcome": ["no", "yes"] * 100}, {"regression": True}, "'no' in row 1 .* finite number"),
        ({"outcome": ["no", "yes"] * 100}, {"labels": ["no", "maybe"]}, r"'yes' in row 2 .*labels = \['no', 'maybe'\]"),
        ({"outcome": ["no", "yes"] * 100}, {"labels": ["a"]}, r"'no' in row 1 .*labels = \['a'\]"),
        ({"outcome": ["no"] * 200}, {"labels": ["no"]}, r"labels = \['no'\]"),
        ({"outcome": ["no", "yes"] * 100}, {"labels": ["no", "no"]}, "once"),
    ],
)
def test_what_cannot_be_learnt_is_refused_in_one_sentence(tmp_path, given, options, words):
    with pytest.raises(ValueError, match=words) as error:
        read(tmp_path, columns(**given), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("split", ["training", "auxiliary"])
def test_a_number_that_is_not_finite_is_located(tmp_path, split):
    """1e309 in an auxiliary row made a column of words of it."""
    row = _numbers(tmp_path)[split][3]
    given = columns()
    given["age"][row] = "1e309"
    with pytest.raises(ValueError, match=rf"x\.csv.*'age'.* beyond all bounds in row {row + 1} "):
        read(tmp_path, given)


def test_too_many_words_name_the_column(tmp_path):
    given = {"id": [f"p{k}" for k in range(1200)], "outcome": ["a", "b"] * 600}
    with pytest.raises(ValueError, match=r"'id' has 120 different words.*drop"):
        read(tmp_path, given)
    many = [str(k) for k in range(101)] * 40
    with pytest.raises(ValueError, match=r"101 values.*regression = true"):
        read(tmp_path, {"x": range(4040), "outcome": many})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a readable CSV"),
        (b"a,outcome\n", "no rows"),
        (b"a,outcome\n1,2\n", "1 rows below its header; at least 30"),
        (b"a,outcome\n" + b"1,2\n" * 40 + b"1,2,3,4\n", "not a readable CSV"),
        (b"a,outcome\n" + b"1,2,3\n" * 40, "more cells in its rows"),
        (b"\xff\xfe\x00", "not a readable CSV"),
        (b"outcome\n" + b"a\nb\n" * 40, "no column to learn from"),
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path, content, words):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        load("csv", root=str(tmp_path / "x.csv"), target="outcome")
    assert "\n" not in str(error.value)


def test_no_file_and_a_target_elsewhere(tmp_path):
    with pytest.raises(ValueError, match="no file"):
        load("csv", root=str(tmp_path), target="outcome")
    with pytest.raises(ValueError, match="digits has its own targets"):
        load("digits", target="outcome")


def test_a_second_column_of_one_name_is_refused(tmp_path):
    """pandas calls a second column id `id.1`, so drop = ["id"] would keep it."""
    (tmp_path / "x.csv").write_text("\n".join(["id,age,id,outcome", *["1,2,3,yes"] * 40]))
    with pytest.raises(ValueError, match="has two columns 'id'; every column needs a name of its own"):
        load("csv", root=str(tmp_path / "x.csv"), target="outcome", seed=0, drop=["id"])


def test_option_names_are_known(tmp_path):
    with pytest.raises(ValueError, match="option colour"):
        read(tmp_path, colour=1)
    for options, words in (
        ({"numbers": ["nobody"]}, "no column 'nobody'"),
        ({"decimal": ";"}, "decimal = ';'"),
        ({"words": 3}, "words = 3"),
        ({"day_first": "yes"}, "day_first"),
        ({"numbers": ["age"], "words": "age"}, "'age' is called"),
        ({"separator": ";;"}, "separator = ';;'"),
        ({"encoding": "latin-99"}, "encoding = 'latin-99'"),
        ({"header": ["a", "b"]}, "header has 2 names"),
    ):
        with pytest.raises(ValueError, match=words):
            read(tmp_path, **options)
