"""May what was looked at be shared? The answers, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ..results.checks import USEFUL_EPSILON
from ..results.format import Epsilon
from .words import at_least, at_most, could_show, listed, number, observer, on_condition, quoted, terms, where

STRONG_EPSILON = 1.0  # a strong guarantee; above it, up to 10, a reasonable one: arXiv:2303.00654, section 5.2.1
PUBLISHED = (
    "What is proven holds for a secret noise key. This key is published: whoever has the config can take the noise off"
    " again. This is not a yes."
)
NO_PROOF = "This is no proof: another canary, or a stronger attack, may show more."
REFUTED, NOT_REFUTED = "No: the claim is refuted", "Not refuted, nothing proven"
VIOLATED = "A replay shows a violation, nothing proven"
CONTRADICTED = "What ran is not what is declared, nothing proven"
NO_REASON = "No reason to share yet: the model is not shown to be better than a guess"
NOT_TESTED, NO_CLAIM = "Not tested: the claim could not have been refuted", "No claim was given, nothing proven"
MOST_NAMED = 3  # settings that a sentence names; of more it says how many


@dataclass(frozen=True)
class Sharable:
    """What is to be shared, and the verb for it."""

    what: str
    verb: str = "share"
    shared: str = "shared"

    @property
    def question(self) -> str:
        return f"May {self.what} be {self.shared}?"

    @property
    def stop(self) -> str:
        return f"Do not {self.verb} {self.what}"

    def only_as(self, names: Sequence[str]) -> str:
        return f"{self.verb.capitalize()} {self.what} only as with {quoted(list(names))}"


UPDATES = Sharable("these updates")
SEEN = {  # by observers who see less than uploads
    "model": Sharable("this model", "publish", "published"),
    "downlink": Sharable("the models sent out"),
    "aggregate": Sharable("these sums"),
}


def unproven(weakest: Epsilon | None = None) -> str:
    """weakest: the row of which least is proven; a smaller ε of another one may stand beside it."""
    place = "" if weakest is None else f" {where(weakest)}"
    return (
        f"No useful bound (ε ≤ {USEFUL_EPSILON:g}) is proven{place}: a stronger attack may succeed. This is not a yes."
    )


def not_finished(attacks: Sequence[str]) -> list[str]:
    """attacks: that did not finish."""
    if not attacks:
        return []
    return [f"Not finished, for want of time: {listed(list(attacks))}."]


def too_little(bounding: Sequence[Epsilon]) -> str:
    """What a proof lacks, where it is of use for some rows and not for others: of which unit, or towards whom."""
    proven = [inf if row.proven is None else row.proven for row in bounding]
    useful = [row for row, epsilon in zip(bounding, proven, strict=True) if epsilon <= USEFUL_EPSILON]
    if not useful and max(proven, default=inf) < inf:
        return "nothing useful proven"
    if not useful or any(row.proven is None for row in bounding):
        return "nothing proven"
    worst = max(bounding, key=lambda row: row.proven or 0.0)
    if any(row.observer == worst.observer for row in useful):
        return f"too little proven per {worst.unit}"
    return f"too little proven towards {observer(worst.observer)}"


def right_of(row: Epsilon, observers: Sequence[str]) -> str:
    """The question that a proof limits every answer to."""
    seen = listed(list(dict.fromkeys(map(observer, observers))))
    place = row.adjacency if not row.delta else terms(row)
    return (
        f"The question is whether one {row.unit} took part, from all that {seen} sees ({place}); a guess is right half"
        " of the time."
    )


def right_of_worst(row: Epsilon, worst: Epsilon, right: str) -> str:
    """The same of another unit or observer, which counts too. right: the most that an attack has right there."""
    turned = ""
    if (row.unit, worst.unit) == ("client", "record"):
        turned = ", as one record can turn a whole clipped update around"
    return f"About one {worst.unit}, towards {observer(worst.observer)}, it is {right}{turned}."


def proven_answer(right: str, limited: bool, alone: bool = False) -> str:
    """alone: whether the same records were used before this training, which the proof says nothing of."""
    training = ""
    if alone:
        training = " for this training alone"
    if limited:
        return f"Proven within limits{training}: an attack may be right up to {right} of the time"
    return f"Proven{training}: no attack can be right more than {right} of the time"


def right_of_both(right: str, epsilon: float, delta: float) -> str:
    """Of this training and of what was spent before it. epsilon, delta: of both together."""
    if epsilon == inf:
        return "Whoever saw that too has no limit."
    return f"Whoever saw that too may be right up to {right} of the time (ε ≤ {at_most(epsilon)}, δ = {number(delta)})."


def as_declared(answer: str) -> str:
    """An answer of a proof that rests on what nobody checked.

    >>> [as_declared(answer) for answer in ("Proven: no attack succeeds", "Share them only as with “a: b”")]
    ['As declared, not checked: no attack succeeds', 'As declared, not checked: share them only as with “a: b”']
    """
    proven, _, said = answer.partition(": ")
    if not proven.startswith("Proven"):
        proven, said = "Proven", answer
    alone = proven.removeprefix("Proven").removeprefix(" within limits")
    return f"As declared, not checked{alone}: {said[0].lower()}{said[1:]}"


def some_guess(names: Sequence[str]) -> str:
    """names: of the settings whose models are no better than none."""
    return f"Not shown to be better than a guess: {quoted(list(names))}."


def not_covered(unit: str) -> str:
    return f"Other observers have an ε of their own, and people with several {unit}s are protected less."


def strong_allows(right: str) -> str:
    return f"A strong guarantee (ε ≤ {STRONG_EPSILON:g}) allows {right}."


def rests_on(stated: Sequence[str], owners: Sequence[str]) -> str:
    """stated: names of what is declared and not checked. owners: of which settings, none where there is only one."""
    whose = ""
    if owners:
        whose = f" of {quoted(list(owners))}"
    named = ""
    if stated:
        named = f": {listed(list(dict.fromkeys(stated)))}"
    return f"It rests on what the owner{whose} declares{named}."


def claim_not_tested(most: float) -> str:
    could = could_show(most)
    return f"{could[:1].upper()}{could[1:]}: take more draws."


def claim_not_refuted(row: Epsilon, on_condition_alone: bool) -> str:
    """on_condition_alone: only the bound with a condition could have refuted it."""
    condition = ""
    if on_condition_alone:
        condition = f" if {row.condition}"
    conditional = on_condition(row)
    shown = f"ε of at least {at_least(row.demonstrated)} whatever the noise"
    if conditional is not None:
        shown += f", of at least {conditional}"
    return f"A test could have refuted the claim{condition}. It demonstrated {shown}. {NO_PROOF}"


def of_several(names: Sequence[str], count: int) -> str:
    """Names of some of `count` settings; only how many, where they are many."""
    if len(names) <= MOST_NAMED:
        return quoted(list(names))
    return f"{len(names)} of {count} settings"


def most_right(right: str, names: Sequence[str]) -> str:
    return f"No attack can be right more than {right} of the time with {quoted(list(names))}."


def others(leaking: str, quiet: str) -> list[str]:
    """Why only the other settings may be shared. leaking, quiet: these in words, "" where there is none."""
    sentences = [f"Attacks got more with {leaking}."] if leaking else []
    if quiet:
        return [*sentences, f"Nothing useful is proven with {quiet}."]
    return sentences


def trainings_together(count: int, right: str, epsilon: float, delta: float) -> str:
    """What several trainings of the same people add up to."""
    return (
        f"That is of one training: whoever sees all {count}, of the same people, may be right up to {right} of the time"
        f" (ε ≤ {at_most(epsilon)}, δ = {number(delta)})."
    )


def several_leak(worst: str, leaking: int, count: int, quiet: str) -> str:
    """worst: what leaks with the worst setting. quiet: the settings without a leak in words, "" for none."""
    said = f"{worst} Settings that leak: {leaking} of {count}."
    if quiet:
        return f"{said} No leak was found with {quiet}, but nothing useful is proven."
    return said
