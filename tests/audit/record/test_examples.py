"""The example of a loop of one's own runs, and ends in a setup that is whole."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.auditor import check_setup

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "resnet" / "head.py"


@pytest.mark.full
def test_the_head_of_a_frozen_resnet(tmp_path: Path) -> None:
    setup = runpy.run_path(str(EXAMPLE))["main"](str(tmp_path / "setup"))
    found, auditor = check_setup(setup)
    assert found.manifest.model.parameters == 512 * 10 + 10 and found.manifest.rounds == 3
    status = {declared.what: declared.status for declared in auditor.declared}
    assert status["noise"] == status["independence"] == "checked" and "contradicted" not in status.values()
    results = run(setup, tmp_path / "results", RunOptions(attacks=("membership-cosine",), pixels_only=True))
    assert results.attacks and all((entry.value("n_members") or 0) >= 30 for entry in results.attacks)
