"""Tables of single images from their gradients: what is asked is what is attacked, and a short one runs."""

from __future__ import annotations

import pytest
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.audit.reproduce import lenet_inversion, tables
from dpfl_audit.audit.reproduce.table import Request
from dpfl_audit.audit.reproduce.tables import reproduce
from tiers import quick


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "preset"), quick([("inverting-gradients-lenet", "inverting-gradients"), ("dlg", "dlg")], 1)
)
def test_a_short_one_runs(name, preset, monkeypatch):
    monkeypatch.setattr(lenet_inversion, "QUICK_IMAGES", 2)
    short = lenet_inversion.lenet_table(name, preset, {"psnr": 18.0} if name != "dlg" else {}, 16.0, "", 3)
    monkeypatch.setitem(tables.TABLES, name, tables.PublishedTable("short", short.run))
    made = reproduce(name, quick=True, trials=2)
    (row,) = made.rows
    assert row["attack"] == preset and row["trials"] == 2 and "bundled" in row["data"] and "3 iterations" in made.text
    assert row["published_psnr"] == (18.0 if name != "dlg" else None)
    assert [trend["trials"] for trend in made.trends] == [2, 2]


def test_the_published_attack_is_what_runs():
    plan = lenet_inversion.INVERTING_GRADIENTS.plan(Request())
    assert "4,800 iterations" in plan.setting and PRESETS["inverting-gradients"].settings.iterations == 4800
    attack = plan.content[2]
    assert (attack["objective"], attack["optimiser"], attack["lr"], attack["tv"]) == (
        ["cosine"],
        "signed-adam",
        0.025,
        0.04,
    )
