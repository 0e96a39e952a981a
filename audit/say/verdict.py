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
    return Verdict(
        level=judgement.level,
        proof=judgement.proof,
        proven=judgement.proven,
        measured=judgement.measured,
        attacked=judgement.attacked,
        only_claim=judgement.only_claim,
        declared=judgement.declared,
        sentences=sentences(judgement),
    )
