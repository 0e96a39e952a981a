"""What a protocol measured: the numbers of an entry, and the two bounds that a claim or a proof is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import Any, Literal

from ..proof.theorems.gaussian import gaussian_multiplier
from ..say.words import at_least, could_show, number
from .draws import MechanismAudit, delta_at
from .estimators import LowerBound, violation
from .sequential import Taken


@dataclass(frozen=True)
class Measured:
    """What a protocol measured: n trials a world, and numbers as the entry has them.

    counted: by counting, whatever the mechanism. if_gaussian: on the condition that it names; None where none is valid.
    why_not: why no bound may take the scores for Gaussian-shaped, "" where one may.
    how: in which way `if_gaussian` came about, where its method's name does not say it. taken: how draws were taken,
    None where their number was fixed.
    """

    counted: LowerBound
    if_gaussian: LowerBound | None
    n: int
    manner: str
    why_not: str
    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float, float] | None]
    controls: dict[str, dict[str, float | None]]
    how: str = ""
    taken: Taken | None = None

    def delta_at(self, epsilon: float) -> float:
        """How badly a claim of `epsilon` fails: the largest δ that counting refutes at it."""
        if self.taken:
            return self.taken.delta_at(epsilon)
        return delta_at(self.judging(epsilon), epsilon)

    def judging(self, value: float) -> LowerBound:
        """The bound that an ε of `value`, claimed or proven, is judged by."""
        counted, other = self.counted, self.if_gaussian
        if other is None:
            return counted
        by_condition = judged_on_condition((counted.epsilon, counted.ceiling), (other.epsilon, other.ceiling), value)
        if by_condition:
            return other
        return counted

    @property
    def ceiling(self) -> float:
        """The most that either bound could have shown."""
        return max(bound.ceiling for bound in (self.counted, self.if_gaussian) if bound is not None)

    @property
    def shown(self) -> dict[str, Any]:
        """Both bounds, as a row of the ε table names their fields."""
        counted, other = self.counted, self.if_gaussian
        row = {"demonstrated": counted.epsilon, "confidence": counted.confidence, "ceiling": counted.ceiling}
        if other is None:
            return row
        on_condition = {"demonstrated_on_condition": other.epsilon, "ceiling_on_condition": other.ceiling}
        return row | on_condition | {"condition": other.assumption}

    def notes(self, canary: str, told: str) -> list[str]:
        """Both bounds in sentences: what was demonstrated on which canary, and what it rests on."""
        bounds = [bound for bound in (self.counted, self.if_gaussian) if bound is not None]
        said = [f"Demonstrated by {' and '.join(b.method for b in bounds)} on canary {canary}, {told}."]
        if self.taken is not None:
            said.append(self.taken.sentence)
        if self.if_gaussian is not None:
            how = ""
            if self.how:
                how = f"; {self.how}"
            said.append(f"If {self.if_gaussian.assumption}, ε is {bound_said(self.if_gaussian)}{how}.")
            said.append(f"Without that condition, by counting alone, ε is {bound_said(self.counted)}.")
        if (bits := self.metrics.get("exposure")) is not None:
            without = number(self.controls["no canary"]["exposure"])
            said.append(f"The planted number has {number(bits)} bits of exposure on average, and {without} without it.")
        return said


ANOTHER_SIZE = "the noise has another size in the world with the canary"


def measured_of(audit: MechanismAudit, n: int, manner: str, why_not: str) -> Measured:
    """An audit's numbers. No interval of a lower bound ends below ∞: a ceiling is the most that so many trials can
    show, and says nothing of the most that leaks.
    """
    counted, counts = audit.counted, audit.counted.counts
    metrics: dict[str, float | None] = {
        "epsilon": counted.epsilon,
        "epsilon_ceiling": counted.ceiling,
        "shift": None if isnan(audit.shift) else audit.shift,
        "tpr": counts["tp"] / (counts["tp"] + counts["fn"]),
        "fpr": counts["fp"] / (counts["fp"] + counts["tn"]),
    }
    intervals: dict[str, tuple[float, float] | None] = {"epsilon": (counted.epsilon, inf)}
    if (other := audit.if_gaussian) is not None:
        mu = 0.0
        if 0 < other.epsilon < inf:
            mu = 1 / gaussian_multiplier(other.epsilon, other.delta)
        metrics |= {"epsilon_if_gaussian": other.epsilon, "epsilon_if_gaussian_ceiling": other.ceiling, "mu": mu}
        intervals["epsilon_if_gaussian"] = (other.epsilon, inf)
    controls: dict[str, dict[str, float | None]] = {"no canary": {"epsilon": audit.chance.epsilon}}
    if audit.exposure is not None:
        metrics["exposure"], controls["no canary"]["exposure"] = audit.exposure
    return Measured(
        counted,
        audit.if_gaussian,
        n,
        manner,
        why_not or ("" if audit.one_size else ANOTHER_SIZE),
        metrics,
        intervals,
        controls,
        taken=audit.taken,
    )


def judged_on_condition(counted: tuple[float, float], on_condition: tuple[float, float], value: float) -> bool:
    """Whether an ε is judged by the bound on a condition: where counting does not exceed it, and that bound does or
    alone could have.

    Both bounds hold together, so either may refute. Args: each bound with its ceiling; the claimed or proven ε.
    """
    exceeded = counted[0] <= value < on_condition[0]
    return exceeded or counted[1] <= value < on_condition[1]


def bound_said(bound: LowerBound) -> str:
    """What a bound demonstrates, and the most that it could have."""
    return f"at least {at_least(bound.epsilon)} ({could_show(bound.ceiling)})"


def judgement(bound: LowerBound, value: float, what: Literal["claim", "proof"]) -> str:
    """What a bound says about a claimed or proven ε of `value`, a sentence with its probability of error."""
    sentence = violation(bound, value, bound.delta, what).sentence
    return f"{sentence[:1].upper()}{sentence[1:]} (probability of error at most {1 - bound.confidence:.2g})."
