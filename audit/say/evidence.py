"""What one attack got, or one test of ε showed, in a line beside its picture."""

from __future__ import annotations

from collections.abc import Sequence

from ..judge.judgement import Judgement
from ..results.checks import COMPARABLE, STRICT_FPR, most_demonstrated, picked, strict_point
from ..results.format import AttackResult, Epsilon
from . import words


def rebuilt(attack: AttackResult, control: float | None, against: str) -> str:
    """control: what the attack's share is judged by, which `against` names."""
    if attack.thing == "text":
        return _told(attack)
    share, margin = attack.value(picked(attack).share), attack.value("psnr_margin")
    parts = []
    if share is not None:
        parts.append(_reidentified(attack, share, control, against))
    if why := attack.not_measured.get(COMPARABLE):
        parts.append(f"not tested against a control, as {why}")
    elif margin is not None and margin > 0:
        parts.append(f"{words.number(margin, 2)} dB closer to the original than the best control")
    elif margin is not None:
        parts.append("no closer to the original than the best control")
    return ", ".join(parts)


def _reidentified(attack: AttackResult, share: float, control: float | None, against: str) -> str:
    interval, exact = attack.intervals.get(picked(attack).share), attack.value("exact")
    details = [words.between(interval)] if interval else []
    details += [] if control is None else [f"{against} {words.percent(control)}"]
    of = "" if attack.n is None else f" of {words.times(attack.n, attack.thing)}"
    compared = ""
    if details:
        compared = f" ({'; '.join(details)})"
    back = ""
    if exact:
        back = f", {words.percent(exact)} came back beyond doubt"
    return f"{words.percent(share)}{of} re-identified{compared}{back}"


def cells_beside(attack: AttackResult, right: Sequence[bool]) -> str:
    """How much of the row that shows most is right, beside the average row, and one that was made without any message.
    right: its cells.

    >>> controls = {"mean": {"cells_right": 0.5}, "other_rows": {}}
    >>> metrics = {"cells_right": 0.6}
    >>> attack = AttackResult(attack="inversion", observer="server", metrics=metrics, controls=controls)
    >>> cells_beside(attack, [True, False, True, True])
    '3 of its 4 cells are right; the average row has 2.4, and one that was made without any message 2'
    """
    known = [value for own in attack.controls.values() if (value := own.get("cells_right")) is not None]
    verb = "are"
    if sum(right) == 1:
        verb = "is"
    found = f"{sum(right)} of its {words.times(len(right), 'cell')} {verb} right"
    average = attack.value("cells_right")
    if not known or average is None:
        return found
    rows, without = (words.number(share * len(right), 2) for share in (average, max(known)))
    return f"{found}; the average row has {rows}, and one that was made without any message {without}"


def _told(attack: AttackResult) -> str:
    """Of texts: how many came back whole, and how many words, beside the best that needs no message."""
    best = max((own.get("words_told") or 0.0 for own in attack.controls.values()), default=0.0)
    return (
        f"{words.percent(attack.value('whole'))} of {words.times(attack.n or 0, 'text')} came back word for word;"
        f" {words.percent(attack.value('words_told'))} of their words told (a control {words.percent(best)})"
    )


# What is told of a batch, without noise and under noise of known size.
CONFIRMED = "the network confirms the text without the truth"
LIKELIEST = "95 % of the likelihood of all texts that were tried is this one's"
WORDS_CERTAIN = "Words that are certain to be in the batch"
WORDS_LIKELY = "Words told at 95 % (those of a whole text: if the true text is among those that were tried)"


def noise_of(attack: AttackResult, multiplier: float | None) -> str:
    """How long the noise is beside the gradient, and its multiplier; "" without noise."""
    ratio = attack.value("noise_over_gradient")
    if not ratio:
        return ""
    if multiplier is None:
        beside = ""
    else:
        beside = f" (noise multiplier {words.number(multiplier)})"
    return f"The noise is at least {words.at_least(ratio)} times as long as the gradient{beside}."


def linked_line(attack: AttackResult) -> str:
    interval = attack.intervals.get("linked")
    between = ""
    if interval:
        between = f"{words.between(interval)}; "
    share, chance = words.percent(attack.value("linked")), words.percent(attack.value("linked_chance"))
    return f"{share} of the pairs of messages of one anonymous sender linked ({between}chance {chance})"


def guessed_line(attack: AttackResult) -> str:
    interval = attack.intervals.get("attribute_advantage")
    between = ""
    if interval:
        between = f"; 95 % interval of the difference {words.between(interval)}"
    share, others = attack.value("attribute"), attack.controls.get("outsiders", {}).get("attribute")
    if others is None:
        beside = ""
    else:
        beside = f" (outsiders: {words.percent(others)}{between})"
    return f"“{attack.variant}” guessed right for {words.percent(share)} of the members{beside}"


def recognised(attack: AttackResult) -> str:
    point = strict_point(attack)
    guessing = f"{area(attack)} (guessing 0.5)"
    if point is None:
        return guessing
    rate = words.percent(STRICT_FPR)
    return f"{words.percent(point.tpr)} of the members recognised at a false positive rate of {rate}; {guessing}"


def area(attack: AttackResult) -> str:
    """AUC, with its interval."""
    interval = attack.intervals.get("auc")
    between = ""
    if interval:
        between = f" ({words.at_least(interval[0])} to {words.at_most(interval[1])})"
    return f"AUC {words.number(attack.value('auc'))}{between}"


def counts(row: Epsilon) -> bool:
    """Whether the most that is demonstrated of a row holds in any case, without its condition."""
    return row.demonstrated is not None and row.demonstrated >= most_demonstrated(row)


def tested(row: Epsilon) -> str:
    """Where a test demonstrated the most, and on which condition."""
    condition = ""
    if not counts(row):
        condition = f", if {row.condition}"
        if row.demonstrated is not None:
            condition += f" (at least {words.at_least(row.demonstrated)} in any case)"
    return f"demonstrated by a test, {words.where(row)}{condition}{words.chosen(row)}"


def least_line(row: Epsilon) -> str:
    """The most that is demonstrated of a row."""
    return f"ε ≥ {words.at_least(most_demonstrated(row))}"


def limits(row: Epsilon, judgement: Judgement) -> str:
    """What is claimed and proven of a row."""
    proven = "nothing proven"
    if judgement.proof == "not priced":
        proven = "ε not priced"
    if row.finite:
        proven = f"{words.at_most(row.proven)} proven"
    if row.claimed is None:
        return proven
    return f"{words.claim(row.claimed, row.claimed_by)} claimed, {proven}"
