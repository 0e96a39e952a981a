"""The command line as a user meets it: exit codes, one sentence for bad input, evidence without the truth."""

from __future__ import annotations

import io
import json
import os
import shutil
import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from command import call, called, content
from configs import small_config
from dpfl_audit import cli
from dpfl_audit.audit.commands import init
from dpfl_audit.audit.two_worlds.estimators.bound import GAUSSIAN
from dpfl_audit.defenses.data.csv_table import deal_of
from dpfl_audit.defenses.randomness import stream
from tiers import quick

CONFIG = small_config(
    seed=4,
    data={"clients": 2, "samples_per_client": 10},
    model={"options": {"widths": [16]}},
    local={"optimiser": "adam"},
    scheme={"clip": 1.0, "sigma": 0.01, "rounds": 3, "share": "gradient"},
    capture={"auxiliary": 19},  # too few for reference classifiers, which take a minute
    attack={"inversion": {"iterations": 5, "exact": False}},
)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    os.environ["TORCH_HOME"] = str(folder / "no-weights-here")  # a developer's own cache must not change the result
    (folder / "config.toml").write_text(CONFIG)
    assert call("train", folder / "config.toml", "-o", folder / "setup") == 0
    assert call("run", folder / "setup", "-o", folder / "results") == 0
    return folder


def test_the_whole_way_leaves_a_page(home, capsys):
    assert call("check", home / "setup", "--json") == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 3 + 4
    assert call("report", home / "results", "-o", home / "page.html") == 0
    page = (home / "page.html").read_text()
    assert "<script src" not in page and "http" not in page.split("</head>")[0].replace("http-equiv", "")
    for form in ("json", "csv"):
        assert call("report", home / "results", "--format", form) == 0
    assert call("report", home / "results", "--format", "md") == 2
    capsys.readouterr()


def test_results_hold_controls_intervals_and_what_was_assumed(home):
    results = json.loads((home / "results" / "results.json").read_text())
    manners = {a["manner"] for a in results["attacks"]}
    # Two objectives, and one of them with a fixed prior too as noise is known; three rounds and their sum.
    assert manners == {"one-round", "all-rounds"} and len(results["attacks"]) == 3 * 4
    for attack in results["attacks"]:
        assert (
            attack["assumed"] and {"gray", "mean", "random"} <= set(attack["controls"]) and attack["intervals"]["psnr"]
        )
        assert attack["metrics"]["lpips"] is None and "LPIPS" in attack["not_measured"]["lpips"]
    assert {(r["observer"], r["unit"], r["adjacency"]) for r in results["epsilon"] if r["claimed"] is not None} == {
        ("server", "client", "zero_out")
    }


def test_evidence_is_bit_identical_without_truth_and_auditor(home, tmp_path, capsys):
    blind = Path(shutil.copytree(home / "setup", tmp_path / "blind"))
    shutil.rmtree(blind / "truth")
    shutil.rmtree(blind / "auditor")
    assert call("check", blind) == 0 and "auditor/ absent" in capsys.readouterr().out
    assert call("run", blind, "-o", tmp_path / "results") == 0
    assert content(tmp_path / "results" / "evidence") == content(home / "results" / "evidence")
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert results["epsilon"] == [] and any("truth/" in w for w in results["warnings"])
    assert all(a["metrics"].get("psnr") is None for a in results["attacks"])
    assert call("report", tmp_path / "results") == 0


def test_gates(home, capsys):
    arguments = ("run", home / "setup", "-o", home / "results", "--fail-if")
    codes = {
        "psnr > 1": 1,
        "psnr > 99": 0,
        "proven > 1000": 1,
        "auc > 0.5": 2,  # nothing of that name was measured: no silent pass
        "psnr is big": 2,
        "proven[client,server] > 1": 1,
        "level <= severe": 1,
        "level > severe": 0,
    }
    for gate, code in codes.items():
        found, out, error = called(capsys, *arguments, gate)
        assert found == code and (gate in (error if code else out)), gate
        if "client" in gate:
            assert all(part in error for part in ("zero_out", "1e-05"))


def test_dry_run_says_how_much_and_writes_nothing(home, tmp_path, capsys):
    assert call("train", home / "config.toml", "-o", tmp_path / "x", "--dry-run") == 0
    assert "3 uploads" in capsys.readouterr().out and not (tmp_path / "x").exists()


# tests/contracts builds, and test_examples.py prices, all others.
@pytest.mark.parametrize("scheme", quick(["dpsgd", "cdp"], 1))
def test_a_template_reads_back_and_is_priced(scheme, tmp_path, capsys):
    assert call("init", scheme) == 0
    config = tmp_path / "c.toml"
    config.write_text(capsys.readouterr().out)
    assert call("epsilon", config, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"]


@pytest.mark.parametrize("what", ["schemes", "attacks", "metrics", "datasets", "models", "observers"])
def test_lists_name_everything(what, capsys):
    assert call("list", what, "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert entries and all(e["name"] for e in entries)
    assert call("list", what) == 0 and capsys.readouterr().out.count("\n") >= len(entries)


def test_without_arguments_the_help_keeps_its_lines(capsys):
    assert called(capsys) == called(capsys, "--help")


def test_help_has_an_example_everywhere(capsys):
    for name in ("init", "train", "run", "report", "epsilon", "check", "list", "demo"):
        assert call(name, "--help") == 0
        assert "Example:" in capsys.readouterr().out
    assert call("--version") == 0


def test_advise_prints_values_curves_and_broken_assumptions(tmp_path, capsys):
    """Component-adaptive noise at ε = 2, σ0 = 26, δ = 1e-5: 108 rounds fit (schemes.md)."""
    config = tmp_path / "c.toml"
    config.write_text(
        '[data]\nname = "digits"\n[model]\nname = "logistic"\n[scheme]\nname = "component"\nepsilon = 2.0\nsigma ='
        " 26.0\n"
    )
    assert call("advise", config, "--json") == 0
    (advice,) = json.loads(capsys.readouterr().out)
    assert advice["value"] == 108 and advice["remarks"] and advice["curve"]
    assert call("advise", config) == 0 and "108" in capsys.readouterr().out
    assert call("advise", config, "--set", "theory.smoothnes=1") == 2
    assert call("advise", config, "--set", 'scheme={"name"="fedavg"}') == 2


def test_a_canary_audit_that_measures_nothing_is_an_error_that_says_why(tmp_path, capsys):
    """The final model says nothing of a single round, and no end-to-end audit was asked for."""
    config = tmp_path / "c.toml"
    config.write_text(
        'seed = 1\nclaim = "none"\n[data]\nname = "digits"\nclients = 2\nsamples_per_client = 4\n'
        '[model]\nname = "logistic"\n'
        '[scheme]\nname = "local-gaussian"\nclip = 1.0\nnoise_multiplier = 1.0\nrounds = 2\n'
    )
    assert call("train", config, "-o", tmp_path / "setup") == 0
    asked = ("run", tmp_path / "setup", "-o", tmp_path / "results", "--observer", "model", "--attack", "canary")
    protocol = ("--set", "canary.protocols=['mechanism']")
    assert call(*asked, *protocol) == 2
    said = capsys.readouterr().err
    assert "attack canary" in said and "end-to-end" in said
    assert not (tmp_path / "results" / "results.json").exists()


@pytest.mark.full
def test_a_canary_run_fills_the_three_numbers_and_refutes_the_thesis_claim(tmp_path, capsys):
    """σ = 1, one release, n = 100: 5.30 is claimed with Δ = C/n.

    But the client's whole clipped update moves by up to C = 100 noise stds.
    """
    config = tmp_path / "c.toml"
    config.write_text(
        'seed = 1\n[data]\nname = "digits"\nclients = 1\nsamples_per_client = 100\n[model]\nname = "logistic"\n'
        '[local]\noptimiser = "adam"\nlr = 0.01\nbatch_size = 25\n'
        '[scheme]\nname = "ldp"\nclip = 0.5\nsigma = 1.0\nrounds = 1\n'
    )
    assert call("train", config, "-o", tmp_path / "setup") == 0
    canary = ("--attack", "canary", "--set")
    assert call("run", tmp_path / "setup", "-o", tmp_path / "results", *canary, "canary.numbers=6e7") == 0
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    row = next(r for r in results["epsilon"] if r["claimed"] is not None)
    assert row["claimed"] == pytest.approx(5.30, abs=0.005)
    assert row["claimed"] < row["demonstrated"] <= row["ceiling"] and row["confidence"] == 0.975  # of either bound
    assert row["demonstrated"] <= float(row["proven"])
    assert results["verdict"]["level"] == "severe"
    assert call("epsilon", tmp_path / "setup", "--results", tmp_path / "results") == 0
    assert f"{row['demonstrated']:.2f}" in capsys.readouterr().out
    gate = ("--fail-if", "demonstrated > 5.3")
    few = call("run", tmp_path / "setup", "-o", tmp_path / "few", *canary, "canary.numbers=2e7", *gate)
    results = json.loads((tmp_path / "few" / "results.json").read_text())
    row = next(r for r in results["epsilon"] if r["claimed"] is not None)
    assert few == 2  # no gate: so few draws could not have failed it
    assert row["demonstrated"] <= row["ceiling"] < row["claimed"] < row["demonstrated_on_condition"]
    assert results["verdict"]["level"] == "high"  # so few draws refute the claim on a condition alone
    assert GAUSSIAN in results["verdict"]["sentences"][0]
    assert call("run", tmp_path / "setup", "-o", tmp_path / "other", *canary, "canary.drawz=1") == 2
    assert not (tmp_path / "other").exists()


def test_help_lists_every_command_with_a_whole_line() -> None:
    shown = CliRunner().invoke(cli.audit, ["--help"], terminal_width=100).output
    for name, command in cli.audit.commands.items():
        line = next(
            line for lines in cli.SECTIONS.values() for module, line in lines.items() if module.command is command
        )
        assert f"  {name} " in shown and line in shown


# Batches drawn by coins: the search for the noise is long.
SAMPLED = {*product(("table", "images"), ("record",), ("server", "downlink", "model"))}
QUESTIONS = (init.OBSERVERS, init.UNITS, init.RECORDS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("records", "unit", "observer"),
    [
        pytest.param(*answers, marks=[pytest.mark.full] if answers in SAMPLED else [])
        for answers in product(("table", "images"), ("record", "client"), ("server", "downlink", "model"))
    ],
)
def test_the_config_of_three_answers_proves_the_epsilon_that_was_asked(
    observer, unit, records, tmp_path, capsys, monkeypatch
):
    typed = [list(words).index(answer) + 1 for words, answer in zip(QUESTIONS, (observer, unit, records))]
    monkeypatch.setattr("sys.stdin", Terminal("".join(f"{number}\n" for number in typed) + "\n\n"))
    assert call("init") == 0
    (tmp_path / "config.toml").write_text(capsys.readouterr().out)
    assert call("epsilon", tmp_path / "config.toml", "--unit", unit, "--adjacency", "zero_out", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = [row for row in rows if row["observer"] == observer]
    assert 7.9 < row["proven"] <= 8.0


def test_the_config_of_a_table_of_ones_own_has_its_file_target_and_clients(tmp_path, capsys, monkeypatch):
    cells = np.random.default_rng(0).normal(size=(900, 2))
    table = {"age": cells[:, 0], "bmi": cells[:, 1], "ill": cells[:, 0] > 0, "who": [f"n{n % 800}" for n in range(900)]}
    table["dose"] = [f"{n} {['mg', 'ml'][n % 2]}" for n in range(900)]  # which no column of numbers reads
    pd.DataFrame(table).to_csv(tmp_path / "p.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Terminal("2\n2\n1\np.csv\nill\n\n6\n"))
    assert call("init") == 0
    config, asked = capsys.readouterr()
    data = tomllib.loads(config)["data"]
    assert (data["name"], data["root"], data["target"], data["clients"]) == ("csv", "p.csv", "ill", 6)
    assert data["options"] == {"drop": ["who", "dose"]} and all(told in asked for told in ("'who'", " 800 ", " 100 "))
    (tmp_path / "config.toml").write_text(config)
    assert call("epsilon", "config.toml", "--unit", "client", "--adjacency", "zero_out", "--json") == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["observer"] == "downlink"]
    assert 7.9 < row["proven"] <= 8.0


def test_a_table_that_cannot_be_read_is_asked_for_again(tmp_path, capsys, monkeypatch):
    (tmp_path / "p.csv").write_text("age,ill\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Terminal("2\n2\n1\nnone.csv\np.csv\nill\n\n6\n"))
    assert call("init") == 0
    assert tomllib.loads(capsys.readouterr().out)["data"]["root"] == "p.csv"


def test_each_holder_that_a_column_names_is_a_client(tmp_path, capsys, monkeypatch):
    """A target of one value, and holders of whom one has no row to train on, are asked for again; training refuses
    these by name.
    """
    rng = np.random.default_rng(0)
    where = np.repeat(["north", "south", "west"], (600, 200, 100))
    few = where.astype(object)
    few[min({*range(900)} - {*deal_of(900, stream(0, "data")).train})] = "east"
    pd.DataFrame(
        {"age": rng.normal(size=900), "ill": rng.random(900) > 0.5, "clinic": where, "few": few, "one": 1}
    ).to_csv(tmp_path / "p.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Terminal("1\n2\n1\np.csv\none\nil\nill\none\nfew\nclinic\n"))
    assert call("init") == 0
    written, asked = capsys.readouterr()
    assert "'east'" in asked and "?." not in asked
    (tmp_path / "config.toml").write_text(written)
    config = tomllib.loads(written)
    assert config["data"]["options"] == {"holder": "clinic"} and config["capture"]["clients"] == [0, 1, 2]
    assert call("train", "config.toml", "-o", "setup", "-q") == 0
    of_few = ("--set", "data.options.holder=few", "--set", "data.clients=4")
    assert call("train", "config.toml", "-o", "other", *of_few) == 2 and "'east'" in capsys.readouterr().err


def test_an_empty_config_is_no_config(tmp_path, capsys):
    (tmp_path / "c.toml").write_text("")
    assert call("train", tmp_path / "c.toml", "-o", tmp_path / "s") == 2 and not (tmp_path / "s").exists()
    assert "is empty" in capsys.readouterr().err


def test_without_a_terminal_nothing_is_asked(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n1\n1\n"))
    assert call("init") == 2
    out, err = capsys.readouterr()
    assert out == "" and "audit init ldp" in err
