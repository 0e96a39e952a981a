"""Whose ε a setup is held to: the owner's, the paper's formula where the noise is in its terms, or nobody's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import call, called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build

PLAIN = """
[data]
name = "digits"
clients = 3
samples_per_client = 20
[model]
name = "logistic"
[local]
optimiser = "sgd"
lr = 0.1
batch_size = 10
"""
LDP = '[scheme]\nname = "ldp"\nclip = 0.5\nrounds = 1\n'
OWN = "[claim]\nepsilon = 4.0\n"


def written(folder: Path, *tables: str) -> Path:
    path = folder / "config.toml"
    path.write_text("".join((PLAIN, *tables)))
    return path


def claimed(path: Path, *overrides: str) -> dict[tuple[str, str, str], tuple[float, str]]:
    """What is claimed, and whose claim it is, by observer, unit and adjacency."""
    rows = table(path, overrides=overrides).rows
    return {(r.observer, r.unit, r.adjacency): (r.claimed, r.claimed_by) for r in rows if r.claimed is not None}


def test_plain_clip_and_noise_claims_nothing_and_the_papers_sigma_its_formula(tmp_path):
    """σ = 1, δ = 1e-5: 1/2 + √(2 ln 10⁵) = 5.2985. noise_std = C/n = .5/20 is the same noise, not the same claim."""
    config = written(tmp_path, LDP)
    place = ("server", "client", "zero_out")
    assert claimed(config, "scheme.noise_std=0.025") == {}
    assert claimed(config, "scheme.sigma=1.0") == {place: (pytest.approx(5.2985, abs=1e-4), "paper")}
    assert claimed(config, "scheme.sigma=1.0", "claim=none") == {}
    by_name = claimed(config, "scheme.noise_std=0.025", "claim=paper")
    assert by_name == {place: (pytest.approx(5.2985, abs=1e-4), "paper")}


def test_the_owners_claim_stands_in_its_own_row_and_what_is_left_out_is_as_audited(tmp_path):
    config = written(tmp_path, LDP)
    noise = "scheme.noise_std=0.5"
    assert claimed(config, noise, "claim.epsilon=4") == {("server", "client", "zero_out"): (4.0, "owner")}
    elsewhere = ("claim.epsilon=4", "claim.observer=uplink(1)", "claim.unit=record", "claim.adjacency=replace_one")
    assert claimed(config, noise, *elsewhere) == {("uplink(1)", "record", "replace_one"): (4.0, "owner")}
    rows = table(config, overrides=(noise, "claim.epsilon=4", "claim.delta=1e-6")).rows
    assert any("owner" in note and "4" in note and "1e-06" in note for note in rows[0].notes)


def test_a_claim_says_nothing_at_a_smaller_delta_than_its_own(tmp_path):
    """(ε, δ)-DP is (ε, δ')-DP for δ' > δ, and not for δ' < δ."""
    config = written(tmp_path, LDP)
    overrides = ("scheme.noise_std=0.5", "claim.epsilon=4")
    (row, *_) = table(config, overrides=overrides, delta=1e-4).rows
    assert row.claimed == 4.0
    (row, *_) = table(config, overrides=overrides, delta=1e-7).rows
    assert row.claimed is None and row.claimed_by == "" and "says nothing" in row.notes[0] and "1e-07" in row.notes[0]


def test_nbafl_reports_its_claim_for_the_observer_it_is_towards(tmp_path, capsys):
    """Whoever is audited: the paper's 50 is towards whoever catches one upload of a client."""
    scheme = '[scheme]\nname = "nbafl"\nepsilon = 50.0\nrounds = 2\n[audit]\ndelta = 0.01\n'
    config = written(tmp_path, scheme)
    place = ("uplink(1)", "record", "replace_one")
    assert claimed(config) == {place: (pytest.approx(50.0), "paper")}
    assert call("train", config, "-o", tmp_path / "setup", "--quiet", "--set", "capture.candidates=20") == 0
    run = ("run", tmp_path / "setup", "-o", tmp_path / "results", "--quick", "--attack", "membership-loss")
    code, out, _ = called(capsys, *run)
    assert code == 0
    rows = Results.read(tmp_path / "results").epsilon
    (row,) = [row for row in rows if row.claimed is not None]
    assert (row.observer, row.unit, row.adjacency) == place and row.claimed_by == "paper"
    assert re.search(r"nothing claimed here, but 50 .* per record towards an eavesdropper", out)


def test_canaries_of_an_observer_of_their_own_fill_its_row_or_say_why(tmp_path, capsys):
    """uplink(1) is not among the observers of a table by default."""
    config = written(tmp_path, LDP, "[capture]\ncandidates = 20\n")
    assert call("train", config, "-o", tmp_path / "setup", "--quiet", "--set", "scheme.noise_std=0.05") == 0

    def run(name: str, *sets: str) -> tuple[int, str]:
        few = [w for s in ("draws=150", *sets) for w in ("--set", f"canary.{s}")]
        code, _, err = called(capsys, "run", tmp_path / "setup", "-o", tmp_path / name, "--attack", "canary", *few)
        return code, err

    assert run("results", 'observers=["uplink(1)"]', 'units=["client"]', 'adjacencies=["replace_one"]')[0] == 0
    shown = [r for r in Results.read(tmp_path / "results").epsilon if r.demonstrated is not None]
    assert [(r.observer, r.unit, r.adjacency) for r in shown] == [("uplink(1)", "client", "replace_one")]
    assert (shown[0].demonstrated or 0) > 0
    code, err = run("other", 'observers=["peer"]')
    assert code == 2 and "peer" in err and not (tmp_path / "other").exists()


def test_results_and_page_say_whose_claim_it_is(tmp_path, capsys):
    config = written(tmp_path, LDP, OWN, "[capture]\ncandidates = 20\n")
    chosen = ("--set", "scheme.noise_std=0.5")
    assert call("train", config, "-o", tmp_path / "setup", "--quiet", *chosen) == 0
    claim = json.loads((tmp_path / "setup" / "setup.json").read_text())["claim"]
    assert (claim["whose"], claim["observer"]) == ("owner", "server")
    assert {"4", "1e-05"} <= set(claim["sentence"].split())
    run = ("run", tmp_path / "setup", "-o", tmp_path / "results", "--quick", "--attack", "membership-loss")
    code, out, _ = called(capsys, *run)
    assert code == 0 and re.search(r"claimed 4 .*owner", out)
    assert call("report", tmp_path / "results", "--quiet") == 0
    assert "the owner</small>" in (tmp_path / "results" / "report.html").read_text()
    code, out, _ = called(capsys, "epsilon", tmp_path / "setup")
    assert code == 0 and "4 (owner)" in out and f"{claim['sentence']}." in out


BAD = [
    (("claim=papr",), "'papr' is no claim"),
    (("claim.delta=1e-3", "claim.epsilon=4"), "above [audit] delta = 1e-05"),
    (("claim.epsilon=4", "claim.observer=peer"), "nobody in this federation is that"),
    (("claim.epsilon=4", "claim.unt=record"), "did you mean 'unit'"),
    (("claim.unit=record",), "needs epsilon"),
    (("claim=paper", 'scheme={name="fedavg"}'), "'fedavg' has no formula"),
    (
        ("claim.epsilon=4", "claim.observer=leader", 'scheme={name="anonymous-gossip", neighbours=1}'),
        "nobody is elected here",
    ),
]


@pytest.mark.parametrize(("overrides", "words"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_a_claim_that_cannot_be_is_one_sentence(tmp_path, capsys, overrides, words):
    config = written(tmp_path, LDP)
    chosen = [word for override in ("scheme.sigma=1.0", *overrides) for word in ("--set", override)]
    code, _, err = called(capsys, "epsilon", config, *chosen)
    assert code == 2 and words in err and "\n" not in err


@pytest.mark.parametrize("claim", ["paper", "none", {"epsilon": 3.0}])
def test_what_is_claimed_changes_nothing_that_is_trained(claim: Any):
    """A budget is spent by the scheme's own formula, whoever claims what."""
    raw: dict[str, Any] = {
        "data": {"name": "digits", "clients": 2, "samples_per_client": 10},
        "model": {"name": "logistic"},
        "scheme": {"name": "component", "K": 2, "rounds": 9, "epsilon": 0.5},
    }
    scheme = build(parse_config({**raw, "claim": claim}), Path()).scheme
    assert scheme.claim is not None and scheme.budget is not None and scheme.claim.whose == "paper"


def test_a_config_that_says_nothing_is_stored_with_what_it_claims():
    raw: dict[str, Any] = {"data": {"name": "digits", "clients": 2, "samples_per_client": 10}}
    said = [
        build(parse_config({**raw, "scheme": scheme}), Path()).config.model_dump(mode="json")["claim"]
        for scheme in ({"name": "fedavg"}, {"name": "ldp", "sigma": 1.0}, {"name": "ldp", "noise_std": 1.0})
    ]
    assert said == ["none", "paper", "none"]
    with pytest.raises(BadInput, match="no formula"):
        build(parse_config({**raw, "claim": "paper"}), Path())
