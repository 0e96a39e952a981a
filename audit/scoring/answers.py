"""What all messages that answer one question say together: of line-ups in their pools, of those in other images, and of
how close the pictures are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...attacks.base import Reconstruction
from ...metrics.closer_test import OF_OTHER_SPLITS, OTHERS, closeness_by_record, closer_together_p_value
from ...metrics.intervals import of_the_best_or_half
from ...metrics.pool_test import PERMUTATIONS, Rebuilt, least_p_value, pool_p_value
from ...metrics.swapped_test import hits_of_records, least_swapped, swapped_p_value
from ...metrics.twins import kinds
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
    """Of all hits of line-ups in images of other splits, and of the best messages alone.

    Args:
        entries, sent: of the same messages. line_ups: None without the truth.
        checks: among how many it is judged. seed: of deals and swaps.
    """
    alone = [(e.p_values.get("reidentified", 1.0), e.least_p_values.get("reidentified", 1.0)) for e in entries]
    together = None
    if line_ups is not None:
        dealt = _Dealt.of(sent, line_ups.truth, line_ups.others)
        draws = enough_relabellings(1, checks)
        p_value = pool_p_value(
            dealt.originals, dealt.labels, dealt.messages, dealt.others, dealt.of_others, seed, draws
        )
        rivals = ~torch.isin(dealt.kinds_of_others, dealt.kinds)
        beside = dealt.others[rivals], dealt.of_others[rivals]
        together = dealt.answer(p_value, draws)
        if together is not None:
            hits = hits_of_records(dealt.originals, dealt.labels, dealt.messages, *beside)
            together = _and_swapped(together, hits, dealt, checks, seed)
    return (together or Answer(1.0, 1.0)).or_of([Answer(*known) for known in alone])


def of_margins(sent: Sequence[Sent], line_ups: LineUps, checks: int, seed: int) -> Answer | None:
    """Of how close all pictures are to the records of their message, beside others that were dealt as these. None where
    nothing else was.
    """
    dealt, draws = _Dealt.of(sent, line_ups.truth, line_ups.of_the_lot), enough_relabellings(1, checks)
    slack = 0.0 if line_ups.left_over or line_ups.splits_of_ones_own else OF_OTHER_SPLITS
    p_value = closer_together_p_value(
        dealt.originals, dealt.labels, dealt.messages, dealt.others, dealt.of_others, seed, draws, slack
    )
    answer = dealt.answer(p_value, draws)
    if answer is None or line_ups.left_over:
        return answer
    return _and_swapped(
        answer, closeness_by_record(dealt.messages, len(dealt.originals), dealt.originals), dealt, checks, seed
    )


@dataclass(frozen=True, eq=False)
class _Dealt:
    """All records of some messages, the messages by places among these, and what else was dealt."""

    originals: Tensor
    labels: Tensor
    messages: list[Rebuilt]
    others: Tensor
    of_others: Tensor

    @classmethod
    def of(cls, sent: Sequence[Sent], truth: Truth, others: Callable[[Sequence[int]], tuple[Tensor, Tensor]]) -> _Dealt:
        rows = sorted({row for own, _ in sent for row in own})
        place = {row: i for i, row in enumerate(rows)}
        messages = [Rebuilt([place[row] for row in own], made.images) for own, made in sent]
        images, labels = others(rows)
        kept = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:OTHERS]
        return cls(truth.inputs[rows], truth.targets[rows], messages, images[kept], labels[kept])

    @cached_property
    def _kinds(self) -> Tensor:
        return kinds(torch.cat([self.originals, self.others]), torch.cat([self.labels, self.of_others]))

    @property
    def kinds(self) -> Tensor:
        return self._kinds[: len(self.originals)]

    @property
    def kinds_of_others(self) -> Tensor:
        return self._kinds[len(self.originals) :]

    def answer(self, p_value: float | None, draws: int) -> Answer | None:
        if p_value is None:
            return None
        return Answer(p_value, least_p_value(self.originals, self.labels, self.others, self.of_others, draws))


def _and_swapped(answer: Answer, counted: Tensor, dealt: _Dealt, checks: int, seed: int) -> Answer:
    """Other splits may be a bit easier to tell apart than chance says, which many messages would add up. So the records
    must also be told from each other, where there are enough of them for that.
    """
    swaps = enough_relabellings(1, checks)
    least = least_swapped(dealt.kinds, swaps)
    if 3 * least > SIGNIFICANCE / checks:  # thrice, as of `of_the_best_or_half`
        return answer
    return answer.and_of(Answer(swapped_p_value(counted, seed, swaps), least))


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
