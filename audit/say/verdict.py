"""A judgement as results.json has it: its values, and three sentences for somebody who has to decide."""

from __future__ import annotations

from typing import Any

from ..judge.judgement import AuditEvidence, Judgement, judge
from ..results.format import Results, Verdict
from .leak import leak_sentence
from .loss import loss_sentence
from .meaning import meaning


def judged(**fields: Any) -> Results:
    """Results with their verdict. fields: all others of `Results`."""
    unjudged = Results.model_construct(**fields)
    return Results(**fields, verdict=verdict(judge(AuditEvidence.of(unjudged))))


def sentences(judgement: Judgement) -> tuple[str, str, str]:
    """What was reached, what ε says, what it means."""
    return leak_sentence(judgement), loss_sentence(judgement), meaning(judgement)


def verdict(judgement: Judgement) -> Verdict:
    """The values of a judgement that stand in results.json, with its sentences."""
    judged_of = (name for name in Verdict.model_fields if name != "sentences")
    return Verdict(**{name: getattr(judgement, name) for name in judged_of}, sentences=sentences(judgement))
