"""A support vector machine from config to evidence: trained by its hinge loss, attacked where that means something."""

from __future__ import annotations

import csv
import json

import pytest
from command import call
from configs import small_config

CONFIG = small_config(
    data={"name": "breast_cancer", "clients": 4, "samples_per_client": 50},
    model={"name": "svm"},
    local={"batch_size": 10},
    scheme={"name": "fedavg", "rounds": 3},
    capture={"clients": [0], "candidates": 40, "auxiliary": 60},
)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("svm")
    (folder / "svm.toml").write_text(CONFIG)
    assert call("train", folder / "svm.toml", "-o", folder / "setup", "--quiet") == 0
    return folder / "setup"


def test_it_learns(setup):
    rounds = list(csv.DictReader((setup / "auditor" / "figures.csv").read_text().splitlines()))
    assert float(rounds[-1]["test_accuracy"]) > 0.9
    assert float(rounds[-1]["test_loss"]) < float(rounds[0]["test_loss"])


@pytest.mark.parametrize(
    "attack", ["membership-loss", "membership-cosine", "membership-gradient-difference", "membership-lira"]
)
def test_membership_attacks_read_its_scores(setup, tmp_path, attack):
    assert call("run", setup, "-o", tmp_path / "r", "--attack", attack, "--quiet") == 0
    assert json.loads((tmp_path / "r" / "results.json").read_text())["attacks"]


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("membership-rmia", "compares probabilities"),
        ("membership-shokri", "compares probabilities"),
        ("inversion", "needs gradients of every record"),
    ],
)
def test_what_needs_a_cross_entropy_refuses_in_one_sentence(setup, tmp_path, capsys, attack, words):
    assert call("run", setup, "-o", tmp_path / "r", "--attack", attack, "--quiet") == 2
    said = capsys.readouterr().err
    assert words in said and "hinge" in said and said.count("\n") == 1


def test_more_than_two_classes_are_refused(tmp_path, capsys):
    (tmp_path / "svm.toml").write_text(CONFIG.replace("breast_cancer", "digits"))
    assert call("train", tmp_path / "svm.toml", "-o", tmp_path / "setup", "--quiet") == 2
    error = capsys.readouterr().err
    assert "svm" in error and "10" in error
