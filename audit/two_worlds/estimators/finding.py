"""What a demonstrated bound says about a claim, or about a proof."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from ...say.words import at_least, could_show
from .bound import LowerBound

VIOLATED_IF: Final = "violated on a condition"
BY_REPLAY: Final = "violated by replay"


@dataclass(frozen=True)
class Finding:
    """A level, and a sentence that says the same with the numbers.

    level: "violated" by a bound that assumes nothing of the mechanism; "violated on a condition" by one that holds only
      if something does, which the sentence names; "violated by replay": no bound refutes the claim, and a replay shows
      that what it takes for granted is not so.
    """

    level: Literal["violated", "violated on a condition", "violated by replay", "consistent", "nothing shown"]
    sentence: str


def violation(
    demonstrated: LowerBound, claimed: float, delta: float, what: Literal["claim", "proof"] = "claim"
) -> Finding:
    """Compares a bound with a claim (or proof) of (claimed, delta)-DP for the same observer, unit and adjacency.

    what: the word for `claimed` in the sentence, "proof" where it is what the accountant proves.

    An audit whose ceiling does not exceed the claim could never have refuted it, so its silence is not called
    consistency. A bound with an assumption never gives the plain level "violated".

    Raises ValueError for a claim below 0 or at another delta than the bound's.

    >>> shown = LowerBound(1.2, 1e-5, 0.95, "clopper-pearson", {}, 2.6)
    >>> violation(shown, 1.0, 1e-5).sentence
    'claim violated: at least ε = 1.2 was demonstrated with 0.95 confidence, the claim is ε = 1'
    >>> violation(shown, 2.0, 1e-5, "proof").sentence
    'consistent with the proof: ε = 1.2 was demonstrated, the proof is ε = 2'
    >>> violation(shown, 2.0, 1e-5).level, violation(shown, 8.0, 1e-5).level
    ('consistent', 'nothing shown')
    >>> from dataclasses import replace
    >>> violation(replace(shown, assumption="the noise is Gaussian"), 1.0, 1e-5).level
    'violated on a condition'
    """
    if not claimed >= 0:
        raise ValueError(f"the claimed ε must be ≥ 0, got {claimed}")
    if delta != demonstrated.delta:
        raise ValueError(f"a claim and a bound are compared at the same δ, got {delta:g} and {demonstrated.delta:g}")
    stated = f"the {what} is ε = {claimed:.3g}"
    shown = f"ε = {at_least(demonstrated.epsilon)}"  # a lower limit, rounded down
    condition = ""
    if demonstrated.assumption:
        condition = f" if {demonstrated.assumption}"
    if demonstrated.epsilon > claimed:
        sure = f"with {demonstrated.confidence:.4g} confidence"
        return Finding(
            VIOLATED_IF if condition else "violated",
            f"{what} violated{condition}: at least {shown} was demonstrated {sure}, {stated}",
        )
    if demonstrated.ceiling <= claimed < inf:
        return Finding("nothing shown", f"nothing shown: {could_show(demonstrated.ceiling)}, {stated}")
    return Finding("consistent", f"consistent with the {what}: {shown} was demonstrated{condition}, {stated}")
