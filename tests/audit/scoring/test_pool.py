"""Why no original was looked for in its own pool: what is said is what was."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dpfl_audit.audit.results.format import AttackResult, Metrics
from dpfl_audit.metrics.leakage import ROWS_OF_A_TABLE

score = import_module("dpfl_audit.audit.scoring.score")  # the package has a function of that name


@pytest.mark.parametrize(
    ("numbers", "partition", "said"),
    [
        ({"cells_right": 0.5}, "iid", ROWS_OF_A_TABLE),
        ({}, "recorded", "there is no pool (nobody says that a lot dealt the records)"),
        ({}, "sorted", "there is no pool (records were dealt in the order of their targets)"),
        ({}, "iid", "no image of the same labels left over when the records were dealt by lot"),
    ],
)
def test_why_there_was_no_pool(numbers: dict[str, float], partition: str, said: str, monkeypatch) -> None:
    """A table's records are dealt by lot and left over all the same; a recording's were dealt nobody knows how."""
    monkeypatch.setattr(score, "rows_of", lambda *_: [0])
    image, none = torch.rand(1, 1, 4, 4), torch.zeros(0, 1, 4, 4)
    label = torch.zeros(1, dtype=torch.long)
    truth = SimpleNamespace(inputs=image, targets=label, pool_inputs=none, pool_targets=label[:0], by_holder=None)
    setup: Any = SimpleNamespace(config=SimpleNamespace(data=SimpleNamespace(partition=partition)))
    auditor: Any = SimpleNamespace(truth=truth)
    rebuilt: Any = SimpleNamespace(images=image)
    entry = AttackResult(attack="inversion", observer="server", metrics=Metrics.of({"psnr": 9.0, **numbers}))
    missing = score._in_its_pool(entry, setup, auditor, rebuilt, None).not_measured
    assert missing["pool_share"] == said
    control = "a client's records may resemble each other (nobody says that a lot dealt the records)"
    assert any(reason.startswith(control) for reason in missing.values()) is (partition == "recorded")
