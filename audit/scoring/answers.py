"""What all messages that answer one question say together: of line-ups in their pools, of those in other images, and of
how close the pictures are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...attacks.base import Reconstruction
from ...metrics.closer_test import OTHERS, closeness_by_message, closer_together_p_value, summed_by_record
from ...metrics.intervals import of_the_best_or_half
from ...metrics.pool_test import PERMUTATIONS, Rebuilt, least_p_value, pool_p_value
from ...metrics.swapped_test import hits_of_records, least_swapped, swapped_p_value
from ...metrics.twins import kinds
from ..results.checks import SIGNIFICANCE
from ..results.format import AttackResult
from ..setup.auditor import Truth
from .line_ups import LineUps

MOST = 200_000  # relabellings
EITHER = 4  # answers that one question may have besides
RUNS = 10  # results side by side in a report, where nobody says otherwise


@dataclass(frozen=True)
class Lots:
    """How often a test deals anew, and by which seed.

    checks: beside how many the test is judged. runs: how many results of as many checks may be judged with it in one
    report; of more, a p-value can no longer pass. made: False where nobody asks for tests; then each says 1, and could
    say nothing else.
    """

    checks: int
    seed: int
    runs: int = RUNS
    made: bool = True

    def enough(self, messages: int = 1) -> int:
        """With so many relabellings the least p-value of one message passes, thrice (`of_the_best_or_half`); up to
        `MOST`, which take some seconds a message that leaks.

        >>> Lots(checks=4, seed=0).enough(20), Lots(checks=4, seed=0, runs=1).enough(20)
        (48000, 9999)
        """
        return min(MOST, max(PERMUTATIONS, round(3 * messages * self.checks * self.runs / SIGNIFICANCE)))


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


UNTESTED = Answer(1.0, 1.0)


def of_shares(entries: Sequence[AttackResult], sent: Sequence[Sent], line_ups: LineUps | None, lots: Lots) -> Answer:
    """Of all hits of line-ups in images of other splits, of whether pictures are closer to their own records than to
    each other's, and of the best messages alone.

    Args:
        entries, sent: of the same messages. line_ups: None without the truth.
        lots: of deals and swaps.
    """
    if not lots.made:
        return UNTESTED
    alone = [(e.p_values.get("reidentified", 1.0), e.least_p_values.get("reidentified", 1.0)) for e in entries]
    together = None
    if line_ups is not None:
        dealt = _Dealt.of(sent, line_ups, line_ups.others)
        draws = lots.enough()
        p_value = pool_p_value(
            dealt.originals, dealt.labels, dealt.messages, dealt.others, dealt.of_others, lots.seed, draws
        )
        rivals = ~torch.isin(dealt.kinds_of_others, dealt.kinds)
        beside = dealt.others[rivals], dealt.of_others[rivals]
        together = dealt.answer(p_value, draws)
        if together is not None and not line_ups.splits_by_lot:
            hits = hits_of_records(dealt.originals, dealt.labels, dealt.messages, *beside)
            together = _and_swapped(together, hits, dealt, lots)
        closer = None
        if line_ups.splits_by_lot:
            closer = _closer(dealt, lots)
        together = any_of([together, closer, *_within_labels(dealt, lots)])
    return (together or UNTESTED).or_of([Answer(*known) for known in alone])


def of_margins(sent: Sequence[Sent], line_ups: LineUps, lots: Lots) -> Answer | None:
    """Of how close all pictures are to the records of their message, beside others that were dealt as these. None where
    nothing else was.

    Others of another split are told from the originals a bit more easily than chance says, so they are given some
    slack; a few pictures that came back among many drown in that, and not where the records stand in each other's
    place.
    """
    dealt = _Dealt.of(sent, line_ups, line_ups.of_the_lot)
    by_lot = line_ups.left_over or line_ups.splits_by_lot
    answer = _closer(dealt, lots, 0.0 if by_lot else line_ups.slack)
    if answer is not None and not by_lot:
        answer = _and_swapped(answer, dealt.closeness, dealt, lots)
    return any_of([answer, *_within_labels(dealt, lots)])


def _closer(dealt: _Dealt, lots: Lots, slack: float = 0.0) -> Answer | None:
    """Are pictures closer to the records of their message than to what else was dealt? None where nothing was."""
    draws = lots.enough()
    p_value = closer_together_p_value(
        dealt.originals, dealt.messages, dealt.others, (dealt.labels, dealt.of_others), lots.seed, draws, slack
    )
    return dealt.answer(p_value, draws)


@dataclass(frozen=True, eq=False)
class _Dealt:
    """All records of some messages, the messages by places among these, and what else was dealt."""

    originals: Tensor
    labels: Tensor
    messages: list[Rebuilt]
    senders: list[str]
    others: Tensor
    of_others: Tensor

    @classmethod
    def of(
        cls, sent: Sequence[Sent], line_ups: LineUps, others: Callable[[Sequence[int], bool], tuple[Tensor, Tensor]]
    ) -> _Dealt:
        rows = sorted({row for own, _ in sent for row in own})
        place = {row: i for i, row in enumerate(rows)}
        messages = [Rebuilt([place[row] for row in own], made.images) for own, made in sent]
        senders = [made.sender for _, made in sent]
        images, labels = others(rows, True)
        kept = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:OTHERS]
        originals = line_ups.truth.inputs[rows]
        return cls(originals, line_ups.labels(rows), messages, senders, images[kept], labels[kept])

    @cached_property
    def by_message(self) -> Tensor:
        """How close each message's pictures come to every original (messages, n)."""
        return closeness_by_message(self.messages, self.originals)

    @property
    def closeness(self) -> Tensor:
        """The same by record: the sum over its messages (n, n)."""
        return summed_by_record(self.messages, len(self.originals), self.by_message)

    @cached_property
    def sent(self) -> Tensor:
        """A number for each original (n,), the same for those that were in the same messages."""
        places: dict[tuple[int, ...], int] = {}
        own = (tuple(i for i, m in enumerate(self.messages) if r in m.records) for r in range(len(self.originals)))
        return torch.tensor([places.setdefault(messages, len(places)) for messages in own])

    @property
    def of_labels(self) -> list[list[int]]:
        """Records of one label: dealt by the lot, any of them might have been any other."""
        return _several(int(label) for label in self.labels)

    @cached_property
    def of_epochs(self) -> list[tuple[list[int], list[int]]]:
        """Records of one label and sender that were in some message for the k-th time, each with that message. An
        epoch's batches are a fresh lot among its sender's records, whatever went before; so there is nothing where a
        sender's messages are not epochs, in which each record is in one.
        """
        times: list[list[int]] = [[] for _ in self.originals]
        for i, rebuilt in enumerate(self.messages):
            for record in rebuilt.records:
                times[record].append(i)
        epoch_of: dict[int, int] = {}  # by message
        members: dict[tuple[str, int, int], list[int]] = {}
        for record, own in enumerate(times):
            for k, message in enumerate(own):
                if epoch_of.setdefault(message, k) != k:
                    return []
                members.setdefault((self.senders[message], k, int(self.labels[record])), []).append(record)
        return [([*own], [times[r][k] for r in own]) for (_, k, _), own in members.items() if len(own) > 1]

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


def _and_swapped(answer: Answer, counted: Tensor, dealt: _Dealt, lots: Lots) -> Answer:
    """Other splits may be a bit easier to tell apart than chance says, which many messages would add up. So the records
    must also be told from each other, where there are enough of them for that.
    """
    swaps = lots.enough()
    least = least_swapped([dealt.kinds], [dealt.sent], swaps)
    if 3 * least > SIGNIFICANCE / lots.checks:  # thrice, as of `of_the_best_or_half`
        return answer
    return answer.and_of(Answer(swapped_p_value([counted], lots.seed, swaps), least))


def _within_labels(dealt: _Dealt, lots: Lots) -> tuple[Answer | None, Answer | None]:
    """Are pictures closer to the records of their message than to others of the label that stand in their place: for
    good, and anew in every epoch, which tells a few records that come back every time from luck? Neither is explained
    by known labels, or by what other splits are like. None where there are too few of a label for that.
    """
    swaps, close = lots.enough(), dealt.closeness
    kinds = dealt.kinds
    whole = [(close[own][:, own], kinds[own], dealt.sent[own]) for own in dealt.of_labels]
    epochs = [(dealt.by_message[sent][:, own], kinds[own], torch.tensor(sent)) for own, sent in dealt.of_epochs]
    if len(dealt.messages) == len({i for _, sent in dealt.of_epochs for i in sent}) == len(dealt.originals):
        epochs = []  # every record once: the same question again
    answers: list[Answer | None] = []
    for blocks in (whole, epochs):
        least = least_swapped([own for _, own, _ in blocks], [sent for _, _, sent in blocks], swaps)
        if blocks and 3 * EITHER * least <= SIGNIFICANCE / lots.checks:
            answers.append(Answer(swapped_p_value([block for block, _, _ in blocks], lots.seed, swaps), least))
        else:
            answers.append(None)
    return answers[0], answers[1]


def _several(labels: Iterable[int]) -> list[list[int]]:
    """The places of each label that more than one has."""
    places: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    return [own for own in places.values() if len(own) > 1]


def any_of(answers: Sequence[Answer | None]) -> Answer | None:
    """What the best of several answers says (Bonferroni); None where there is none."""
    known = [answer for answer in answers if answer is not None]
    if not known:
        return None
    p_value, least = min(a.p_value for a in known), min(a.least for a in known)
    return Answer(min(1.0, len(known) * p_value), min(1.0, len(known) * least))


def of_pools(truth: Truth | None, sent: Sequence[tuple[Sequence[int], Tensor]], lots: Lots) -> Answer:
    """Of messages, each the rows of its records and what was made of it, by as many relabellings as it takes to pass
    beside so many checks.

    The messages alone are asked only where all together do not say as much as they could: without them the p-value is
    larger or the same.
    """
    assert truth is not None
    k = len(sent)
    if k == 1:
        return _of_pool(truth, sent, lots.enough(), lots)
    together, draws = _of_pool(truth, sent, lots.enough(), lots), lots.enough(k)
    if together.p_value <= together.least:
        return together.or_of([UNTESTED] * k)
    return together.or_of([_of_pool(truth, [one], draws, lots) for one in sent])


def _of_pool(truth: Truth, sent: Sequence[tuple[Sequence[int], Tensor]], draws: int, lots: Lots) -> Answer:
    every = {row: i for i, row in enumerate(sorted({row for rows, _ in sent for row in rows}))}
    originals, labels = truth.inputs[list(every)], truth.targets[list(every)]
    messages = [Rebuilt([every[row] for row in rows], images) for rows, images in sent]
    of_pool = truth.pool_inputs, truth.pool_targets
    found = None
    if lots.made:
        found = pool_p_value(originals, labels, messages, *of_pool, lots.seed, draws)
    return Answer(1.0 if found is None else found, least_p_value(originals, labels, *of_pool, draws))
