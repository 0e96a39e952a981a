"""Restarts that fall behind are dropped on the way: successive halving (Jamieson, Talwalkar 2016, arXiv:1502.07943)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .optimise import Descent, Objective, Tick


def rungs(restarts: int, iterations: int) -> list[tuple[int, int]]:
    """When restarts are dropped, and how many of each target are left then: half of them, the last time at 7/16 of the
    iterations, when the first fall of the step size (`optimise.milestones`) has told them apart, before at 1/4, 1/8, …

    Args:
        restarts: of each target, at least 1. iterations: of the one that is left.

    >>> rungs(8, 320), rungs(3, 320), rungs(1, 320)
    ([(40, 4), (80, 2), (140, 1)], [(80, 2), (140, 1)], [])
    """
    left = []
    while restarts > 1:
        restarts = -(-restarts // 2)
        left.append(restarts)
    places = [iterations * 7 // 16, *(iterations // 2 ** (k + 2) for k in range(len(left)))]
    return [(places[len(left) - 1 - k], kept) for k, kept in enumerate(left)]


def iterations_in_all(restarts: int, iterations: int) -> int:
    """Iterations that all restarts of a target take together: of 8 less than two and a half times those of one.

    >>> iterations_in_all(8, 320)
    780
    """
    total, before = 0, 0
    for at, kept in [*rungs(restarts, iterations), (iterations, 0)]:
        total += restarts * (at - before)
        before, restarts = at, kept
    return total


def halved(
    objective_of: Callable[[int], Objective],
    start: Tensor,
    targets: int,
    iterations: int,
    lr: float,
    signed: bool = True,
    tick: Tick | None = None,
) -> tuple[Tensor, Tensor]:
    """As `optimise.adam`, all restarts of each target; at each of `rungs` those with the lowest values met go on. What
    the others had stands.

    Args:
        objective_of: the objective of so many restarts of each target.
        start: (T, n, c, h, w), the restarts of one target after the other. targets: how many, which divides T.
        iterations, lr, signed, tick: as of `adam`.
    """
    restarts = len(start) // targets
    descent, number = Descent.begin(start), torch.arange(len(start), device=start.device)
    best, lowest = descent.best.clone(), descent.lowest.clone()
    for at, kept in [*rungs(restarts, iterations), (iterations, 0)]:
        descent.go(objective_of(restarts), at, iterations, lr, signed, tick)
        best[number], lowest[number] = descent.best, descent.lowest
        if kept:
            order = descent.lowest.view(targets, restarts).argsort(dim=1, stable=True)[:, :kept].sort(1).values
            order = (order + restarts * torch.arange(targets, device=start.device)[:, None]).flatten()
            descent, number, restarts = descent.those(order), number[order], kept
    return best, lowest
