"""What is public of a training is its messages, and what no client's records decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.public import PUBLIC, strangers

SCHEMES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "local-gaussian": {},
    "central-gaussian": {"participants": 2, "sampling": "poisson"},
    "dpsgd": {},
    "adaptive-clip": {"participants": 2},
    "ldp-fl": {},
    "lcdp": {},
    "cdp": {},
    "distributed-gaussian": {},
    "band-mf": {},
    "anonymous-gossip": {"neighbours": 2},
    "geometric": {"epsilon": 5.0, "delta": 1e-3},
}


def public_half(folder: Path, inputs: torch.Tensor, made: Any) -> dict[str, bytes]:
    train(replace(made, data=replace(made.data, inputs=inputs)), folder)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {n: path.read_bytes() for n, path in files.items() if not n.startswith(("auditor/", "truth/", "."))}


@pytest.mark.few(8)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_whatever_else_is_public_does_not_hang_on_a_client(scheme: str, adjacency: str, tmp_path: Path) -> None:
    """The same coins, and another client 0: only messages differ, and digests of what differs."""
    raw = {
        "data": {"name": "digits", "clients": 4, "samples_per_client": 6},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 3},
        "scheme": {"name": scheme, "rounds": 2, **SCHEMES[scheme]},
        "capture": {"clients": [0, 1]},
    }
    made = build(parse_config(raw), Path())
    other, own = made.data.inputs.clone(), made.clients[0]
    other[own] = 0.0 if adjacency == "zero_out" else 1 - other[own]
    one, two = (public_half(tmp_path / name, x, made) for name, x in (("one", made.data.inputs), ("two", other)))
    assert one.keys() == two.keys() and strangers(sorted(one)) == []
    different = {name for name in one if one[name] != two[name]}
    assert {name for name in different if not name.startswith("tensors/")} <= {
        "setup.json",
        "messages.jsonl",
        "environment.json",
    }
    first, second = (json.loads(half["setup.json"]) for half in (one, two))
    files = {name for name in first["files"] if first["files"][name] != second["files"][name]}
    assert files <= different | {"auditor/seal.json", "setup.json"}
    assert {**first, "files": 0} == {**second, "files": 0}
    sides = [[{**json.loads(line), "side": 0} for line in half["messages.jsonl"].splitlines()] for half in (one, two)]
    assert sides[0] == sides[1]


def test_every_kind_says_why_it_is_public_and_others_have_no_door() -> None:
    assert all(len(why) > 20 for _, why in PUBLIC.values())
    assert strangers(["norms.csv", "auditor/releases.jsonl", "rounds.csv"]) == ["norms.csv", "auditor/releases.jsonl"]
