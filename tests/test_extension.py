"""What a new idea costs: put into its one list, a scheme, an attack, a metric, a model, a data set or an observer goes
the whole way, from `audit list` to the page, without a line changed anywhere else. CONTRIBUTING has the table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from command import call, called
from configs import small_config
from dpfl_audit import attacks
from dpfl_audit.attacks import ATTACKS, AttackKind
from dpfl_audit.attacks.base import MembershipScores, Part
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.say.metrics import METRICS, Metric
from dpfl_audit.defenses import data, models
from dpfl_audit.defenses.data.dataset import make
from dpfl_audit.defenses.presets import PRESETS
from dpfl_audit.defenses.scheme import Claim
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.terms import KINDS, Observer, ObserverKind
from dpfl_audit.metrics import image
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
CONFIG = small_config(
    data={"samples_per_client": 20},
    model={"name": "logistic"},
    local={"lr": 0.1, "batch_size": 10},
    scheme={"name": "fedavg", "rounds": 1},
    capture={"candidates": 20},
)


def went_the_whole_way(
    folder: Path, *options: str, attack: str = "membership-loss", sets: tuple[str, ...] = ()
) -> Results:
    """Train, attack, report; what `audit run` wrote."""
    config = folder / "config.toml"
    config.write_text(CONFIG)
    chosen = [word for option in options for word in ("--set", option)]
    assert call("train", config, "-o", folder / "setup", "--quiet", *chosen) == 0
    how = ("--quiet", "--quick", "--attack", attack, *sets)
    assert call("run", folder / "setup", "-o", folder / "results", *how) == 0
    assert call("report", folder / "results", "--quiet") == 0 and (folder / "results" / "report.html").exists()
    return Results.read(folder / "results")


def listed(capsys: pytest.CaptureFixture[str], what: str) -> list[str]:
    return [entry["name"] for entry in json.loads(called(capsys, "list", what, "--json")[1])]


def test_a_scheme(monkeypatch, tmp_path, capsys):
    plain = PRESETS["fedavg"]

    def build(parameters, local, population):
        claim = Claim(lambda releases, delta: 3.0 * releases, "mine: 3 a release")
        steps = (Clip(1.0), Perturb(noise_multiplier=1.0))
        return replace(plain.build(parameters, local, population), name="mine", client=steps, claim=claim)

    monkeypatch.setitem(PRESETS, "mine", replace(plain, name="mine", build=build))
    assert "mine" in listed(capsys, "schemes") and '"mine"' in called(capsys, "init", "mine")[1]
    row = went_the_whole_way(tmp_path, 'scheme.name="mine"').epsilon[0]
    assert row.claimed == 3.0 and row.proven == pytest.approx(4.377, abs=1e-3)  # the Gaussian of multiplier 1, δ = 1e-5


@dataclass(frozen=True)
class Guess:
    """The weakest membership attack: the label."""

    name: ClassVar[str] = "membership-guess"

    def parts(self, view, knowledge):
        return [Part("all", 1, None)]

    def run_part(self, part, view, knowledge, seed, progress=None):
        scores, ids = knowledge.candidate_targets.double(), knowledge.candidate_ids
        return MembershipScores(self.name, view.observer, "all-rounds", "", ids, scores, ("the label",))


def test_an_attack(monkeypatch, tmp_path, capsys):
    kind = AttackKind("membership by the label", lambda settings, quick, device: [Guess()])
    monkeypatch.setitem(attacks.ATTACKS, "membership-guess", kind)
    assert ATTACKS is attacks.ATTACKS and "membership-guess" in listed(capsys, "attacks")
    (entry,) = went_the_whole_way(tmp_path, attack="membership-guess").attacks
    assert entry.attack == "membership-guess" and entry.value("auc") is not None
    assert "the label" in (tmp_path / "results" / "report.html").read_text()


def test_a_model(monkeypatch, tmp_path, capsys):
    def narrow(shape: tuple[int, ...], classes: int) -> list[nn.Module]:
        features = int(torch.tensor(shape).prod())
        return [nn.Flatten(), nn.Linear(features, 4), nn.ReLU(), nn.Linear(4, classes)]

    monkeypatch.setitem(models._BUILDERS, "narrow", narrow)
    monkeypatch.setitem(models.MODELS, "narrow", "four hidden units")
    assert "narrow" in listed(capsys, "models")
    assert went_the_whole_way(tmp_path, 'model.name="narrow"').setup.model.parameters == 64 * 4 + 4 + 4 * 10 + 10


def test_an_observer(monkeypatch, tmp_path, capsys):
    kind = ObserverKind("a second server", "all that the server sees", uploads="received", broadcasts="all")
    monkeypatch.setitem(KINDS, "twin", kind)
    assert "twin" in listed(capsys, "observers")
    results = went_the_whole_way(tmp_path, 'audit.observer="twin"')
    assert results.attacks[0].observer == "twin"
    assert "second server" in (tmp_path / "results" / "report.html").read_text()
    code, out, _ = called(capsys, "epsilon", tmp_path / "setup", "--observer", "twin", "--json")
    twin = json.loads(out)["rows"]
    same = json.loads(called(capsys, "epsilon", tmp_path / "setup", "--observer", "server", "--json")[1])["rows"]
    assert code == 0 and [row["proven"] for row in twin] == [row["proven"] for row in same]
    assert Observer("twin").sees(from_server=True, to_server=False, round=0, last_round=1)


def test_a_metric(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(image.PER_IMAGE, "brightness", lambda a, b: (a.mean((1, 2, 3)) - b.mean((1, 2, 3))).abs())
    meaning = Metric("brightness", -1, "difference of the images' mean brightness")
    monkeypatch.setitem(METRICS, "brightness", meaning)
    assert "brightness" in listed(capsys, "metrics")
    sets = ("--set", "inversion.iterations=3")
    (entry, *_) = went_the_whole_way(tmp_path, attack="inversion", sets=sets).attacks
    assert entry.value("brightness") is not None and entry.controls["gray"]["brightness"] is not None
    assert "brightness" in (tmp_path / "results" / "report.html").read_text()


def test_a_data_set(monkeypatch, tmp_path, capsys):
    def coins(name, root, download, seed, **options):
        rng = torch.Generator().manual_seed(seed)
        splits = [(x := torch.randn(n, 3, generator=rng), (x[:, 0] > 0).long()) for n in (80, 40, 40)]
        return make("coins", *splits, 2, {})

    monkeypatch.setitem(data.NAMES, "coins", "three numbers and the sign of the first")
    monkeypatch.setattr(data.torchvision_sets, "load", coins)
    assert "coins" in listed(capsys, "datasets")
    assert went_the_whole_way(tmp_path, 'data.name="coins"').setup.data["name"] == "coins"


def test_the_table_names_files_that_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9.]*)`", row)}
    assert len(rows) >= 10 and named
    assert [name for name in named if not (ROOT / name).exists()] == []
