"""Does what was made of a message resemble that message's images more than what was made of another one does?

A line-up's other images may be easier or harder to tell from the originals than chance says, as those of a test split
can be. Pictures of other messages stand before the same line-ups, so they share that, and any picture that knows
nothing: grey, a mean or noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, prod

import torch
from torch import Tensor


def swapped_p_value(counted: Tensor, alike: Sequence[object], seed: int = 0, swaps: int = 9_999) -> float:
    """The p-value of the hypothesis that each message's pictures might as well have been made of another message.

    Summed is what each message's own pictures count before it. If the pictures know nothing, which of them were made of
    which message is as open as before: every way to swap them among messages that are alike is equally likely, and p is
    the share of those with as large a sum.

    Args:
        counted: (k, k), of message i and the pictures made of message j: how many images of i they pick out of its
            line-up, or how close they are.
        alike: (k,), what messages must have in common to be swapped, as the number of their images.
        seed: of the swaps. swaps: how many; the least value is 1/(swaps + 1).

    >>> swapped_p_value(torch.eye(20), [1] * 20) < .001, swapped_p_value(torch.ones(20, 20), [1] * 20)
    (True, 1.0)
    """
    rng = torch.Generator().manual_seed(seed)
    k, drawn = len(counted), torch.arange(len(counted)).repeat(swaps, 1)
    for group in _groups(alike):
        members = torch.tensor(group)
        drawn[:, members] = members[torch.rand(swaps, len(group), generator=rng).argsort(dim=1)]
    sums = counted.double()[torch.arange(k), drawn].sum(dim=1)
    as_good = int((sums >= counted.double().diagonal().sum() - 1e-9).sum())
    return (1 + as_good) / (1 + swaps)


def least_swapped(alike: Sequence[object], swaps: int = 9_999) -> float:
    """The least that `swapped_p_value` can be relied on to come to, where all swaps but none do worse.

    >>> least_swapped([1, 1, 1]), least_swapped([1, 1, 2, 2, 2]), least_swapped([1] * 20)
    (0.16666666666666666, 0.08333333333333333, 0.0001)
    """
    return max(1 / prod(factorial(len(group)) for group in _groups(alike)), 1 / (swaps + 1))


def _groups(alike: Sequence[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for place, kind in enumerate(alike):
        groups.setdefault(kind, []).append(place)
    return list(groups.values())
