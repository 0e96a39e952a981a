"""The referee of a refactoring: what it notices, what it lets pass, and that two collections of one code are equal."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    referee = importlib.import_module("same_results")
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

ROW = {"observer": "server", "unit": "client", "adjacency": "zero_out", "delta": 1e-5, "proven": 8.0}
OTHER = {**ROW, "unit": "record", "proven": 0.1 + 0.2}


def test_rows_are_named_by_what_they_are_about_and_not_by_their_order():
    values = dict(referee.flat({"digest": "abc", "epsilon": [ROW, {**OTHER, "notes": [], "claimed": None}]}, "r"))
    place = "r/epsilon/server {} zero_out 1e-05/proven"
    assert values == {place.format("client"): 8.0, place.format("record"): 0.30000000000000004}
    assert dict(referee.flat({"epsilon": [OTHER, ROW]}, "r")) == values


def test_a_long_list_is_one_value_that_one_number_changes():
    before, after = ({"losses": [*range(20), last], "roc": {"fpr": [last]}} for last in (0.5, math.nextafter(0.5, 1)))
    first, second = (dict(referee.flat(document, "r")) for document in (before, after))
    assert first.keys() == second.keys() == {"r/losses", "r/roc"}
    assert all(first[name] != second[name] for name in first)


def test_an_array_that_moved_is_no_sentence(tmp_path):
    for name, number in (("a", 1.0), ("b", 1.0 + 1e-7)):
        (tmp_path / name / "evidence").mkdir(parents=True)
        save_file({"images": np.full((2, 3, 4, 5), number, np.float32)}, tmp_path / name / "evidence" / "x.safetensors")
    first, second = ({"pieces": {"p": dict(referee.arrays(tmp_path / name))}} for name in ("a", "b"))
    assert list(referee.differences(first, second, {}, True)) == ["p/evidence/x.safetensors:images"]


BEFORE = {"proven": 8.0, "level": "severe", "secret": 1, "note": "This is a sentence of before.", "attack": "a"}


def held(**values):
    return {"commit": "c", "pieces": {"piece": {**BEFORE, **values}}}


@pytest.mark.parametrize(
    ("change", "numbers", "noticed"),
    [
        ({}, False, []),
        ({"proven": math.nextafter(8.0, 9)}, True, ["piece/proven"]),
        ({"level": "high"}, True, ["piece/level"]),
        ({"secret": True}, True, ["piece/secret"]),
        ({"more": 1.0}, True, ["piece/more"]),
        ({"note": "This is another sentence altogether."}, False, ["piece/note"]),
        ({"note": "This is another sentence altogether."}, True, []),
        ({"note": 3.0}, True, ["piece/note"]),
    ],
)
def test_what_is_a_difference(change, numbers, noticed):
    assert list(referee.differences(held(), held(**change), {}, numbers)) == noticed


def test_what_was_renamed_or_is_allowed_is_no_difference(tmp_path, capsys):
    for name, content in (("before", held(**{"old attack": 1.0})), ("after", held(**{"new attack": 1.0}, proven=9.0))):
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "allow").write_text("piece/prov*  # sharper\n")
    paths, renamed = (tmp_path / "before", tmp_path / "after"), {"old": "new"}
    assert referee.compare(*paths, None, {}, True) == 3
    assert referee.compare(*paths, None, renamed, True) == 1
    capsys.readouterr()
    assert referee.compare(*paths, tmp_path / "allow", renamed, True) == 0
    assert "sharper: 1" in capsys.readouterr().out


def test_a_difference_is_allowed_for_a_reason(tmp_path):
    (tmp_path / "allow").write_text("piece/*\n")
    with pytest.raises(ValueError, match=r"piece/\*: say why"):
        referee.allowed(tmp_path / "allow")


@pytest.mark.full
def test_two_collections_of_one_code_are_equal_and_a_second_call_keeps_what_is_there(tmp_path):
    def collect(name: str) -> str:
        call = [sys.executable, str(ROOT / "benchmarks" / "same_results.py"), "collect", str(tmp_path / name)]
        done = subprocess.run(
            [*call, "--quick", "--jobs", "1", "--only", "default/table"], capture_output=True, text=True, check=True
        )
        return done.stdout

    first, again, second = collect("a"), collect("a"), collect("b")
    assert first.startswith("default/table: done") and again == "" and second.startswith("default/table: done")
    values = json.loads((tmp_path / "a").read_text())["pieces"]["default/table"]
    assert values["table/run-0/exit code"] == 1 and values["table/run-0/results/verdict/level"]
    assert any(name.startswith("table/run-0/scores/") for name in values)
    assert referee.compare(tmp_path / "a", tmp_path / "b", None, {}, False) == 0
