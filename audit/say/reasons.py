"""Why the three numbers of a row of ε differ, in sentences below the table."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..judge.judgement import Refutation
from ..results.format import Epsilon
from .words import at_least, at_most, chosen_briefly, could_show, number, observer, percent_at_least

PROOF_IS_WRONG = "the proof does not describe what ran"


def reasons(row: Epsilon, refuted: Sequence[Refutation]) -> list[str]:
    """The gravest first. refuted: what the row's test refutes."""
    certain = any(refutation.limit == "proven" and not refutation.on_condition for refutation in refuted)
    sentences = [
        _refuted(refutation)
        for refutation in refuted
        if not (certain and refutation.limit == "proven" and refutation.on_condition)
    ]
    sentences += [*_proven(row), *row.notes]
    if row.ceiling_on_condition is None:
        ceiling = row.ceiling
    else:
        ceiling = row.ceiling_on_condition
    if row.proven is not None and ceiling is not None and row.proven > ceiling:
        sentences.append(f"{could_show(ceiling).capitalize()}.")
    return sentences


def _refuted(refutation: Refutation) -> str:
    shown, row = refutation.shown, refutation.row
    details = [at_least(refutation.demonstrated)]
    if refutation.limit == "claimed" and not refutation.on_condition and shown.confidence is not None:
        details[0] += f" with {percent_at_least(shown.confidence)} confidence"
    details += filter(None, [chosen_briefly(shown)])
    limit = {"claimed": number(row.claimed), "proven": at_most(row.proven)}[refutation.limit]
    if row.observer != shown.observer:
        limit += f" towards {observer(row.observer)}, who sees no less"
    condition = ""
    if refutation.on_condition:
        condition = f" if {shown.condition}"
    return f"Demonstrated{condition} ({', '.join(details)}) exceeds {refutation.limit} ({limit}): {_so(refutation)}."


def _so(refutation: Refutation) -> str:
    if refutation.limit == "claimed":
        if refutation.on_condition:
            return "the claim is false on that condition"
        return "the claim is false"
    if refutation.on_condition:
        return f"{PROOF_IS_WRONG}, or the condition fails"
    return PROOF_IS_WRONG


def _proven(row: Epsilon) -> list[str]:
    """What is proven beside the claim."""
    if row.claimed is None or row.proven is None or row.proven == row.claimed:
        return []
    if row.proven == inf:
        return ["The claim has no proof at any finite ε."]
    if row.proven < row.claimed:
        return ["The proven ε is below the claimed one."]
    times = ""
    if row.claimed:
        times = f", {number(row.proven / row.claimed, 2)} times the claim"
    return [f"The proven ε is {at_most(row.proven)}{times}."]
