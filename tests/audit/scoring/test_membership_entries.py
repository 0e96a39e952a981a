"""One entry an attack: who judges whom, what is left out, what is refused, what is on disk."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from dpfl_audit.audit.report.membership import coverage, points
from dpfl_audit.audit.report.page import page
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.say.words import number, observer
from dpfl_audit.audit.scoring.membership_entries import assign, outside_twins
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.defenses.wire import client_address
from dpfl_audit.metrics.membership import auc
from safetensors.torch import load_file, save_file

CLIENTS = 5
RAW: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "digits", "clients": CLIENTS, "samples_per_client": 20},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5, "epochs": 5},
    "scheme": {"name": "cdp", "sigma": 1.0, "clip": 0.5, "rounds": 2},
    "capture": {"clients": list(range(CLIENTS)), "candidates": 240, "auxiliary": 40},
    "audit": {"unit": "record"},
}
ATTACKS = ("membership-loss", "membership-cosine", "membership-fedmia")


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("membership")
    return train(build(parse_config(RAW), folder), folder / "setup")


@pytest.fixture(scope="module")
def results(setup: Path) -> Path:
    run(setup, setup.parent / "results", RunOptions(attacks=ATTACKS, observers=("server", "downlink"), device="cpu"))
    return setup.parent / "results"


def owners_of(setup: Path) -> list[int]:
    return json.loads((setup / "truth" / "membership.json").read_text())["client"]


# --- who judges whom ---


def test_senders_are_as_frequent_among_outsiders_as_among_members() -> None:
    owners = torch.tensor([0] * 10 + [1] * 30 + [2] * 5 + [-1] * 400)
    judge = assign(owners, [1, 0], seed=0)  # part 0 is client 1's; client 2 sent nothing
    assert (judge[:10] == 1).all() and (judge[10:40] == 0).all() and (judge[40:45] == -1).all()
    assert torch.bincount(judge[45:]).tolist() == [300, 100]
    assert torch.equal(judge, assign(owners, [1, 0], seed=0)) and not torch.equal(judge, assign(owners, [1, 0], seed=1))


def test_senders_whose_scores_lie_apart_tell_nothing_of_membership() -> None:
    """Every score is the sender's own offset plus noise: pooled, AUC must be ½, though one sender has most members."""
    rng = torch.Generator().manual_seed(0)
    owners = torch.cat([torch.zeros(400), torch.ones(100), torch.full((2000,), -1)]).long()
    scores = torch.randn(2, len(owners), generator=rng) + torch.tensor([[5.0], [0.0]])
    judge = assign(owners, [0, 1], seed=0)
    pooled = scores[judge, torch.arange(len(owners))]
    low, high = auc(pooled[owners >= 0], pooled[owners < 0])[1]
    assert low < 0.5 < high


def test_several_addresses_of_one_client_share_its_records() -> None:
    owners = torch.tensor([0] * 300 + [-1] * 300)
    counts = torch.bincount(assign(owners, [0, 0, 0], seed=0)[:300], minlength=3)
    assert (counts > 60).all()


def test_twins_are_non_members_that_equal_a_member_in_inputs_and_label() -> None:
    inputs = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]])
    targets, owners = torch.tensor([0, 0, 1, 0, 0]), torch.tensor([2, -1, -1, -1, -1])
    assert outside_twins(inputs, targets, owners).tolist() == [False, True, False, False, False]


# --- through `run` ---


def test_an_attack_is_one_entry_in_which_every_record_counts_once(setup: Path, results: Path) -> None:
    owners = owners_of(setup)
    audited = Results.read(results)
    assert [(a.attack, a.observer, a.client) for a in audited.attacks] == [
        ("membership-loss", "server", ""),
        ("membership-cosine", "server", None),
        ("membership-fedmia", "server", None),
        ("membership-loss", "downlink", ""),
    ]
    for attack in audited.attacks:
        table = pandas.read_csv(results / "scores" / f"{attack.key}.csv", keep_default_na=False)
        assert table["id"].is_unique and set(table["id"]) <= set(range(len(owners)))
        assert table["score"].is_monotonic_decreasing
        assert all(row.member == (owners[row.id] >= 0) for row in table.itertuples())
        # Outsiders have the members' classes, so some are left out; of members nobody is.
        assert attack.value("n_members") == 100 and 110 < attack.value("n_nonmembers") <= 140
        packed = numpy.load(results / "scores" / f"{attack.key}.npz")
        assert set(packed["id"]) == set(table["id"]) and packed["score"].shape == packed["member"].shape
        if attack.client is None:
            assert all(row.sender == client_address(owners[row.id]) for row in table.itertuples() if row.member)
            assert [row.client for row in attack.per_client] == [client_address(c) for c in range(CLIENTS)]


def test_what_only_one_observer_cannot_try_is_said_and_the_rest_is_run(
    setup: Path, results: Path, tmp_path: Path
) -> None:
    (sentence,) = [w for w in Results.read(results).warnings if "Not tried for" in w]
    assert sentence.startswith(
        "Not tried for the observer downlink: membership-cosine, membership-fedmia (the observer 'downlink' sees no"
        " uploads"
    )
    with pytest.raises(ValueError, match="sees no uploads"):
        run(setup, tmp_path / "r", RunOptions(attacks=ATTACKS, observers=("downlink", "model")))
    assert not (tmp_path / "r").exists()


def test_the_report_says_which_epsilon_covers_whom(results: Path) -> None:
    sentences = coverage(Results.read(results))
    finite, _, unbounded = sentences[0].partition("; ")
    assert observer("downlink") in finite and observer("model") in finite and observer("server") in unbounded
    assert sentences[-1].endswith(f"{observer('server')}.") and observer("model") not in sentences[-1]
    assert sentences[-1] in page([results])


def test_rates_too_small_for_the_outsiders_say_how_many_are_needed(results: Path) -> None:
    attack = Results.read(results).attacks[0]
    assert [(level, point is None, why) for level, point, why in points(attack)] == [
        (0.1, False, ""),
        (0.01, False, ""),
        (0.001, True, f"needs {number(1000)} others"),
        (0.0001, True, f"needs {number(10_000)} others"),
        (0.0, False, ""),
    ]


def unsealed(setup: Path, folder: Path, name: str) -> Path:
    """A copy of the setup whose file `name` may be changed, as if its owner had written it so."""
    shutil.copytree(setup, folder)
    manifest = json.loads((folder / "setup.json").read_text())
    for seal in (name, "auditor/seal.json"):
        manifest["files"].pop(seal, None)
    (folder / "setup.json").write_text(json.dumps(manifest))
    private = json.loads((folder / "auditor" / "seal.json").read_text())
    private.pop(name, None)
    (folder / "auditor" / "seal.json").write_text(json.dumps(private))
    return folder


def changed(setup: Path, folder: Path, clients: Any) -> Path:
    (unsealed(setup, folder, "truth/membership.json") / "truth" / "membership.json").write_text(
        json.dumps({"client": clients})
    )
    return folder


@pytest.mark.parametrize(
    ("clients", "sentence"),
    [
        ([0] * 240, "all 240 membership candidates are members"),
        ([-1] * 240, "none of the 240 membership candidates is a member"),
        ([0, -1], "client must list, for every one of 240 candidates"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_run(
    setup: Path, tmp_path: Path, clients: list[int], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(changed(setup, tmp_path / "s", clients), tmp_path / "r", RunOptions(attacks=("membership-lira",)))
    assert not (tmp_path / "r").exists()


def overlapping(setup: Path, folder: Path, count: int) -> Path:
    """The first `count` non-members replaced by members."""
    unsealed(setup, folder, "knowledge/candidates.safetensors")
    path, owners = folder / "knowledge" / "candidates.safetensors", torch.tensor(owners_of(setup))
    tensors = load_file(path)
    inside, outside = (owners >= 0).nonzero().squeeze(1), (owners < 0).nonzero().squeeze(1)[:count]
    for value in tensors.values():
        value[outside] = value[inside[torch.arange(len(outside)) % len(inside)]]
    save_file(tensors, path)
    return folder


def test_non_members_that_equal_members_are_named_and_counted(setup: Path, tmp_path: Path) -> None:
    audited = run(
        overlapping(setup, tmp_path / "s", 7),
        tmp_path / "r",
        RunOptions(attacks=("membership-loss", "membership-cosine"), device="cpu"),
    )
    first = owners_of(setup).index(-1)
    assert any(re.search(rf"\b7 of the 140 .*candidate {first}\b", text) for text in audited.warnings)
    with pytest.raises(ValueError, match="all 140 non-members among the candidates equal members"):
        run(
            overlapping(setup, tmp_path / "s2", 140),
            tmp_path / "r2",
            RunOptions(attacks=("membership-loss",), device="cpu"),
        )


@pytest.mark.parametrize("seed", range(2))
def test_frequent_records_dealt_to_both_sides_give_nobody_away(tmp_path: Path, seed: int) -> None:
    """A table in which 60 % of the rows are zeros, dealt by lot, and noise that hides everything (ε .06): members would
    hold all the zeros if those of the outsiders were left out (AUC .74, "the proof is contradicted").
    """
    rng = numpy.random.default_rng(seed)
    rows = numpy.abs(rng.normal(size=(2000, 8))).astype(numpy.float32)
    rows[rng.random(2000) < 0.6] = 0
    numpy.savez(tmp_path / "t.npz", inputs=rows, targets=(rng.random(2000) < 0.5).astype(numpy.int64))
    config = {
        "data": {"name": "npz", "root": "t.npz", "classes": 2, "clients": 4, "samples_per_client": 100},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "batch_size": 50},
        "scheme": {"name": "ldp", "rounds": 1, "clip": 1.0, "noise_std": 100.0},
        "capture": {"clients": [0, 1, 2, 3], "candidates": 800},
    }
    train(build(parse_config(config), tmp_path), tmp_path / "s")
    audited = run(tmp_path / "s", tmp_path / "r", RunOptions(attacks=("membership-loss", "membership-cosine")))
    assert any("overlap" in warning for warning in audited.warnings)
    assert all(p > 0.001 for entry in audited.attacks for p in entry.p_values.values())


def test_without_the_truth_the_scores_are_on_disk_all_the_same(setup: Path, tmp_path: Path) -> None:
    shutil.copytree(setup, tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "truth")
    audited = run(tmp_path / "s", tmp_path / "r", RunOptions(attacks=("membership-cosine",), device="cpu"))
    (entry,) = audited.attacks
    assert list(entry.not_measured) == ["auc"]
    table = pandas.read_csv(tmp_path / "r" / "scores" / f"{entry.key}.csv")
    assert len(table) == 240 * CLIENTS and list(table.columns) == ["id", "sender", "score"]
    assert entry.not_measured["auc"] in page([tmp_path / "r"])
