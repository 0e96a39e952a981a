"""Do rebuilt images find their originals among images that might as well have been in their place? An exact test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from .reidentification import ROUNDING, unit_rows

PERMUTATIONS = 9_999
ENOUGH = 20  # relabellings that do as well: then it may be luck, and how much so is known to a fifth
WORK = 2**31  # comparisons of likenesses that a test may cost, some ten seconds; of more messages the first count
AT_ONCE = 2**24  # likenesses held in memory


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What an attack made of one message. records: which of the originals the message is of. images: (m, c, h, w)."""

    records: Sequence[int]
    images: Tensor


def pool_p_value(
    originals: Tensor,
    labels: Tensor,
    messages: Sequence[Rebuilt],
    pool: Tensor,
    pool_labels: Tensor,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> float | None:
    """The p-value of the hypothesis that no message told anything of its records but their labels.

    A record of a message is a hit where an image that was made of this message resembles it more than any image of its
    label in the pool (`picked_from_pool`); counted are the hits of all messages. Pool and originals of one label were
    dealt by the same lot. If the images were made without the records, which of them are originals is as open as
    before: every relabelling within the labels is equally likely, and p is the share of those with as many hits. That
    is exact, however alike the images and the originals are, and however often a record was sent. Where luck explains
    it, drawing ends early (Besag and Clifford 1991, doi:10.1093/biomet/78.2.301); the least value is 1/(permutations +
    1).

    Args:
        originals, labels: (n, c, h, w) and (n,), each record once. messages: what was made of each.
        pool, pool_labels: (k, c, h, w) and (k,), images that nobody used.
        seed: of the relabellings. permutations: at most so many.

    Returns:
        None where no original has a pool.
    """
    messages = _affordable(messages, len(pool), permutations)
    used = sorted({record for message in messages for record in message.records})
    originals, labels = originals[used], labels[used]
    place = {record: i for i, record in enumerate(used)}
    rows = torch.cat([unit_rows(message.images) for message in messages])
    usable = rows.any(dim=1)
    of_message = torch.cat([torch.full((len(m.images),), i) for i, m in enumerate(messages)])
    sent = torch.zeros(len(messages), len(originals), dtype=torch.bool)
    for i, message in enumerate(messages):
        sent[i, [place[record] for record in message.records]] = True
    groups = []
    for label in labels.unique():
        own, others = labels == label, pool_labels == label
        if others.any():
            likeness = rows @ unit_rows(torch.cat([originals[own], pool[others]])).T
            likeness[~usable] = -torch.inf
            groups.append(_Label(likeness, sent[:, own], of_message))
    if not groups:
        return None
    work = sum(group.likeness.numel() for group in groups)
    rng = torch.Generator().manual_seed(seed)
    reached = sum(int(group.hits(torch.arange(group.size)[None])) for group in groups)
    as_good = drawn = 0
    for count in _batches(permutations, max(1, AT_ONCE // work)):
        orders = (torch.rand(count, group.size, generator=rng).argsort(dim=1) for group in groups)
        hits = torch.stack([group.hits(order) for group, order in zip(groups, orders)]).sum(dim=0)
        good = as_good + (hits >= reached).cumsum(dim=0)
        if good[-1] >= ENOUGH:
            return ENOUGH / (drawn + 1 + int((good >= ENOUGH).int().argmax()))
        as_good, drawn = int(good[-1]), drawn + count
    return (1 + as_good) / (1 + drawn)


def _affordable(messages: Sequence[Rebuilt], pool: int, permutations: int) -> Sequence[Rebuilt]:
    """The first messages, whatever came of them, as many as fit the work; one at least."""
    images, records = 0, set[int]()
    for i, message in enumerate(messages):
        images, records = images + len(message.images), records | set(message.records)
        if i and images * (len(records) + pool) * permutations > WORK:
            return messages[:i]
    return messages


def least_p_value(labels: Tensor, pool_labels: Tensor, permutations: int = PERMUTATIONS) -> float:
    """The least that `pool_p_value` can come to for one image made of each record: where all are found, at most one
    relabelling of Π_y C(n_y + D_y, n_y) does as well.

    >>> ten = torch.zeros(10)
    >>> least_p_value(ten[:1], ten), least_p_value(ten[:2], ten), least_p_value(ten, ten)
    (0.09090909090909091, 0.015151515151515152, 0.0001)
    """
    least = 1.0
    for label in labels.unique():
        n, others = int((labels == label).sum()), int((pool_labels == label).sum())
        least /= comb(n + others, n)
    return max(least, 1 / (permutations + 1))


@dataclass(frozen=True, eq=False)
class _Label:
    """The images of one label. likeness: (rebuilt, originals + pool). sent: (messages, originals). of_message: of each
    rebuilt image.
    """

    likeness: Tensor
    sent: Tensor
    of_message: Tensor

    @property
    def size(self) -> int:
        return self.likeness.shape[1]

    def hits(self, orders: Tensor) -> Tensor:
        """How many (b,) where the images stand in the places `orders` (b, originals + pool) say."""
        placed = self.likeness[:, orders]  # (rebuilt, b, places)
        originals = self.sent.shape[1]
        nearer = placed[..., :originals] > placed[..., originals:].amax(dim=2, keepdim=True) + ROUNDING
        found = torch.zeros(len(self.sent), *nearer.shape[1:], dtype=torch.int32)
        found.index_add_(0, self.of_message, nearer.int())
        return ((found > 0) & self.sent[:, None]).sum(dim=(0, 2))


def _batches(total: int, most: int) -> Iterator[int]:
    """Small ones first, as most tests end early."""
    count = min(100, most)
    while total > 0:
        yield min(count, total)
        total, count = total - count, min(4 * count, most)
