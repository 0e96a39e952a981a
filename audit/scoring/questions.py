"""One attack on several messages is one question with one p-value.

A message of one record can hardly be told from luck by a line-up, twenty can; and a message that is rebuilt wholly must
not drown among twenty that are not. So a question is answered by all of its messages together, by the best of them and
by half of them, and counts once among all checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...attacks.base import Reconstruction
from ...metrics.intervals import of_the_best_or_half, share_by_luck, share_p_value
from ...metrics.pool_test import PERMUTATIONS, Rebuilt, least_p_value, pool_p_value
from ...metrics.swapped_test import least_swapped, swapped_p_value
from ..results.checks import SIGNIFICANCE, best_control, picked, question_of
from ..results.format import AttackResult, Metrics
from ..setup.auditor import Auditor, Truth
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


def rows_of(auditor: Auditor, reconstruction: Reconstruction) -> list[int]:
    """Which records of the truth the attacked messages are of."""
    messages = {} if auditor.truth is None else auditor.truth.messages
    return sorted({row for i in reconstruction.message_ids for row in messages.get(i, ())})


def judged_together(
    entries: Sequence[AttackResult],
    auditor: Auditor,
    rebuilt: Sequence[Reconstruction],
    line_ups: LineUps | None,
    seed: int,
    others: int,
) -> list[AttackResult]:
    """The entries with the p-values of their line-ups, in the pool where there is one with power, and of their margins.

    Entries that are alike but for the message have one p-value: of all together (but for margins, whose messages cannot
    be dealt together), or of the best of them, or of half of them. Messages with no more than their control have 1.

    Args:
        entries: the scored inversions. rebuilt: what each was scored by. line_ups: None without the truth.
        others: how many other checks there are.
    """
    asked = {(question_of(entry), name) for entry in entries for name in (picked(entry).share, "psnr_margin")}
    checks = len(asked) + others
    judged = list(entries)
    for places in _alike(entries, "pool_share"):
        sent = [(rows_of(auditor, rebuilt[place]), rebuilt[place].images) for place in places]
        answer = _of_pools(auditor.truth, sent, checks, seed)
        for place in places:
            if answer.least > SIGNIFICANCE / checks:
                judged[place] = _without_pool(entries[place], checks)
            else:
                judged[place] = _answered(entries[place], answer)
    for places in _alike(judged, "reidentified"):
        without = [place for place in places if judged[place].value("pool_share") is None]
        if len(without) > 1:
            made = [(judged[k], rows_of(auditor, rebuilt[k]), rebuilt[k]) for k in without]
            answer = _of_shares(made, line_ups, checks, seed)
            for place in without:
                judged[place] = _answered(judged[place], answer)
    for places in _alike(judged, "psnr_margin"):
        tested = [place for place in places if "psnr_margin" in judged[place].p_values]
        if tested:
            known = [(judged[k].p_values["psnr_margin"], judged[k].least_p_values["psnr_margin"]) for k in tested]
            answer = _Answer(*(of_the_best_or_half(values) for values in zip(*known)))
            for place in tested:
                closer = (judged[place].value("psnr_margin") or 0.0) > 0
                judged[place] = _with(judged[place], "psnr_margin", answer, closer)
    return judged


@dataclass(frozen=True)
class _Answer:
    """A question's p-value, and what it would be were success perfect."""

    p_value: float
    least: float

    def or_of(self, alone: Sequence[_Answer]) -> _Answer:
        """This one, of all messages together, or that of the best of them, or of half of them."""
        known = ([one.p_value for one in alone], self.p_value), ([one.least for one in alone], self.least)
        return _Answer(*(of_the_best_or_half(values, together) for values, together in known))


def _alike(entries: Sequence[AttackResult], metric: str) -> list[list[int]]:
    """The places of entries that have the metric, together where they answer one question."""
    groups: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        if entry.value(metric) is not None:
            groups.setdefault(question_of(entry), []).append(place)
    return list(groups.values())


def _answered(entry: AttackResult, answer: _Answer) -> AttackResult:
    name = picked(entry).share
    return _with(entry, name, answer, (entry.value(name) or 0.0) > best_control(entry))


def _with(entry: AttackResult, name: str, answer: _Answer, more: bool) -> AttackResult:
    """more: whether this entry got more than its control at all."""
    p_values = {**entry.p_values, name: answer.p_value if more else 1.0}
    return entry.having(p_values=p_values, least_p_values={**entry.least_p_values, name: answer.least})


def _of_shares(
    entries: Sequence[tuple[AttackResult, Sequence[int], Reconstruction]],
    line_ups: LineUps | None,
    checks: int,
    seed: int,
) -> _Answer:
    """Of all hits of line-ups in images of other splits. These may be a bit easier than chance says, which many
    messages would add up, so they must beat it twice, and what was made of other messages; where those are too few to
    tell, controls that have more than chance. Of messages that share records the first counts.
    """
    seen, hits, n, chance = set[int](), 0, 0, 0.0
    controls: Counter[str] = Counter()
    disjoint = []
    for entry, rows, made in entries:
        if rows and seen.isdisjoint(rows):
            disjoint.append((rows, made))
            seen.update(rows)
            hits, n = hits + round((entry.value("reidentified") or 0.0) * len(rows)), n + len(rows)
            chance += (entry.value("reidentified_chance") or 0.0) * len(rows)
            for name, shares in entry.controls.items():
                controls[name] += round((shares.get("reidentified") or 0.0) * len(rows))
    together = _Answer(1.0, 1.0)
    if n:
        known = any(entry.settings.get("labels") == "known" for entry, _, _ in entries)
        swapped = None if line_ups is None else _of_swaps(line_ups, disjoint, known, checks, seed)
        counted = list(controls.values()) if swapped is None else []
        luck = share_by_luck(min(1.0, chance / n), counted, n, times=2)
        together = _Answer(share_p_value(hits, n, luck), share_p_value(n, n, luck))
        if swapped is not None:
            together = _Answer(max(together.p_value, swapped.p_value), max(together.least, swapped.least))
    alone = [(e.p_values.get("reidentified", 1.0), e.least_p_values.get("reidentified", 1.0)) for e, _, _ in entries]
    return together.or_of([_Answer(*known) for known in alone])


def _of_swaps(
    line_ups: LineUps, sent: Sequence[tuple[Sequence[int], Reconstruction]], known: bool, checks: int, seed: int
) -> _Answer | None:
    """Whether it matters which pictures are of which message; None where too few messages are alike to tell."""
    swaps = enough_relabellings(1, checks)
    hits, alike = line_ups.swapped(sent, known, seed)
    least = least_swapped(alike, swaps)
    if 3 * least > SIGNIFICANCE / checks:  # thrice, as of `of_the_best_or_half`
        return None
    return _Answer(swapped_p_value(hits, alike, seed, swaps), least)


def _of_pools(truth: Truth | None, sent: Sequence[tuple[Sequence[int], Tensor]], checks: int, seed: int) -> _Answer:
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
        return together.or_of([_Answer(1.0, 1.0)] * k)
    return together.or_of([_of_pool(truth, [one], draws, seed) for one in sent])


def _of_pool(truth: Truth, sent: Sequence[tuple[Sequence[int], Tensor]], draws: int, seed: int) -> _Answer:
    every = {row: i for i, row in enumerate(sorted({row for rows, _ in sent for row in rows}))}
    originals, labels = truth.inputs[list(every)], truth.targets[list(every)]
    messages = [Rebuilt([every[row] for row in rows], images) for rows, images in sent]
    found = pool_p_value(originals, labels, messages, truth.pool_inputs, truth.pool_targets, seed, draws)
    least = least_p_value(originals, labels, truth.pool_inputs, truth.pool_targets, draws)
    return _Answer(1.0 if found is None else found, least)


def _without_pool(entry: AttackResult, checks: int) -> AttackResult:
    why = f"too few images of its label were left over to tell anything from luck among {checks} checks"
    numbers = {name: value for name, value in entry.numbers.items() if not name.startswith("pool_")}
    intervals = {name: limits for name, limits in entry.intervals.items() if name != "pool_share"}
    missing = {**entry.not_measured, "pool_share": why}
    return entry.having(metrics=Metrics.of(numbers), intervals=intervals, not_measured=missing)
