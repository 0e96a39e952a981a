"""Successive halving: which restarts go on, what it costs, and what comes out."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.inversion.match.halving import halved, iterations_in_all, rungs
from dpfl_audit.attacks.inversion.match.optimise import Objective, adam
from torch import Tensor

GOALS = torch.rand(2, 1, 1, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
START = torch.rand(16, 1, 1, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def bowls(seen: list[int]) -> object:
    """Of each target its own bowl; how many candidates were evaluated is added to `seen`."""

    def of(restarts: int) -> Objective:
        goal = GOALS.repeat_interleave(restarts, 0)

        def value(x: Tensor) -> tuple[Tensor, Tensor]:
            seen.append(len(x))
            return (x - goal).square().flatten(1).sum(1) / 2, x - goal

        return value

    return of


@pytest.mark.parametrize("restarts", (1, 2, 3, 8, 16))
def test_what_it_costs(restarts: int) -> None:
    for at, kept in rungs(restarts, 640):
        assert 0 < at <= 280 and 1 <= kept < restarts
    assert rungs(restarts, 640) == sorted(rungs(restarts, 640))
    assert iterations_in_all(restarts, 640) <= 640 * (1 + torch.tensor(float(restarts)).log2().ceil().item() / 2)


def test_only_the_survivors_are_evaluated_and_each_target_keeps_its_own() -> None:
    seen: list[int] = []
    best, lowest = halved(bowls(seen), START, 2, 32, 0.1)
    assert seen == [16] * 4 + [8] * 4 + [4] * 6 + [2] * 19
    whole, values = adam(bowls([])(8), START, 32, 0.1)
    for k in range(2):
        kept = int(lowest[8 * k : 8 * k + 8].argmin()) + 8 * k
        assert torch.equal(best[kept], whole[kept]) and lowest[kept] == values[kept]  # its own way, as without company
        assert (lowest[8 * k : 8 * k + 8] >= values[8 * k : 8 * k + 8]).all()


def test_one_restart_is_adam() -> None:
    for got, wanted in zip(halved(bowls([]), START[:2], 2, 9, 0.1), adam(bowls([])(1), START[:2], 9, 0.1)):
        assert torch.equal(got, wanted)


def test_a_restart_that_is_never_finite_is_dropped_first() -> None:
    def of(restarts: int) -> Objective:
        plain = bowls([])(restarts)

        def value(x: Tensor) -> tuple[Tensor, Tensor]:
            values, slope = plain(x)
            values[0] = torch.nan if restarts == 8 else values[0]
            return values, slope

        return value

    best, lowest = halved(of, START, 2, 32, 0.1)
    assert lowest[0] == torch.inf and torch.equal(best[0], START[0]) and lowest[1:8].min() < 1e-2
