"""Which ε is claimed, proven and demonstrated, of what the config asks about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...judge.question import RowQuestion
from ...results.format import Epsilon
from ...say import words
from ...say.leak import refuted
from ...say.loss import impossible
from ...say.warnings import contradicted_briefly
from ..facts import ReportedSetting


@dataclass(frozen=True)
class Range:
    """What the settings have of one quantity. count: how many have it; least: the setting of the least, or "", where
    there is only one value.
    """

    low: float
    high: float
    count: int
    least: str = ""


@dataclass(frozen=True)
class Losses:
    """ε for one unit, observer, adjacency and δ, over all settings; None: not claimed, priced or measured in any.

    rows: each with its setting's label.
    refuted: a sentence a setting of which more is demonstrated than is claimed or proven, of any unit and observer.
    claimed_by: whose the claims are, "" where the settings differ in it. demonstrated: the most in any setting, which
    `demonstrated_in` names; on_condition: the same in words, of a bound with a condition; chosen: what the adversary
    chose for either, in words. secret: whether every noise's key is. elsewhere: where nothing is claimed here, a claim
    about another unit or observer, a sentence. declared: a proof rests on what an owner says and nobody checked.
    """

    unit: str
    observer: str
    adjacency: str
    delta: float | None
    settings: int
    rows: tuple[tuple[str, Epsilon], ...]
    claimed_by: str
    demonstrated: float | None
    demonstrated_in: str
    confidence: float | None
    on_condition: str
    chosen: str = ""
    refuted: tuple[str, ...] = ()
    secret: bool = True
    elsewhere: str = ""
    declared: bool = False

    @property
    def proven(self) -> Range | None:
        return _range([(label, row.proven) for label, row in self.rows])

    @property
    def claimed(self) -> Range | None:
        return _range([(label, row.claimed) for label, row in self.rows])


def losses_of(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> Losses | None:
    """The ε that the worst setting's judgement quotes; None where no setting has a row."""
    question = _question(settings, worst)
    if question is None:
        return None
    rows = [
        (setting.label, row)
        for setting in settings
        for row in setting.judgement.epsilon
        if RowQuestion.about(row) == question
    ]
    claimants = {row.claimed_by for _, row in rows if row.claimed is not None}
    most, shown = max(rows, key=lambda pair: (pair[1].demonstrated is not None, pair[1].demonstrated or 0.0))
    conditional = max((row for _, row in rows), key=lambda row: row.demonstrated_on_condition or -1.0)
    tested = shown.demonstrated is not None
    return Losses(
        unit=question.unit,
        observer=words.observer(question.observer),
        adjacency=question.adjacency,
        delta=question.delta,
        settings=len(settings),
        rows=tuple(rows),
        claimed_by=claimants.pop() if len(claimants) == 1 else "",
        demonstrated=shown.demonstrated,
        demonstrated_in=most if tested and len(settings) > 1 else "",
        confidence=shown.confidence if tested else None,
        on_condition=words.on_condition(conditional) or "",
        chosen=words.chosen_briefly(shown) or words.chosen_briefly(conditional),
        refuted=tuple(filter(None, map(_refuted, settings))),
        secret=all(setting.judgement.secret for setting in settings),
        elsewhere=_claimed_elsewhere(worst, question),
        declared=any(setting.judgement.declared for setting in settings),
    )


def _question(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> RowQuestion | None:
    """What the worst setting's judgement quotes because it is refuted or asked about; else what most claims of all
    settings are about; else any row that is quoted.
    """
    judgement = worst.judgement
    if judgement.rows.quoted is not None and (
        judgement.question or any(r.row is judgement.rows.quoted for r in judgement.refuted)
    ):
        return RowQuestion.about(judgement.rows.quoted)
    claims = [RowQuestion.about(row) for s in settings for row in s.judgement.epsilon if row.claimed is not None]
    if claims:
        return max(claims, key=claims.count)
    quoted = [judgement.rows.quoted, *(setting.judgement.rows.quoted for setting in settings)]
    return next((RowQuestion.about(row) for row in quoted if row is not None), None)


def _claimed_elsewhere(setting: ReportedSetting, question: RowQuestion) -> str:
    """A claim that somebody states of another unit or observer, and what is proven there: it is not for want of one
    that none stands here.
    """
    claims = [row for row in setting.judgement.epsilon if row.claimed is not None]
    stated = (row for row in claims if row.claimed_by != "accountant" and RowQuestion.about(row) != question)
    row = next(stated, None)
    if row is None or any(RowQuestion.about(claim) == question for claim in claims):
        return ""
    proven = "nothing is proven there"
    if row.finite and setting.judgement.secret:
        proven = f"{words.at_most(row.proven)} is proven there"
    return f"{words.claim_said(row)} {words.where(row)}; {proven}."


def _refuted(setting: ReportedSetting) -> str:
    """The setting's claim, else its proof, beside the most that refutes it; on a condition only where nothing else
    does; else that the noise is too small for the claim, where a curve is exact, or that what was recorded
    contradicts what is declared; "" for nothing.
    """
    judgement, whose = setting.judgement, f"“{setting.label}”"
    if not judgement.refuted:
        said = (*map(impossible, judgement.epsilon), contradicted_briefly(setting.results.setup))
        return next(filter(None, said), "")
    gravest = judgement.refuted[0]
    return refuted(judgement.refuting(gravest.limit, gravest.on_condition), whose)


def _range(values: Sequence[tuple[str, float | None]]) -> Range | None:
    known = [(value, label) for label, value in values if value is not None]
    if not known:
        return None
    (low, least), (high, _) = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    return Range(low, high, len(known), least if low < high else "")
