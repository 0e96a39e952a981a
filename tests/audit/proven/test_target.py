"""`target_epsilon` computes the noise that proves it, in every scheme whose noise one number decides."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from command import call, called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.proven.target import build
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.presets import PRESETS
from tiers import but

MORE: dict[str, dict[str, Any]] = {  # what a proof needs, and whom it is towards
    "cdp": {"clip": 0.5, "participants": 3, "observer": "downlink"},
    "central-gaussian": {"participants": 3, "observer": "downlink"},
    "adaptive-clip": {"participants": 3, "observer": "downlink"},
    "dp-ftrl": {"participants": 3, "observer": "downlink"},
    "band-mf": {"participants": 3, "observer": "downlink"},
    "blt": {"participants": 3, "observer": "downlink"},
    "naafl": {"observer": "downlink"},
    "component": {"threshold": 0.1, "K": 2},
    "fednore1": {"clip": 0.5},
    "fednore2": {"clip": 0.5, "lam": 0.01},
    "fednore12": {"clip": 0.5, "lam": 0.01},
    "anonymous-gossip": {"neighbours": 2, "observer": "peer"},
    "anonymous-leader": {"observer": "peer"},
    "dpsgd": {"unit": "record"},
    "adap-dpfl": {"unit": "record"},
    "fed-cdp": {"unit": "record"},
    "fed-sdp": {"participants": 3, "observer": "downlink"},
}


def made(name: str, target: float = 8.0, **more: Any) -> Experiment:
    """Six clients of 20 digits, three rounds."""
    audit = {key: more.pop(key) for key in ("observer", "unit", "adjacency", "delta") if key in more}
    raw = {
        "data": {"name": "digits", "clients": 6, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": {"name": name, "rounds": 3, "target_epsilon": target, **more},
        "audit": audit,
    }
    return build(parse_config(raw), Path())


def proven(experiment: Experiment) -> float:
    asked = experiment.config.audit
    (row,) = rows(
        planned_ledger(experiment), None, asked.delta, [asked.observer], [asked.unit], [asked.adjacency], asked.honest
    )
    assert row.proven is not None
    return row.proven


# Many looks at a sampled Gaussian each.
LONG = ("adaptive-clip", "adap-dpfl", "cdp", "central-gaussian", "dpsgd", "fed-sdp")


@pytest.mark.parametrize("name", but([name for name, preset in PRESETS.items() if preset.noise], *LONG))
def test_the_noise_proves_the_target_and_hardly_less(name):
    experiment = made(name, **MORE.get(name, {}))
    assert 7.99 < proven(experiment) <= 8.0
    scheme = experiment.config.model_dump(mode="json")["scheme"]
    assert "target_epsilon" not in scheme and scheme[PRESETS[name].noise[0]] > 0


def test_one_release_at_4_3772_needs_the_clip_norm_and_four_twice_it():
    """The exact Gaussian of multiplier 1 at δ = 1e-5; T releases need √T times the noise (Balle and Wang 2018)."""
    for rounds in (1, 4):
        experiment = made("ldp", 4.3772, rounds=rounds, clip=0.5)
        assert experiment.config.scheme["noise_std"] == pytest.approx(0.5 * sqrt(rounds), rel=1e-3)


def test_a_target_invokes_no_papers_formula_but_an_accountants_claim_stays():
    assert made("ldp").claim is made("thesis-baseline").claim is None  # σ would be the paper's letter
    kept = made("local-gaussian").claim
    assert kept is not None and kept.whose == "accountant"


def test_the_accountants_claim_is_what_is_proven():
    experiment = made("local-gaussian")
    (row,) = [r for r in rows(planned_ledger(experiment), experiment.claim, 1e-5) if r.claimed is not None]
    assert (row.observer, row.unit, row.adjacency) == ("server", "client", "zero_out")
    assert row.claimed == row.proven and row.claimed_by == "accountant"
    assert row.notes[0].startswith("Claimed by the accountant: what it proves of Gaussian noise")


BAD = [
    ("fedavg", {}, "no noise that is decided by one number"),
    ("lcdp", {}, "no noise that is decided by one number"),
    ("ldp", {"sigma": 1.0}, "which sigma decides too"),
    ("nbafl", {"epsilon": 50.0}, "which epsilon decides too"),
    ("ldp", {"clip": "median"}, "needs a fixed clip"),
    ("cdp", {"observer": "downlink"}, "median of the round's private norms"),
    ("cdp", {"clip": 0.5}, "without noise"),  # towards the server, which gets raw updates
    ("ldp", {"observer": "peer"}, "no such party"),
]


@pytest.mark.parametrize(("name", "more", "words"), BAD)
def test_where_no_noise_can_be_computed_one_sentence_says_why(name, more, words):
    with pytest.raises(BadInput) as error:
        made(name, **more)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_setup_keeps_the_noise_and_the_same_command_goes_on(tmp_path, capsys):
    config = tmp_path / "config.toml"
    config.write_text(
        '[data]\nname = "digits"\nclients = 2\nsamples_per_client = 10\n[model]\nname = "logistic"\n'
        '[scheme]\nname = "ldp"\nrounds = 1\ntarget_epsilon = 8\n'
    )
    train = ("train", config, "-o", tmp_path / "setup", "--quiet")
    assert call(*train) == 0
    before = (tmp_path / "setup" / "setup.json").read_bytes()
    kept = json.loads(before)
    assert "target_epsilon" not in kept["config"]["scheme"] and kept["scheme"]["parameters"]["target_epsilon"] is None
    assert kept["facts"]["noise_std"] == pytest.approx(kept["config"]["scheme"]["noise_std"]) and kept["claim"] is None
    assert call(*train) == 0 and (tmp_path / "setup" / "setup.json").read_bytes() == before
    rows = json.loads(called(capsys, "epsilon", tmp_path / "setup", "--json")[1])["rows"]
    assert 7.99 < rows[0]["proven"] <= 8.0
