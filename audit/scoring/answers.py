"""What all messages that answer one question say together: of line-ups in their pools, of those in other images, and of
how close the pictures are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...attacks.base import Reconstruction
from ...metrics.closer_test import closeness, closer_together_p_value
from ...metrics.intervals import of_the_best_or_half, share_by_luck, share_p_value
from ...metrics.pool_test import PERMUTATIONS, Rebuilt, least_p_value, pool_p_value
from ...metrics.swapped_test import least_swapped, swapped_p_value
from ..results.checks import SIGNIFICANCE
from ..results.format import AttackResult
from ..setup.auditor import Truth
from .line_ups import LineUps

MOST = 200_000  # relabellings
RUNS = 10  # so many runs may be judged together, in one report, before a p-value can no longer pass


def enough_relabellings(messages: int, checks: int) -> int:
    """With so many the least p-value of one message passes beside so many checks, thrice (`of_the_best_or_half`), and
    in so many `RUNS`; up to `MOST`, which take some seconds a message that leaks.

    >>> enough_relabellings(20, checks=4)
    48000
    """
    return min(MOST, max(PERMUTATIONS, round(3 * messages * checks * RUNS / SIGNIFICANCE)))


Sent = tuple[Sequence[int], Reconstruction]  # the rows of a message's records, and what was made of it


@dataclass(frozen=True)
class Answer:
    """A question's p-value, and what it would be were success perfect."""

    p_value: float
    least: float

    def and_of(self, other: Answer) -> Answer:
        """What both say."""
        return Answer(max(self.p_value, other.p_value), max(self.least, other.least))

    def or_of(self, alone: Sequence[Answer]) -> Answer:
        """This one, of all messages together, or that of the best of them, or of half of them."""
        known = ([one.p_value for one in alone], self.p_value), ([one.least for one in alone], self.least)
        return Answer(*(of_the_best_or_half(values, together) for values, together in known))


def of_shares(
    entries: Sequence[AttackResult],
    sent: Sequence[Sent],
    line_ups: LineUps | None,
    checks: int,
    seed: int,
) -> Answer:
    """Of all hits of line-ups in images of other splits. These may be a bit easier than chance says, which many
    messages would add up, so they must beat it twice, and what was made of other messages; where those are too few to
    tell, controls that have more than chance. Of messages that share records the first counts.

    Args:
        entries, sent: of the same messages. line_ups: None without the truth.
        checks: among how many it is judged. seed: of swaps.
    """
    places = _apart(sent)
    apart = [sent[k] for k in places]
    controls: Counter[str] = Counter()
    hits, n, chance = 0, sum(len(rows) for rows, _ in apart), 0.0
    for entry, (rows, _) in ((entries[k], sent[k]) for k in places):
        hits += round((entry.value("reidentified") or 0.0) * len(rows))
        chance += (entry.value("reidentified_chance") or 0.0) * len(rows)
        for name, shares in entry.controls.items():
            controls[name] += round((shares.get("reidentified") or 0.0) * len(rows))
    together = Answer(1.0, 1.0)
    if n:
        known = any(entry.settings.get("labels") == "known" for entry in entries)
        swapped = None if line_ups is None else _of_swaps(line_ups, apart, known, checks, seed)
        others = list(controls.values()) if swapped is None else []
        luck = share_by_luck(min(1.0, chance / n), others, n, times=2)
        together = Answer(share_p_value(hits, n, luck), share_p_value(n, n, luck))
        together = together if swapped is None else together.and_of(swapped)
    alone = [(e.p_values.get("reidentified", 1.0), e.least_p_values.get("reidentified", 1.0)) for e in entries]
    return together.or_of([Answer(*known) for known in alone])


def _of_swaps(line_ups: LineUps, sent: Sequence[Sent], known: bool, checks: int, seed: int) -> Answer | None:
    """Whether it matters which pictures are of which message; None where too few messages are alike to tell."""
    swaps = enough_relabellings(1, checks)
    hits, alike = line_ups.swapped(sent, known, seed)
    least = least_swapped(alike, swaps)
    if 3 * least > SIGNIFICANCE / checks:  # thrice, as of `of_the_best_or_half`
        return None
    return Answer(swapped_p_value(hits, alike, seed, swaps), least)


def of_margins(sent: Sequence[Sent], line_ups: LineUps, checks: int, seed: int) -> Answer | None:
    """Of how close all pictures are to the records of their message: closer than to others that were dealt as these;
    where those are of other splits, which may be a bit further off, also closer than pictures made of other messages,
    if enough messages share no record. None where nothing else was dealt.
    """
    rows = sorted({row for own, _ in sent for row in own})
    place, draws = {row: i for i, row in enumerate(rows)}, enough_relabellings(1, checks)
    messages = [Rebuilt([place[row] for row in own], made.images) for own, made in sent]
    dealt = line_ups.truth.inputs[rows], line_ups.truth.targets[rows]
    others = line_ups.of_the_lot(rows)
    found = closer_together_p_value(*dealt, messages, *others, seed, draws)
    if found is None:
        return None
    answer, apart = Answer(found, least_p_value(*dealt, *others, draws)), [sent[k] for k in _apart(sent)]
    alike = [(len(own), len(made.images)) for own, made in apart]
    least = least_swapped(alike, draws)
    if line_ups.left_over or 3 * least > SIGNIFICANCE / checks:
        return answer
    originals = line_ups.truth.inputs[[row for own, _ in apart for row in own]]
    of_all = closeness(torch.cat([made.images for _, made in apart]), originals)
    best = torch.stack([part.amax(dim=0) for part in of_all.split([images for _, images in alike])])
    close = torch.stack([part.sum(dim=1) for part in best.split([records for records, _ in alike], dim=1)])
    return answer.and_of(Answer(swapped_p_value(close, alike, seed, draws), least))


def _apart(sent: Sequence[Sent]) -> list[int]:
    """The places of messages that share no record with one before them."""
    seen, apart = set[int](), []
    for place, (own, _) in enumerate(sent):
        if own and seen.isdisjoint(own):
            seen.update(own)
            apart.append(place)
    return apart


def of_pools(truth: Truth | None, sent: Sequence[tuple[Sequence[int], Tensor]], checks: int, seed: int) -> Answer:
    """Of messages, each the rows of its records and what was made of it, by as many relabellings as it takes to pass
    beside so many checks.

    The messages alone are asked only where all together do not say as much as they could: without them the p-value is
    larger or the same.
    """
    assert truth is not None
    k = len(sent)
    if k == 1:
        return _of_pool(truth, sent, enough_relabellings(1, checks), seed)
    together, draws = _of_pool(truth, sent, enough_relabellings(1, checks), seed), enough_relabellings(k, checks)
    if together.p_value <= together.least:
        return together.or_of([Answer(1.0, 1.0)] * k)
    return together.or_of([_of_pool(truth, [one], draws, seed) for one in sent])


def _of_pool(truth: Truth, sent: Sequence[tuple[Sequence[int], Tensor]], draws: int, seed: int) -> Answer:
    every = {row: i for i, row in enumerate(sorted({row for rows, _ in sent for row in rows}))}
    originals, labels = truth.inputs[list(every)], truth.targets[list(every)]
    messages = [Rebuilt([every[row] for row in rows], images) for rows, images in sent]
    found = pool_p_value(originals, labels, messages, truth.pool_inputs, truth.pool_targets, seed, draws)
    least = least_p_value(originals, labels, truth.pool_inputs, truth.pool_targets, draws)
    return Answer(1.0 if found is None else found, least)
