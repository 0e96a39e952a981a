"""NVFlare's messages through `AuditFilter` into a dump, and its how-to word for word where nvflare is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit import AuditFilter
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.declared import ADDED
from dpfl_audit.audit.record.dump import import_dump
from dpfl_audit.audit.setup.auditor import check_setup

ROOT = Path(__file__).resolve().parents[3]
DIM, STD = 3000, 0.05
DECLARED = f"share = 'update'\nnum_examples = 10\n[mechanism]\nclip = 1\nnoise_std = {STD}\n"


class Shareable(dict):
    """As NVFlare's: a dictionary with headers, in which a DXO is a dictionary again."""

    def __init__(self, kind: str, data, round: int | None = None, **meta) -> None:
        super().__init__({"DXO": {"kind": kind, "data": data, "meta": meta}})
        self.headers = {} if round is None else {"current_round": round}

    def get_header(self, key: str, default=None):
        return self.headers.get(key, default)


class Site:
    """A client's context, whose name is its."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_identity_name(self) -> str:
        return self.name


def pair(folder: Path) -> list[AuditFilter]:
    return [AuditFilter(str(folder), stage) for stage in ("global", "raw", "sent")]


def trained(folder: Path, rounds: int = 3, std: float = STD, **meta) -> Path:
    """Two sites that clip to 1 and add noise, in place as NVFlare's filters may."""
    rng, model = np.random.default_rng(0), np.zeros(DIM, dtype=np.float32)
    down, raw, sent = pair(folder)
    for t in range(rounds):
        for site in map(Site, ("site-1", "site-2")):
            task = Shareable("WEIGHTS", {"w": model}, t)
            assert down.process(task, site) is task
            update = rng.standard_normal(DIM)
            reply = Shareable("WEIGHT_DIFF", {"w": 3 * update / np.linalg.norm(update)}, t, **meta)
            assert raw.process(reply, site) is reply
            reply["DXO"]["data"]["w"] /= 3
            reply["DXO"]["data"]["w"] += std * rng.standard_normal(DIM)
            sent.process(reply, site)
        model = model + 1
    return folder


def imported(dump: Path, declared: str = DECLARED):
    (dump / "declared.toml").write_text(declared)
    folder = import_dump(dump, dump.parent / "setup", "files", declared=dump / "declared.toml")
    return {d.what: d for d in check_setup(folder)[1].declared}, proven(folder)


def proven(folder: Path) -> float:
    return max(
        r.proven for r in table(folder).rows if (r.observer, r.unit, r.adjacency) == ("server", "client", "zero_out")
    )


def test_clip_and_noise_of_a_filter_are_checked_by_what_it_got(tmp_path):
    found, epsilon = imported(trained(tmp_path / "dump", NUM_STEPS_CURRENT_ROUND=4, filter_history="Noise"))
    assert [found[what].status for what in ("norm bound", "noise", "independence", ADDED)] == ["checked"] * 4
    assert 0 < epsilon < np.inf


def test_noise_that_is_not_there_is_contradicted(tmp_path):
    found, epsilon = imported(trained(tmp_path / "dump", std=STD / 2))
    assert found["noise"].status == "contradicted" and epsilon == np.inf


def test_what_leaves_beside_the_model_is_named_and_proves_nothing(tmp_path):
    found, epsilon = imported(trained(tmp_path / "dump", initial_metrics={"accuracy": 0.5}))
    assert found["completeness"].status == "defect" and "initial_metrics" in found["completeness"].why
    assert epsilon == np.inf


def test_another_task_and_content_without_a_model_are_named(tmp_path):
    dump = trained(tmp_path / "dump")
    sent = pair(dump)[2]
    sent.process(Shareable("METRICS", {"loss": 0.5}), Site("site-1"))  # of the round before, as nothing says which
    plain = Shareable("", {})
    plain["DXO"] = None
    plain["counts"] = [1, 2]
    sent.process(plain, Site("site-2"))
    found, epsilon = imported(dump)
    assert "METRICS" in found["completeness"].why and "counts" in found["completeness"].why and epsilon == np.inf


def test_a_second_model_of_a_round_is_not_taken_for_the_first(tmp_path):
    dump = trained(tmp_path / "dump")
    pair(dump)[2].process(Shareable("WEIGHT_DIFF", {"w": np.zeros(DIM)}, 2), Site("site-1"))
    assert imported(dump)[1] == np.inf


def test_sites_that_get_other_models_prove_nothing(tmp_path):
    down, _, sent = pair(tmp_path / "dump")
    for i, site in enumerate(map(Site, ("site-1", "site-2"))):
        down.process(Shareable("WEIGHTS", {"w": np.full(DIM, float(i))}, 0), site)
        sent.process(Shareable("WEIGHT_DIFF", {"w": np.random.default_rng(i).normal(size=DIM)}, 0), site)
    found, epsilon = imported(tmp_path / "dump")
    assert found["completeness"].status == "contradicted" and epsilon == np.inf


def test_what_cannot_be_kept_stops_nobody_and_is_named(tmp_path):
    dump = trained(tmp_path / "dump")
    reply = Shareable("WEIGHT_DIFF", {"w": torch.zeros(DIM).to_sparse(), "z": np.zeros(2, dtype=complex)}, 3)
    down, _, sent = pair(dump)
    down.process(Shareable("WEIGHTS", {"w": np.zeros(DIM)}, 3), Site("site-1"))
    assert sent.process(reply, Site("site-1")) is reply
    found, epsilon = imported(dump)
    assert "ValueError" in found["completeness"].why and epsilon == np.inf
    for nothing in ({}, {"DXO": None}):
        empty = Shareable("WEIGHTS", {})
        empty.clear()
        empty.update(nothing)
        assert sent.process(empty, Site("site-2")) is empty


def test_another_stage_is_refused():
    with pytest.raises(BadInput, match="stage"):
        AuditFilter("dump", "after")


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="it needs the extra [nvflare]")
def test_the_how_to_word_for_word_in_its_simulator(tmp_path):
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        commands = importlib.import_module("commands")
    finally:
        sys.path.remove(str(ROOT / "docs"))
    page = (ROOT / "docs/howto/nvflare.md").read_text(encoding="utf-8")
    run = [line for line in page.splitlines(keepends=True) if not line.startswith("<!-- not run: tests/")]
    (tmp_path / "page.md").write_text("".join(run), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    with commands.programs() as environment:
        different = commands.run_page(tmp_path / "page.md", tmp_path / "empty", environment)
    assert different == [], "\n".join(map(str, different))
