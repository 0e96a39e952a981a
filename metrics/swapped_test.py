"""Would the pictures suit other records as well? Records change places with each other, and nothing else counts.

Other images in a line-up may be easier or harder to tell from the originals than chance says, as those of a test split
can be. Here the originals stand in each other's place, so whatever they have in common helps no picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import factorial, prod

import torch
from torch import Tensor

from .pool_test import AT_ONCE, ROUNDING, Rebuilt, p_value_of_draws
from .reidentification import unit_rows


def swapped_p_value(blocks: Sequence[Tensor], seed: int = 0, swaps: int = 9_999) -> float:
    """The p-value of the hypothesis that each record might as well have been any other one of its block.

    Summed is what the pictures of a record's messages count for it. If the pictures know nothing of the records, which
    of a block's records were in which messages is as open as before: every way to change their places is equally
    likely, in each block whatever happens in the others, and p is the share of those with as large a sum. That is exact
    however the records and the pictures resemble each other. All ways are gone through where they are no more than
    `swaps`.

    Args:
        blocks: (n, n) each, in row r and column s what the pictures of record r's messages count for record s.
        seed: of the swaps. swaps: how many; the least value is 1/(swaps + 1).

    >>> swapped_p_value([torch.eye(20)]) < .001, swapped_p_value([torch.ones(20, 20)]), swapped_p_value([torch.eye(3)])
    (True, 1.0, 0.16666666666666666)
    """
    reached = sum(float(block.double().diagonal().sum()) for block in blocks) - 1e-9
    if prod(factorial(len(block)) for block in blocks) <= swaps:
        every = torch.zeros(1, dtype=torch.float64)
        for block in blocks:
            n = len(block)
            ways = torch.tensor(list(permutations(range(n)))).view(-1, n)
            sums = block.double()[torch.arange(n), ways].sum(dim=1)
            every = (every[:, None] + sums).flatten()
        return float((every >= reached).double().mean())
    rng, doubled = torch.Generator().manual_seed(seed), [block.double() for block in blocks]

    def swapped(count: int) -> Tensor:
        sums = torch.zeros(count, dtype=torch.float64)
        for block in doubled:
            ways = torch.rand(count, len(block), generator=rng).argsort(dim=1)
            sums += block[torch.arange(len(block)), ways].sum(dim=1)
        return sums

    return p_value_of_draws(swapped, reached, swaps, max(1, AT_ONCE // max(map(len, blocks))))


def least_swapped(kinds: Sequence[Tensor], sent: Sequence[Tensor], swaps: int = 9_999) -> float:
    """The least that `swapped_p_value` can be relied on to come to, where all swaps do worse but those that change
    nothing: of copies of a record, and of records that were in the same messages.

    Args:
        kinds: (n,) of each block, the same for copies of a record (`twins.kinds`).
        sent: (n,) of each block, the same for records of the same messages. swaps: as there.

    >>> every = torch.arange(3)
    >>> least_swapped([every], [every]), least_swapped([torch.tensor([0, 0, 1])], [every])
    (0.16666666666666666, 0.3333333333333333)
    >>> least_swapped([every], [torch.zeros(3)]), least_swapped([torch.arange(20)], [torch.arange(20)])
    (1.0, 0.0001)
    """

    def ways(classes: Tensor) -> int:
        return prod(factorial(int(count)) for count in classes.unique(dim=0, return_counts=True)[1])

    share = 1.0
    for own, messages in zip(kinds, sent):
        both = torch.stack([own.double(), messages.double()], dim=1)
        # Whole numbers up to here: the factorial of 171 records is beyond a float, the quotient is at most 1.
        share *= min(1.0, ways(own) * ways(messages) / (ways(both) * factorial(len(own))))
    every = prod(factorial(len(own)) for own in kinds) <= swaps
    return share if every else max(share, 1 / (swaps + 1))


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
