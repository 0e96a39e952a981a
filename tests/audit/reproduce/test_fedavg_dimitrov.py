"""The table of simulated local epochs: what is asked is what is attacked, and a short one runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.audit.reproduce import fedavg_dimitrov, tables
from dpfl_audit.audit.reproduce.fedavg_dimitrov import ATTACKS, DIMITROV, ONE, SIMULATED, SPAN
from dpfl_audit.audit.reproduce.table import Request
from dpfl_audit.audit.reproduce.tables import reproduce


@pytest.mark.full
def test_a_short_one_runs(monkeypatch):
    monkeypatch.setattr(fedavg_dimitrov, "QUICK_IMAGES", 5)
    monkeypatch.setattr(
        fedavg_dimitrov, "ATTACKS", {name: replace(a, iterations=8, simulated=4) for name, a in ATTACKS.items()}
    )
    made = reproduce("fedavg-dimitrov", quick=True, trials=2)
    assert len(made.rows) == 18 and "bundled digits" in made.rows[0]["data"] and len(made.trends) == 12
    by = {row["cell"]: row for row in made.rows}
    simulated, span = by[f"{SIMULATED}, E = 10"], by[f"{SPAN}, E = 5"]
    assert simulated["published_above"] == 0.45 and span["published_above"] is None
    assert all(0 <= row["above"] <= 1 and row["gray"] > 0 < row["mean"] for row in made.rows)


def test_the_presets_are_what_runs():
    plan = DIMITROV.plan(Request())
    assert (
        ATTACKS[SIMULATED] == PRESETS["fedavg-dimitrov"].settings and ATTACKS[SPAN] == PRESETS["fedavg-span"].settings
    )
    assert ATTACKS[ONE] == replace(ATTACKS[SIMULATED], simulated=0)
    assert "50 images" in plan.setting and tables.TABLES["fedavg-dimitrov"].run == DIMITROV.run
