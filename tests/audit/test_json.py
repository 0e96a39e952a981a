"""`--json`: stdout is one JSON document of whatever a command prints, and nothing else goes there."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from command import called
from configs import small_config
from dpfl_audit import cli
from dpfl_audit.audit import demo as demonstration
from dpfl_audit.audit import weights
from dpfl_audit.audit.report.render import COLUMNS, render
from dpfl_audit.audit.results.format import Results

CONFIG = small_config(
    seed=4,
    data={"samples_per_client": 20},
    model={"name": "logistic"},
    local={"batch_size": 5000},
    capture={"candidates": 20, "auxiliary": 15},
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    (folder / "c.toml").write_text(CONFIG)
    return folder


def document(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[Any, str]:
    """What a command printed as JSON, without a NaN, and what it said on stderr."""
    ended, out, said = called(capsys, *arguments, "--json")
    assert ended == code, said

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(out, parse_constant=refuse), said


def test_every_command_has_it() -> None:
    for name, command in cli.audit.commands.items():
        assert any("--json" in p.opts for p in command.params if isinstance(p, click.Option)), name


def test_a_config_and_what_it_would_train(home, capsys) -> None:
    tables, _ = document(capsys, "init", "ldp")
    assert tables["scheme"]["name"] == "ldp" and tables["data"]["name"]
    planned, said = document(capsys, "train", home / "c.toml", "--dry-run")
    assert planned["rounds"] == 2 and said.startswith("note: [local] batch_size = 5000")
    advised, _ = document(capsys, "advise", home / "c.toml")
    assert isinstance(advised, list)
    for more in ((home / "c.toml",), ("--clip", "1", "--noise-std", "1")):
        assert document(capsys, "epsilon", *more)[0]["rows"]


def test_the_line_from_training_to_the_report(home, capsys) -> None:
    trained, said = document(capsys, "train", home / "c.toml", "-o", home / "s")
    assert (trained["setup"], trained["rounds"], trained["engine"]) == (str(home / "s"), 2, "batched")
    assert "5000" in said  # a note, and not among the JSON
    checked, _ = document(capsys, "check", home / "s")
    assert checked["truth"] and {k: checked[k] for k in ("scheme", "messages")} == {"scheme": "ldp", "messages": 5}
    run = ("run", home / "s", "-o", home / "r", "--attack", "membership-loss")
    ran, said = document(capsys, *run, "--fail-if", "auc > 0.999")
    assert ran["results"] == json.loads((home / "r" / "results.json").read_text()) and said == ""
    assert [gate["failed"] for gate in ran["gates"]] == [False]
    ran, said = document(capsys, *run, "--fail-if", "auc > 0", code=1)
    assert ran["gates"][0]["failed"] and said == ran["gates"][0]["sentence"]
    told, _ = document(capsys, "report", home / "r")
    assert told["results"][0]["digest"] == ran["results"]["digest"] and not (home / "r" / "report.html").exists()
    pair = ("--card", home / "card.md", "--statement", home / "board.html")
    told, _ = document(capsys, "report", home / "r", *pair)  # the page is not asked for
    assert told == {"card": str(pair[1]), "statement": str(pair[3])} and all(path.exists() for path in pair[1::2])
    told, _ = document(capsys, "report", home / "r", *pair, "-o", home / "page.html")
    assert told["report"] == str(home / "page.html") and (home / "page.html").exists() and len(told) == 4
    told, _ = document(capsys, "report", home / "r", "-o", home / "t.csv", "--format", "csv", "--quiet")
    assert told["format"] == "csv" and (home / "t.csv").read_text().startswith("setting,")


def test_lists(capsys) -> None:
    for what in ("schemes", "attacks", "metrics", "datasets", "models", "observers"):
        assert all(entry["name"] for entry in document(capsys, "list", what)[0])
    tables, _ = document(capsys, "reproduce", "list")
    assert {"geometric-table3"} <= {table["name"] for table in tables}


def test_weights_and_the_demo(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(weights, "fetch", lambda net, progress=None: tmp_path / f"{net}.pth")
    told, _ = document(capsys, "weights")
    assert told == {"net": "squeeze", "weights": str(tmp_path / "squeeze.pth")}
    made = demonstration.Demo(tmp_path / "d" / "report.html", ("a", "b", "c"))
    monkeypatch.setattr(demonstration, "_demo", lambda *_: made)
    told, _ = document(capsys, "demo", "-o", tmp_path / "d")
    assert told["report"] == str((tmp_path / "d" / "report.html").resolve()) and len(told["results"]) == 3
    assert told["answers"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "lpd"),
        ("train", "nowhere.toml", "-o", "x"),
        ("check", "nowhere"),
        ("run", "nowhere", "-o", "x"),
        ("report", "nowhere"),
        ("report", "nowhere", "--format", "csv"),
        ("epsilon", "nowhere"),
        ("advise", "nowhere"),
        ("reproduce", "nowhere"),
        ("list", "nothing"),
        ("weights", "nothing"),
    ],
)
def test_a_mistake_stays_a_sentence_on_stderr(capsys, arguments) -> None:
    code, out, said = called(capsys, *arguments, "--json")
    assert (code, out) == (2, "") and said.startswith("audit: ") and "\n" not in said


def test_csv_has_plain_numbers_and_says_whose_claim(make_results, row, tmp_path) -> None:
    """A number that a program cannot read is none: no ≥, no %, no thousands; ∞ is inf, and not measured is empty."""
    rows = [
        row(claimed=5.3, claimed_by="owner", proven=12345.678, demonstrated=1.5, ceiling=6.0),
        row(unit="client", proven="inf"),
    ]
    results = make_results(tmp_path / "r", n=4, epsilon=rows, setup={"test_accuracy": 0.715})
    lines = list(csv.DictReader(io.StringIO(str(render([results], format="csv")))))
    assert {line["accuracy"] for line in lines} == {"0.715"}
    for line in lines:
        for name in ("noise_std", "clip_norm", "accuracy", "delta", "round", "n", "value", "low", "high", "p_value"):
            assert line[name] == "" or float(line[name]) is not None, (name, line[name])
    own = {line["quantity"]: line for line in lines if line["unit"] == "record"}
    assert (own["epsilon_claimed"]["value"], own["epsilon_claimed"]["claimed_by"]) == ("5.3", "owner")
    assert own["epsilon_proven"]["value"] == "12345.678" and own["epsilon_proven"]["claimed_by"] == ""
    other = {line["quantity"]: line["value"] for line in lines if line["unit"] == "client"}
    assert (other["epsilon_proven"], other["epsilon_claimed"]) == ("inf", "")
    read = Results.read(results).attacks[0]
    assert {line["p_value"] for line in lines if line["quantity"] == "reidentified"} == {
        str(read.p_values["reidentified"])
    }


def test_every_column_of_the_csv_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.split("## As CSV")[1].split("\n## ")[0]
    assert [name for name in COLUMNS if f"`{name}`" not in table] == []
