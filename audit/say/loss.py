"""What is claimed, proven and demonstrated of ε, in a sentence: the second answer of a verdict."""

from __future__ import annotations

from math import inf

from ..judge.judgement import Judgement
from ..results.checks import cannot_hold, most_demonstrated
from ..results.format import Epsilon
from .words import at_most, claim, claimant, could_show, demonstrated, observer, percent_at_least, terms, where

NO_LOSS = "No privacy loss ε was priced for this setup, and no claim was looked at."


def loss_sentence(judgement: Judgement) -> str:
    """Of the row that a short text quotes, and of the other unit where a test of ε was run."""
    row = judgement.rows.quoted
    if row is None:
        return NO_LOSS
    test = next((refutation.shown for refutation in judgement.refuted if refutation.row is row), row)
    place = f"ε per {row.unit} towards {observer(row.observer)} ({terms(row)}; smaller protects more)"
    numbers = "; ".join((_claimed(row, judgement), _proven(row, judgement), _demonstrated(test)))
    sentences = (f"Privacy loss {place}: {numbers}.", impossible(row), *_about(test, judgement))
    return " ".join(filter(None, (*sentences, *_other_units(row, judgement))))


def three(row: Epsilon, judgement: Judgement) -> str:
    """Any row: claimed, proven rounded up, demonstrated rounded down."""
    claimed = "nothing claimed"
    if row.claimed not in (None, inf):
        claimed = f"claimed {claim(row.claimed, row.claimed_by)} {claimant(row.claimed_by)}".rstrip()
    proven, shown = _proven(row, judgement), _demonstrated(row)
    if row.accountant not in (None, "none"):
        proven += f" ({row.accountant})"
    if row.tested and row.confidence is not None:
        shown += f", with {percent_at_least(row.confidence)} confidence"
    return f"Per {row.unit}, towards {observer(row.observer)} ({terms(row)}): {claimed}; {proven}; {shown}."


def _claimed(row: Epsilon, judgement: Judgement) -> str:
    if row.claimed not in (None, inf):
        return f"claimed {claim(row.claimed, row.claimed_by)} {claimant(row.claimed_by)}".rstrip()
    other = next((each for each in judgement.epsilon if each.claimed not in (None, inf)), None)
    if other is None or row.claimed is not None:
        return "nothing claimed"
    stated = f"{claim(other.claimed, other.claimed_by)} {claimant(other.claimed_by)}".rstrip()
    return f"nothing claimed here, but {stated} {where(other)}"


def _proven(row: Epsilon, judgement: Judgement) -> str:
    if row.proven is None:
        return "not priced"
    if row.proven == inf:
        return "no finite bound proven"
    secret = " if the noise key, which is published, were secret"
    if judgement.secret:
        secret = ""
    declared = ""
    if judgement.declared:
        declared = " if what its owner declares is so"
    digits = 4 if cannot_hold(row) else 3  # as beside it
    return f"proven at most {at_most(row.proven, digits)}{secret}{declared}"


def impossible(row: Epsilon) -> str:
    """That a claim is below the exact curve of the noise; "" where it is not, or no curve is exact."""
    if row.claimed is None or row.proven is None or not cannot_hold(row):
        return ""
    said = claim(row.claimed, row.claimed_by)
    cost = at_most(row.proven, 4)
    return f"A claim of {said} cannot hold at this noise: the largest updates within the clip cost {cost}."


def _demonstrated(test: Epsilon) -> str:
    if test.tested:
        return f"demonstrated at least {demonstrated(test)}"
    return "not tested"


def _about(test: Epsilon, judgement: Judgement) -> list[str]:
    """What follows from a test, or how much it could have shown."""
    exceeded = [refutation for refutation in judgement.refuting("proven") if refutation.shown is test]
    if any(not refutation.on_condition for refutation in exceeded):
        return ["The proof or the implementation is broken."]
    if exceeded:
        return ["The condition fails, or the proof or the implementation is broken."]
    if test.ceiling_on_condition is not None:
        if test.ceiling is None:
            counted = ""
        else:
            counted = f", {at_most(test.ceiling)} in any case"
        return [f"{could_show(test.ceiling_on_condition).capitalize()} on that condition{counted}."]
    if test.ceiling is None or not test.tested:
        return []
    return [f"{could_show(test.ceiling).capitalize()}."]


def _other_units(row: Epsilon, judgement: Judgement) -> list[str]:
    """What a test of ε says per record where the sentence is about clients, or the other way round; none without a
    test. An ε of one unit says nothing of the other.
    """
    if not any(most_demonstrated(each) or each.demonstrated is not None for each in judgement.epsilon):
        return []
    rows = [each for each in judgement.epsilon if each.observer == row.observer]
    broken = [refutation.row for refutation in judgement.refuting("proven")]
    sentences = []
    for unit in dict.fromkeys(each.unit for each in rows if each.unit != row.unit):
        worst = max(
            (each for each in rows if each.unit == unit),
            key=lambda each: (most_demonstrated(each), each.adjacency == row.adjacency, -(each.delta or 0.0)),
        )
        sentences.append(f"Per {unit} ({terms(worst)}): {_beside(worst, worst in broken)}.")
    return sentences


def _beside(row: Epsilon, broken: bool) -> str:
    proven = "nothing proven"
    if row.finite:
        proven = f"proven at most {at_most(row.proven)}"
    if most_demonstrated(row):
        return f"demonstrated at least {demonstrated(row)}; {proven}"
    if broken:
        return f"{proven}, which is contradicted"
    return f"nothing demonstrated; {proven}"
