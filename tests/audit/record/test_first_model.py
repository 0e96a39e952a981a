"""What everybody starts from is a release too: a recording declares it."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.declared import SILENT
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup

START = {"w": torch.zeros(20, 30)}


@pytest.mark.parametrize(("made", "finite"), [("public", True), ("private", False), (None, True)])
def test_a_first_model_of_the_clients_records_tells_them(made: str | None, finite: bool, tmp_path: Path) -> None:
    """Weights that are the records, and clips and noise from there on: 7.81 was printed, and no word of the start."""
    torch.manual_seed(0)
    facts = {"data": {"first_model": made}} if made else {}
    with Recorder(tmp_path / "s", START, mechanism=Gaussian(clip=1.0, noise_std=2.0), **facts) as rec:
        for t in range(2):
            rec.broadcast(t, START)
            for client in range(3):
                rec.upload(t, client, 2 * torch.randn(600), num_examples=10)
        rec.broadcast(2, START)
    rows = table(tmp_path / "s", observers=["server", "downlink", "model", "uplink"]).rows
    told = {row.observer: (row.proven or 0.0) < inf for row in rows if row.unit == "client"}
    assert told == {"server": finite, "downlink": finite, "model": finite, "uplink": True}
    (stated,) = (d for d in check_setup(tmp_path / "s")[1].declared if d.what == "first model")
    assert stated.status == "declared" and ("without" in stated.said) == finite
    assert (stated.why == SILENT) == (made is None)
    assert all(stated.said in " ".join(row.notes) for row in rows if (row.proven or 0.0) < inf)
