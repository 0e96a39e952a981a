"""What all messages of an attack say together, in worlds whose truth is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dpfl_audit.audit.scoring.answers import of_margins
from dpfl_audit.audit.scoring.line_ups import LineUps

MESSAGES = 12


def images(n: int, seed: int, brighter: float = 0.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return (torch.rand(n, 1, 5, 5, generator=rng) * (1 - brighter) + brighter).clamp(0, 1)


def world(seed: int, left_over: int = 0, brighter: float = 0.0) -> Any:
    """Twelve messages of one record each; other splits may be brighter than the clients' records."""
    truth = SimpleNamespace(
        inputs=images(16, 3 * seed),
        targets=torch.arange(16) % 2,
        pool_inputs=images(left_over, 3 * seed + 1),
        pool_targets=torch.arange(left_over) % 2,
        gallery_inputs=images(60, 3 * seed + 2, brighter),
        gallery_targets=torch.arange(60) % 2,
    )
    knowledge = SimpleNamespace(auxiliary_inputs=images(0, 0), auxiliary_targets=torch.zeros(0, dtype=torch.long))
    setup = SimpleNamespace(manifest=SimpleNamespace(data=SimpleNamespace(name="photos", description={})))
    return LineUps(setup, truth, knowledge)  # type: ignore[arg-type]


def sent(line_ups: Any, back: int, seed: int) -> list[tuple[list[int], Any]]:
    """So many of the messages are rebuilt but for some noise; the others are pictures of nothing, darker than any."""
    made = []
    for row in range(MESSAGES):
        picture = images(1, 10_000 + MESSAGES * seed + row) * 0.8
        if row < back:
            picture = line_ups.truth.inputs[[row]] + 0.1 * (picture - 0.5)
        made.append(([row], SimpleNamespace(images=picture)))
    return made


@pytest.mark.parametrize(("left_over", "back"), [(0, 2), (0, 4), (40, 2)])
def test_a_few_messages_that_came_back_are_found(left_over: int, back: int) -> None:
    line_ups = world(1, left_over)
    answer = of_margins(sent(line_ups, back, 1), line_ups, checks=2, seed=0)
    assert answer is not None and answer.p_value <= 0.025 and answer.least <= 1e-3


@pytest.mark.parametrize(("left_over", "brighter"), [(0, 0.0), (0, 0.5), (40, 0.5)])
def test_pictures_of_nothing_are_no_leak_though_other_splits_are_of_another_kind(
    left_over: int, brighter: float
) -> None:
    """All twelve dark pictures are nearer to the clients' records than to the test split's, which is brighter."""
    alarms, worlds = 0, 60
    for seed in range(worlds):
        line_ups = world(seed, left_over, brighter)
        answer = of_margins(sent(line_ups, 0, seed), line_ups, checks=2, seed=seed)
        alarms += answer is not None and answer.p_value <= 0.05
    assert alarms <= 0.05 * worlds + 3 * (0.05 * 0.95 * worlds) ** 0.5


def test_messages_over_the_same_records_are_asked_together() -> None:
    """Nothing can be swapped among them; what was dealt beside them tells."""
    line_ups = world(2, 40)
    rows = list(range(6))
    back = [(rows, SimpleNamespace(images=line_ups.truth.inputs[rows] * 0.9)) for _ in range(5)]
    answer = of_margins(back, line_ups, checks=2, seed=0)
    assert answer is not None and answer.p_value <= 0.001
