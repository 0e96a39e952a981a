"""Which of a user's canaries moves what is sent most, on draws that count for nothing else.

Both worlds get the same seeds, so that noise which follows from the seed alone cancels in their difference (common
random numbers), and a direction in a million dimensions is known from a few pairs. Where it does not cancel, the
product of two halves' mean differences still is an unbiased estimate of ‖v₁ − v₀‖²: what the noise adds to one half is
independent of what it adds to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch

from .calls import Calls

SEARCHED = 20  # pairs of draws for each candidate


@dataclass(frozen=True)
class SearchedCanary:
    """A candidate. shift: about how far it moves the mean of what is sent, in standard deviations of the noise."""

    name: str
    shift: float


def named_candidates(candidates: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Candidates by name; those of a sequence are called by their places. Raises ValueError where there is
    none."""
    if isinstance(candidates, str) or not isinstance(candidates, Mapping | Sequence):
        raise ValueError(f"candidates are a {type(candidates).__name__}; expected a list or a dict of them")
    if isinstance(candidates, Mapping):
        named = candidates
    else:
        named = {f"candidate {i}": c for i, c in enumerate(candidates)}
    if not named:
        raise ValueError("candidates are empty; give at least one record to plant")
    if any(candidate is None for candidate in named.values()):
        raise ValueError("a candidate is None, which stands for the world without a canary")
    return dict(named)


def measured_shift(calls: Calls, pairs: int, seed: int, *purpose: object) -> float:
    """About ‖v₁ − v₀‖ in standard deviations of world 0's noise, from `pairs` ≥ 4 seeds that both worlds get."""
    differences, without = [], []
    for i in range(pairs):
        both = calls.seed(seed, "search", *purpose, i)
        absent, present = calls(0, both), calls(1, both)
        differences.append(torch.nan_to_num(present - absent, nan=0.0, posinf=0.0, neginf=0.0))
        without.append(torch.nan_to_num(absent, nan=0.0, posinf=0.0, neginf=0.0))
    change, noise = torch.stack(differences), torch.stack(without)
    halves = change[: pairs // 2].mean(0), change[pairs // 2 :].mean(0)
    variance = float(noise.var(0).mean())  # a number's, the mean over all of them
    moved = max(0.0, float(halves[0] @ halves[1]))
    if variance > 0:
        return sqrt(moved / variance)
    if moved > 0:
        return float("inf")
    return 0.0
