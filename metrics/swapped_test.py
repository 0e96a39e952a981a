"""Would the pictures suit other records as well? Records change places with each other, and nothing else counts.

Other images in a line-up may be easier or harder to tell from the originals than chance says, as those of a test split
can be. Here the originals stand in each other's place, so whatever they have in common helps no picture.
"""

from __future__ import annotations

from math import factorial, prod

import torch
from torch import Tensor

from .pool_test import ROUNDING, Rebuilt
from .reidentification import unit_rows


def swapped_p_value(counted: Tensor, seed: int = 0, swaps: int = 9_999) -> float:
    """The p-value of the hypothesis that each record might as well have been any other one of the attacked.

    Summed is what the pictures of a record's messages count for it. If the pictures know nothing of the records, which
    of them were in which messages is as open as before: every way to change their places is equally likely, and p is
    the share of those with as large a sum. That is exact however often a record was sent, and however the records and
    the pictures resemble each other.

    Args:
        counted: (n, n), in row r and column s what the pictures of record r's messages count for record s.
        seed: of the swaps. swaps: how many; the least value is 1/(swaps + 1).

    >>> swapped_p_value(torch.eye(20)) < .001, swapped_p_value(torch.ones(20, 20))
    (True, 1.0)
    """
    rng, n = torch.Generator().manual_seed(seed), len(counted)
    counted = counted.double()
    drawn = torch.rand(swaps, n, generator=rng).argsort(dim=1)
    sums = counted[torch.arange(n), drawn].sum(dim=1)
    return (1 + int((sums >= counted.diagonal().sum() - 1e-9).sum())) / (1 + swaps)


def least_swapped(kinds: Tensor, swaps: int = 9_999) -> float:
    """The least that `swapped_p_value` can be relied on to come to, where all swaps but those of copies do worse.

    kinds: (n,), the same for copies of a record (`twins.kinds`).

    >>> least_swapped(torch.arange(3)), least_swapped(torch.tensor([0, 0, 1])), least_swapped(torch.arange(20))
    (0.16666666666666666, 0.3333333333333333, 0.0001)
    """
    ways = prod(factorial(int(count)) for count in kinds.unique(return_counts=True)[1])
    return max(ways / factorial(len(kinds)), 1 / (swaps + 1))


def hits_of_records(
    originals: Tensor, labels: Tensor, messages: list[Rebuilt], others: Tensor, other_labels: Tensor
) -> Tensor:
    """For `swapped_p_value`: in how many of record r's messages some picture resembles record s more than any other
    image of its label, (n, n).

    Args:
        originals, labels: (n, c, h, w) and (n,). messages: what was made of each, by places among the originals.
        others, other_labels: (k, c, h, w) and (k,), no copies of the originals.
    """
    counted, records, beside = torch.zeros(len(originals), len(originals)), unit_rows(originals), unit_rows(others)
    for message in messages:
        rows = unit_rows(message.images)
        like, rivals = rows @ records.T, rows @ beside.T
        nearest = torch.full_like(like, -torch.inf)
        for label in labels.unique():
            if (own := other_labels == label).any():
                nearest[:, labels == label] = rivals[:, own].amax(dim=1, keepdim=True)
        hit = ((like > nearest + ROUNDING) & rows.any(dim=1, keepdim=True)).any(dim=0)
        counted[list(message.records)] += hit.float()
    return counted
