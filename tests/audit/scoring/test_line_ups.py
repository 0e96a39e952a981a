"""Pictures of every message before every message's line-up, at once and one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dpfl_audit.audit.scoring.line_ups import BESIDE, LineUps
from dpfl_audit.metrics.reidentification import reidentified

SIZES = (2, 2, 1, 3, 1, 2)


def images(n: int, seed: int) -> torch.Tensor:
    return torch.rand(n, 1, 5, 5, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def line_ups() -> LineUps:
    truth = SimpleNamespace(
        inputs=images(14, 0),
        targets=torch.arange(14) % 3,
        gallery_inputs=images(20, 1),
        gallery_targets=torch.arange(20) % 3,
    )
    knowledge = SimpleNamespace(auxiliary_inputs=images(9, 2), auxiliary_targets=torch.arange(9) % 3)
    setup = SimpleNamespace(manifest=SimpleNamespace(data=SimpleNamespace(name="photos", description={})))
    made: Any = LineUps(setup, truth, knowledge)  # type: ignore[arg-type]
    return made


def sent(line_ups: LineUps, known: bool) -> list[tuple[list[int], Any]]:
    """Half rebuilt, half of another record; labels of each in an order of the attack's own."""
    made, first = [], 0
    for place, size in enumerate(SIZES):
        rows = list(range(first, first + size))
        first += size
        pictures = line_ups.truth.inputs[rows] + 0.3 * images(size, 10 + place)
        if place % 2:
            pictures = images(size, 20 + place)
        labels = line_ups.truth.targets[rows] if known else None
        made.append((rows, SimpleNamespace(images=pictures, labels=labels)))
    return made


@pytest.mark.parametrize("known", [False, True])
def test_all_at_once_picks_what_each_picks_by_itself(line_ups: LineUps, known: bool) -> None:
    messages = sent(line_ups, known)
    hits, alike = line_ups.swapped(messages, known)
    assert alike == [(size, size) for size in SIZES]
    for i, (rows, own) in enumerate(messages):
        others, labels = line_ups.others(rows)
        assert len(others) == 14 - len(rows) + 29 <= BESIDE
        for j, (_, made) in enumerate(messages):
            if SIZES[i] != SIZES[j]:
                assert hits[i, j] == 0
                continue
            informed = (line_ups.truth.targets[rows], own.labels, labels) if known else ()
            found = reidentified(line_ups.truth.inputs[rows], made.images, others, *informed)
            assert hits[i, j] == found.hits
    assert hits.diagonal()[::2].tolist() == [2, 1, 1] and hits.diagonal().sum() > hits.roll(1, 0).diagonal().sum()
