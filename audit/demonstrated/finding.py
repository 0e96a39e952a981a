"""What a demonstrated bound says about a claim, or about a proof."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from .bound import LowerBound


@dataclass(frozen=True)
class Finding:
    """A level, and a sentence that says the same with the numbers."""

    level: Literal["violated", "consistent", "nothing shown"]
    sentence: str


def violation(
    demonstrated: LowerBound, claimed: float, delta: float, what: Literal["claim", "proof"] = "claim"
) -> Finding:
    """Compares a bound with a claim (or proof) of (claimed, delta)-DP for the same observer, unit and adjacency.

    what: the word for `claimed` in the sentence, "proof" where it is what the accountant proves.

    An audit whose ceiling does not exceed the claim could never have refuted it, so its silence is not called
    consistency; nor is that of an estimate, which refutes nothing.

    Raises ValueError for a claim below 0 or at another delta than the bound's.

    >>> shown = LowerBound(1.2, 1e-5, 0.95, "clopper-pearson", "members", {}, 0.0, 2.6)
    >>> violation(shown, 1.0, 1e-5).sentence
    'claim violated: at least ε = 1.2 was demonstrated with 0.95 confidence, the claim is ε = 1'
    >>> violation(shown, 2.0, 1e-5, "proof").sentence
    'consistent with the proof: ε = 1.2 was demonstrated, the proof is ε = 2'
    >>> violation(shown, 2.0, 1e-5).level, violation(shown, 8.0, 1e-5).level
    ('consistent', 'nothing shown')
    """
    if not claimed >= 0:
        raise ValueError(f"the claimed ε must be ≥ 0, got {claimed}")
    if delta != demonstrated.delta:
        raise ValueError(f"a claim and a bound are compared at the same δ, got {delta:g} and {demonstrated.delta:g}")
    shown, stated = f"ε = {demonstrated.epsilon:.3g}", f"the {what} is ε = {claimed:.3g}"
    if demonstrated.is_estimate:
        side = "above" if demonstrated.epsilon > claimed else "not above"
        return Finding(
            "nothing shown", f"nothing shown: {shown} is an estimate, {side} the {what} but no bound; {stated}"
        )
    if demonstrated.epsilon > claimed:
        condition = f" if {demonstrated.assumption}" if demonstrated.assumption else ""
        level = f"with {demonstrated.confidence:.4g} confidence"
        return Finding("violated", f"{what} violated{condition}: at least {shown} was demonstrated {level}, {stated}")
    if demonstrated.ceiling <= claimed < inf:
        most = f"ε = {demonstrated.ceiling:.3g}"
        return Finding("nothing shown", f"nothing shown: an audit of this size could show at most {most}, {stated}")
    return Finding("consistent", f"consistent with the {what}: {shown} was demonstrated, {stated}")
