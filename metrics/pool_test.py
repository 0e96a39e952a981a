"""Do rebuilt images find their originals among images that might as well have been in their place? An exact test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, prod

import torch
from torch import Tensor

from .reidentification import ROUNDING, unit_rows
from .twins import kinds

PERMUTATIONS = 9_999
ENOUGH = 20  # relabellings that do as well: then it may be luck, and how much so is known to a fifth
WORK = 2**31  # images looked up that a test may cost, some twenty seconds; of more messages some are drawn
AT_ONCE = 2**22  # of them at once
_RIVAL, _COPY = -1, -2  # roles of an image of the pool: one that is to be beaten, and the copy of a record


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
    label in the pool that is no record's copy (`picked_from_pool`); counted are the hits of all messages. Pool and
    originals of one label were dealt by the same lot. If the images were made without the records, which of them are
    originals is as open as before: every relabelling within the labels is equally likely, and p is the share of those
    with as many hits (`p_value_of_draws`). That is exact, however alike the images and the originals are, and however
    often a record was sent.

    Args:
        originals, labels: (n, c, h, w) and (n,), each record once. messages: what was made of each.
        pool, pool_labels: (k, c, h, w) and (k,), images that nobody used.
        seed: of the relabellings. permutations: at most so many.

    Returns:
        None where no original has a pool.
    """
    messages = _affordable(messages, len(labels.unique()), len(pool), permutations, seed)
    used = sorted({record for message in messages for record in message.records})
    originals, labels = originals[used], labels[used]
    place = {record: i for i, record in enumerate(used)}
    rows = torch.cat([unit_rows(message.images) for message in messages])
    of_message = torch.cat([torch.full((len(m.images),), i) for i, m in enumerate(messages)])
    sent = torch.zeros(len(messages), len(originals), dtype=torch.bool)
    for i, message in enumerate(messages):
        sent[i, [place[record] for record in message.records]] = True
    groups = []
    for label in labels.unique():
        own, others = labels == label, pool_labels == label
        could = sent[:, own].any(dim=1)[of_message] & rows.any(dim=1)  # a flat image resembles nothing
        if others.any():
            likeness = rows[could] @ unit_rows(torch.cat([originals[own], pool[others]])).T
            of_kind = kinds(every := torch.cat([originals[own], pool[others]]), torch.zeros(len(every)))
            groups.append(_Label(likeness, sent[:, own], of_message[could], of_kind))
    if not groups:
        return None
    work = max(len(group.likeness) + group.size for group in groups)
    rng = torch.Generator().manual_seed(seed)
    reached = sum(int(group.hits(torch.arange(group.originals)[None])) for group in groups)

    def hits(count: int) -> Tensor:
        return torch.stack([group.hits(by_lot(group.originals, group.size, count, rng)) for group in groups]).sum(dim=0)

    return p_value_of_draws(hits, reached, permutations, max(1, AT_ONCE // work))


def p_value_of_draws(drawn: Callable[[int], Tensor], reached: float, draws: int, at_once: int) -> float:
    """The share of draws that reach as much; exact where what was reached is one more draw. Where luck explains it,
    drawing ends early (Besag and Clifford 1991, doi:10.1093/biomet/78.2.301).

    Args:
        drawn: what so many fresh draws reach, (count,). reached: what is tested. draws: at most so many; the least
            value is 1/(draws + 1). at_once: at most so many in one call.
    """
    as_good = done = 0
    for count in _batches(draws, at_once):
        good = as_good + (drawn(count) >= reached).cumsum(dim=0)
        if good[-1] >= ENOUGH:
            return ENOUGH / (done + 1 + int((good >= ENOUGH).int().argmax()))
        as_good, done = int(good[-1]), done + count
    return (1 + as_good) / (1 + done)


def _affordable(messages: Sequence[Rebuilt], labels: int, pool: int, permutations: int, seed: int) -> Sequence[Rebuilt]:
    """Messages by lot, whatever came of them, as many as fit the work; one at least."""
    order = torch.randperm(len(messages), generator=torch.Generator().manual_seed(seed)).tolist()
    images, records = 0, set[int]()
    for i, message in enumerate(order):
        images, records = images + len(messages[message].images), records | set(messages[message].records)
        if i and (images * labels + len(records) + pool) * permutations > WORK:
            return [messages[k] for k in sorted(order[:i])]
    return messages


def by_lot(places: int, images: int, count: int, rng: torch.Generator) -> Tensor:
    """So many of the images for the places, each once: (count, places)."""
    if places**2 > images:
        return torch.rand(count, images, generator=rng).topk(places, dim=1).indices
    drawn, twice = torch.randint(images, (count, places), generator=rng), torch.arange(count)
    while len(twice := twice[(drawn[twice].sort(dim=1).values.diff(dim=1) == 0).any(dim=1)]):
        drawn[twice] = torch.randint(images, (len(twice), places), generator=rng)
    return drawn


def least_p_value(
    originals: Tensor, labels: Tensor, pool: Tensor, pool_labels: Tensor, permutations: int = PERMUTATIONS
) -> float:
    """The least that `pool_p_value` can come to for one image made of each record: where all are found, at most one
    relabelling of Π_y C(n_y + D_y, n_y) does as well, or as many as there are ways to take copies in their place.

    Args:
        as for `pool_p_value`.

    >>> pictures, labels = torch.arange(20.0).view(20, 1, 1, 1), torch.zeros(20)
    >>> [round(least_p_value(pictures[:n], labels[:n], pictures[n:12], labels[n:12]), 4) for n in (1, 2, 6)]
    [0.0833, 0.0152, 0.0011]
    >>> least_p_value(pictures[:1], labels[:1], pictures[[0, 0, 1]], labels[:3])       # three of four are the same
    0.75
    """
    least = 1.0
    of_all = kinds(torch.cat([originals, pool]), torch.cat([labels, pool_labels]))
    of_own, of_pool = of_all[: len(originals)], of_all[len(originals) :]
    for label in labels.unique():
        own, others = of_own[labels == label], of_pool[pool_labels == label]
        ways = prod(
            comb(int(count) + int((others == kind).sum()), int(count))
            for kind, count in zip(*own.unique(return_counts=True))
        )
        least *= ways / comb(len(own) + len(others), len(own))
    return max(least, 1 / (permutations + 1))


@dataclass(frozen=True, eq=False)
class _Label:
    """The images of one label. likeness: (rebuilt, originals + pool). sent: (messages, originals). of_message:
    (rebuilt,). Rebuilt are those that were made of a message with this label. of_kind: (originals + pool,), the same
    for copies.
    """

    likeness: Tensor
    sent: Tensor
    of_message: Tensor
    of_kind: Tensor

    @property
    def size(self) -> int:
        return self.likeness.shape[1]

    @property
    def originals(self) -> int:
        return self.sent.shape[1]

    @cached_property
    def _copied(self) -> bool:
        return len(self.of_kind.unique()) < len(self.of_kind)

    @cached_property
    def _ranked(self) -> tuple[Tensor, Tensor]:
        """Likenesses (rebuilt, originals + pool), the greatest first, and whose they are."""
        return self.likeness.sort(dim=1, descending=True)

    def hits(self, images: Tensor) -> Tensor:
        """How many (b,) where the originals are `images` (b, originals) and all others the pool.

        Only what is nearer than the nearest of the pool can be a hit, so every rebuilt image is followed down its
        ranking until an image of the pool comes: with a large pool that is the first, mostly.
        """
        count, (messages, originals) = len(images), self.sent.shape
        role = torch.full((self.size, count), _RIVAL, dtype=torch.int32)  # which original an image is
        role.scatter_(0, images.T, torch.arange(originals, dtype=torch.int32)[:, None].expand(-1, count))
        if self._copied:
            taken = torch.zeros(int(self.of_kind.max()) + 1, count, dtype=torch.bool)
            taken.scatter_(0, self.of_kind[images.T], True)
            role[(role == _RIVAL) & taken[self.of_kind]] = _COPY
        nearness, ranked = self._ranked
        best_of_pool = torch.full((len(ranked), count), -torch.inf, dtype=nearness.dtype)
        row, draw = (role[ranked[:, 0]] != _RIVAL).nonzero(as_tuple=True)
        found = []
        for rank in range(self.size):
            original = role[ranked[row, rank], draw]
            ends = original == _RIVAL
            best_of_pool[row[ends], draw[ends]] = nearness[row[ends], rank]
            row, draw, original = row[~ends], draw[~ends], original[~ends]
            if not len(row):
                break
            own = (original >= 0) & self.sent[self.of_message[row], original.clamp(min=0)]
            found.append(torch.stack([row[own], draw[own], original[own], torch.full_like(row[own], rank)]))
        if not found:
            return torch.zeros(count, dtype=torch.long)
        row, draw, original, place = torch.cat(found, dim=1)
        near = nearness[row, place] > best_of_pool[row, draw] + ROUNDING
        hit = ((draw * messages + self.of_message[row]) * originals + original)[near].unique()  # by whichever image
        return torch.bincount(hit // (messages * originals), minlength=count)


def _batches(total: int, most: int) -> Iterator[int]:
    """Small ones first, as most tests end early."""
    count = min(100, most)
    while total > 0:
        yield min(count, total)
        total, count = total - count, min(4 * count, most)
