"""One attack on several messages is one question with one p-value.

A message of one record can hardly be told from luck by a line-up, twenty can; and a message that is rebuilt wholly must
not drown among twenty that are not. So a question is answered by all of its messages together, by the best of them and
by half of them, and counts once among all checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from ...attacks.base import ReadTexts, Reconstruction
from ...defenses.progress import Progress
from ..results.checks import SIGNIFICANCE, best_control, picked, question_of
from ..results.format import AttackResult, Metrics
from ..setup.auditor import Auditor
from .answers import UNTESTED, Answer, Lots, of_margins, of_pools, of_shares
from .line_ups import LineUps


def rows_of(auditor: Auditor, reconstruction: Reconstruction | ReadTexts) -> list[int]:
    """Which records of the truth the attacked messages are of."""
    messages = {} if auditor.truth is None else auditor.truth.messages
    uploads = [upload for i in reconstruction.message_ids for upload in auditor.setup.behind(i)]
    return sorted({row for i in uploads for row in messages.get(i, ())})


def judged_together(
    entries: Sequence[AttackResult],
    auditor: Auditor,
    rebuilt: Sequence[Reconstruction],
    line_ups: LineUps | None,
    lots: Lots,
    progress: Progress | None = None,
) -> list[AttackResult]:
    """The entries with the p-values of their line-ups, in the pool where there is one with power, and of their margins.

    Entries that are alike but for the message have one p-value: of all together, or of the best of them, or of half of
    them. Messages with no more than their control have 1.

    Args:
        entries: the scored inversions. rebuilt: what each was scored by. line_ups: None without the truth.
        lots: of relabellings, with the number of other checks. progress: called with questions answered and in all.
    """
    asked = {(question_of(entry), name) for entry in entries for name in (picked(entry).share, "psnr_margin")}
    lots = replace(lots, checks=lots.checks + len(asked))
    judged = list(entries)
    answered = count(1)

    def tick() -> None:
        if progress is not None:
            progress(min(next(answered), len(asked)), len(asked), "scoring")

    for places in _alike(entries, "pool_share"):
        sent = [(rows_of(auditor, rebuilt[place]), rebuilt[place].images) for place in places]
        answer = of_pools(auditor.truth, sent, lots)
        for place in places:
            if answer.least > SIGNIFICANCE / lots.checks:
                judged[place] = _without_pool(entries[place], lots.checks)
            else:
                judged[place] = _answered(entries[place], answer if lots.made else UNTESTED)
        tick()
    for places in _alike(judged, "reidentified"):
        without = [place for place in places if judged[place].value("pool_share") is None]
        if len(without) > 1:
            made = [(rows_of(auditor, rebuilt[k]), rebuilt[k]) for k in without]
            answer = of_shares([judged[k] for k in without], made, line_ups, lots)
            for place in without:
                judged[place] = _answered(judged[place], answer)
        tick()
    for places in _alike(judged, "psnr_margin"):
        tested = [place for place in places if "psnr_margin" in judged[place].p_values]
        if tested:
            known = [(judged[k].p_values["psnr_margin"], judged[k].least_p_values["psnr_margin"]) for k in tested]
            made = [(rows_of(auditor, rebuilt[k]), rebuilt[k]) for k in tested]
            together = None
            if line_ups is not None and len(tested) > 1 and lots.made:
                together = of_margins(made, line_ups, lots)
            answer = (together or UNTESTED).or_of([Answer(*one) for one in known])
            for place in tested:
                closer = (judged[place].value("psnr_margin") or 0.0) > 0
                judged[place] = _with(judged[place], "psnr_margin", answer, closer)
        tick()
    return judged


def _alike(entries: Sequence[AttackResult], metric: str) -> list[list[int]]:
    """The places of entries that have the metric, together where they answer one question."""
    groups: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        if entry.value(metric) is not None:
            groups.setdefault(question_of(entry), []).append(place)
    return list(groups.values())


def _answered(entry: AttackResult, answer: Answer) -> AttackResult:
    name = picked(entry).share
    return _with(entry, name, answer, (entry.value(name) or 0.0) > best_control(entry))


def _with(entry: AttackResult, name: str, answer: Answer, more: bool) -> AttackResult:
    """more: whether this entry got more than its control at all."""
    p_values = {**entry.p_values, name: answer.p_value if more else 1.0}
    return entry.having(p_values=p_values, least_p_values={**entry.least_p_values, name: answer.least})


def _without_pool(entry: AttackResult, checks: int) -> AttackResult:
    why = f"too few images of its label were left over to tell anything from luck among {checks} checks"
    numbers = {name: value for name, value in entry.numbers.items() if not name.startswith("pool_")}
    intervals = {name: limits for name, limits in entry.intervals.items() if name != "pool_share"}
    missing = {**entry.not_measured, "pool_share": why}
    return entry.having(metrics=Metrics.of(numbers), intervals=intervals, not_measured=missing)
