"""A table and networks of one's own from the command: trained, said where something is done otherwise, attacked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import called
from configs import small_config

CONFIG = small_config(
    seed=4,
    data={"name": "csv", "root": "x.csv", "target": "outcome", "clients": 2, "samples_per_client": 20},
    model={"name": "logistic"},
    scheme={"name": "local-gaussian", "clip": 0.5, "noise_multiplier": 1.0, "rounds": 2},
    capture={"candidates": 20},
    audit={"unit": "client"},
)
NETS = """
from torch import nn

class Lstm(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.lstm, self.last = nn.LSTM(shape[2], 3, batch_first=True), nn.Linear(3, classes)
    def forward(self, x):
        return self.last(self.lstm(x[:, 0])[0][:, -1])

def lstm(input_shape, classes):
    return Lstm(input_shape, classes)

def norm(input_shape, classes):
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, classes))
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(20, 60)},{rng.choice(['a', 'b'])},{rng.choice(['no', 'yes'])}" for _ in range(200)]
    (tmp_path / "x.csv").write_text("\n".join(["age,work,outcome", *rows]))
    (tmp_path / "own_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return path


def train(capsys, config, *overrides, allow=()):
    overrides = [text for override in overrides for text in ("--set", override)]
    code, _, error = called(capsys, "train", config, "-o", config.parent / "setup", "--force", *overrides, *allow)
    return code, error


def test_a_csv_is_trained_on_and_its_epsilon_is_proven(config, capsys):
    """Encoding and classes come from rows that nobody trains on, so they cost nothing."""
    code, note = train(capsys, config)
    assert code == 0 and "outcome" in note and note.count("note:") == 1  # which column is learnt
    data = json.loads((config.parent / "setup" / "setup.json").read_text())["data"]
    assert (data["classes"], data["description"]["labels"]) == (2, ["no", "yes"])
    assert data["description"]["statistics_of"] == "auxiliary"
    code, told, _ = called(capsys, "epsilon", config.parent / "setup", "--json")
    assert code == 0 and any(isinstance(row["proven"], float) for row in json.loads(told)["rows"])
    code, error = train(capsys, config, "data.target=outcom")
    assert code == 2 and "'outcom'" in error and "\n" not in error.strip()


OWN = "data={name='digits', clients=2, samples_per_client=20}"


def test_an_lstm_is_trained_one_client_after_the_other_and_it_is_said(config, capsys):
    name, output = "own_nets:lstm", config.parent / "results"
    code, said = train(capsys, config, OWN, f"model.name={name}", allow=("--allow-model", name))
    assert code == 0 and "looped" in said
    run = ("run", config.parent / "setup", "-o", output, "--attack", "membership-loss", "--allow-model", name)
    assert called(capsys, *run)[0] == 0
    for kept in (config.parent / "setup" / "setup.json", output / "results.json"):  # and not only on stderr
        assert '"looped"' in kept.read_text()


def test_a_network_with_batchnorm_trains_by_one_option(config, capsys):
    name = "own_nets:norm"
    given = (OWN, f"model.name={name}")
    code, error = train(capsys, config, *given, allow=("--allow-model", name))
    assert code == 2 and '"group"' in error
    assert train(capsys, config, *given, "model.batchnorm=group", allow=("--allow-model", name)) == (0, "")
    run = ("run", config.parent / "setup", "-o", config.parent / "results", "--attack", "membership-loss")
    assert called(capsys, *run, "--allow-model", name)[0] == 0
