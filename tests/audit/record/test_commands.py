"""The commands on a recording, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit import cli
from dpfl_audit.audit.record.declared import ADDED, SECRECY
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from torch import nn

MODEL = [np.zeros((3, 4)), np.zeros(3)]


def audit(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in arguments])
    return int(ended.value.code or 0)


def record(folder: Path, close: bool = True) -> None:
    rec = Recorder(folder, MODEL, claim=8, mechanism=Gaussian(clip=1.0, noise_std=0.5))
    rec.broadcast(0, MODEL)
    rec.upload(0, 0, [np.ones((3, 4)), np.ones(3)], num_examples=3)
    if close:
        rec.close()
    else:
        rec.broadcast(1, MODEL)
        rec.abandon()


def test_an_unfinished_recording_is_closed_by_a_command(tmp_path, capsys):
    record(tmp_path / "s", close=False)
    assert audit("check", tmp_path / "s") == 2
    assert "`audit import" in capsys.readouterr().err
    assert audit("import", tmp_path / "s", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 1
    assert audit("check", tmp_path / "s", "--strict") == 0
    assert "Gaussian noise" in capsys.readouterr().out
    assert audit("import", tmp_path / "s") == 2 and "unfinished recording" in capsys.readouterr().err


def test_check_says_in_json_what_is_declared(tmp_path, capsys):
    record(tmp_path / "s")
    assert audit("check", tmp_path / "s", "--json") == 0
    declared = json.loads(capsys.readouterr().out)["declared"]
    assert {d["what"] for d in declared} == {
        "norm bound",
        "noise",
        "independence",
        ADDED,
        SECRECY,
        "average",
        "low bits",
        "first model",
        "public settings",
        "completeness",
        "last model",
    }


def test_faults_of_the_format_are_listed_and_end_with_two(tmp_path, capsys):
    record(tmp_path / "s")
    (tmp_path / "s" / "notes.txt").write_text("mine")
    assert audit("check", tmp_path / "s") == 0
    assert audit("check", tmp_path / "s", "--strict") == 2
    said = capsys.readouterr().err
    assert "notes.txt" in said and "2 things" in said


def test_the_config_of_a_recording_trains_nothing(tmp_path, capsys):
    (tmp_path / "c.toml").write_text('[scheme]\nname = "recorded"\n')
    for command in (("train", tmp_path / "c.toml", "-o", tmp_path / "x"), ("epsilon", tmp_path / "c.toml")):
        assert audit(*command) == 2
        assert "recorded" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_run_and_report_say_what_can_be_said(tmp_path, capsys):
    record(tmp_path / "s")
    assert audit("run", tmp_path / "s", "-o", tmp_path / "r") == 0
    said = capsys.readouterr().out
    assert "owner declares" in said and "inversion" in said
    assert audit("report", tmp_path / "r", "-o", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert "owner declares" in page and "not checked" in page
    assert audit("run", tmp_path / "s", "-o", tmp_path / "c", "--attack", "canary") == 2
    assert audit("run", tmp_path / "s", "-o", tmp_path / "c", "--attack", "inversion") == 2


def test_an_attack_that_a_recording_does_not_allow_names_what_it_does(tmp_path, capsys):
    """A canary needs the training's own code; towards an eavesdropper on broadcasts there is no upload to invert."""
    net, model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), [np.zeros((2, 4)), np.zeros(2)]
    with Recorder(tmp_path / "s", net, mechanism=Gaussian(clip=1.0, noise_std=0.5, by="server")) as rec:
        rec.broadcast(0, model)
        rec.upload(0, 0, model, num_examples=3, records=(np.zeros((3, 1, 2, 2)), np.array([0, 1, 0])))
        rec.broadcast(1, model)
    run = ("run", tmp_path / "s", "-o", tmp_path / "r", "--attack")
    assert audit(*run, "inversion") == 2
    said = capsys.readouterr().err
    assert "--observer server" in said and "rec.candidates(…)" in said
    assert "canary" not in said and "[capture]" not in said
    assert audit(*run, "membership-cosine") == 2
    said = capsys.readouterr().err
    assert "rec.candidates(…)" in said and "[capture]" not in said


@pytest.mark.full
def test_flower_is_imported_only_when_it_is_used_and_its_absence_is_one_sentence():
    code = """
import sys
import dpfl_audit
dpfl_audit.AuditMod("setup"), dpfl_audit.record_strategy
assert "flwr" not in sys.modules and "ray" not in sys.modules
sys.modules["flwr"] = sys.modules["flwr.serverapp"] = sys.modules["flwr.serverapp.strategy"] = None
try:
    dpfl_audit.record_strategy(object(), "setup", {})
except dpfl_audit.BadInput as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "'dpfl-audit[flower]'" in ran.stdout and ran.stdout.count("\n") == 1, ran.stderr
