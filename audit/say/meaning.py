"""What to do about a judgement, in sentences: the third answer of a verdict."""

from __future__ import annotations

from math import inf

from ..judge.judgement import Judgement
from ..results.checks import USEFUL_EPSILON
from .words import at_most, number, observer

AS_DATA = "protect what this observer sees like the training data itself"
STRENGTHEN = "Strengthen the noise before the setup trains on real data."
LARGE = (
    f"the leak is large: an ε above {number(USEFUL_EPSILON)} lets an observer change the odds of a guess by a factor"
    " above 20\N{NARROW NO-BREAK SPACE}000."
)


def meaning(judgement: Judgement) -> str:
    """One or two sentences for somebody who has to decide."""
    if judgement.only_claim:
        return f"Do not rely on that claim. {meaning(judgement.without_claims)}"
    if judgement.contradicted or judgement.violated:
        return f"Trust no ε of this setup until the fault is found. Until then, {AS_DATA}."
    if judgement.level == "severe":
        return f"{AS_DATA.capitalize()}. Change the setup before it trains on real data."
    if doubted := judgement.refuting("proven", on_condition=True):
        return (
            f"Trust no ε of this setup until the condition is shown to fail ({doubted[0].shown.condition}). Until then,"
            " treat what this observer sees as personal data."
        )
    if judgement.level == "high":
        return f"Treat what this observer sees as personal data. {STRENGTHEN}"
    if judgement.level == "moderate":
        return _moderate(judgement)
    if judgement.proof == "proven":
        return _proven(judgement)
    return _unproven(judgement)


def _moderate(judgement: Judgement) -> str:
    if any((row.demonstrated or 0) > USEFUL_EPSILON for row in judgement.leaking):
        return f"In the worst case {LARGE} {STRENGTHEN}"
    conditions = (row.condition for row in judgement.leaking if (row.demonstrated_on_condition or 0) > USEFUL_EPSILON)
    if condition := next(conditions, ""):
        return f"In the worst case, and if {condition}, {LARGE} {STRENGTHEN}"
    return (
        "The leak is real, and a stronger attack may get more. Prefer a setting in which no attack beats its control."
    )


def _proven(judgement: Judgement) -> str:
    rows = judgement.rows
    row = rows.asked or max(rows.bounding, key=lambda row: row.proven or 0.0)
    declared = ""
    if judgement.declared:
        declared = ", if what its owner declares is so"
    return (
        f"The proven ε of {at_most(row.proven)} also limits stronger attacks, for one {row.unit} and"
        f" {observer(row.observer)}{declared}. Other observers, and people with several {row.unit}s, are not covered."
    )


def _unproven(judgement: Judgement) -> str:
    rows = judgement.rows
    proven = [(inf if row.proven is None else row.proven, row is rows.asked, row) for row in rows.bounding]
    weakest = None
    if proven:
        weakest = max(proven, key=lambda one: one[:2])[2]
    if weakest is None:
        where = ""
    else:
        where = f" per {weakest.unit} towards {observer(weakest.observer)}"
    bound = f"no useful bound (ε ≤ {number(USEFUL_EPSILON)}) is proven{where}"
    if judgement.measured:
        return f"The failure of these attacks is no comfort: {bound}, so a stronger attack may succeed."
    return f"Nothing was measured, and {bound}: an attack may succeed."
