"""What a setting has to keep, and which of those that keep it is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, log
from statistics import mean
from typing import Literal

from ..options.study import GoalLimits
from ..say.words import at_most, between, number, percent, percent_at_most
from .outcome import Performance

By = Literal["proof", "attack", "measurement"]
DEFAULT_LEAKAGE = 0.1  # where nobody says what is to be kept: an attack may single out one record in ten beyond chance


@dataclass(frozen=True)
class Kept:
    """One goal, judged of one setting.

    goal: in words. value: the estimate, None where it was not measured; said: it in words. kept: by the estimate alone;
    shown: by the limit of its interval, an accuracy by its estimate, as a model that is worse than it seemed harms
    nobody's privacy. by: what it is kept by: a proof, which holds against any attack; attacks that
    were tried; or a measurement of the trained model. excess: by how much it is missed, as a share of the goal; 0 where
    it is kept.
    """

    goal: str
    value: float | None
    said: str
    kept: bool
    shown: bool
    by: By
    excess: float


@dataclass(frozen=True)
class Goals(GoalLimits):
    """Limits, judged of what was measured and proven."""

    @property
    def of_attacks(self) -> bool:
        """Whether a limit is on what an attack gets, which takes the truth to know."""
        limits = (self.reidentified_at_most, self.words_told_at_most, self.leakage_at_most)
        return self.none_above_control or any(limit is not None for limit in limits)

    @property
    def words(self) -> list[str]:
        """Each limit in words."""
        return [kept.goal for kept in self.judged(None, None)]

    def judged(self, outcome: Performance | None, epsilon: float | None) -> list[Kept]:
        """Every goal, judged.

        Args:
            outcome: what was measured, None for nothing. epsilon: what is proven.
        """
        measured = outcome or Performance()
        return [
            *self._accuracy(measured),
            *self._area(measured),
            *self._reidentified(measured),
            *self._words_told(measured),
            *self._leakage(measured),
            *self._above_control(measured),
            *self._epsilon(epsilon),
        ]

    def out_of_reach(self, outcome: Performance) -> bool:
        """Whether the model is less accurate than is asked, whatever attacks get."""
        return not all(kept.kept for kept in (*self._accuracy(outcome), *self._area(outcome)))

    def beyond_training(self, accuracies: Sequence[float], areas: Sequence[float]) -> bool:
        """Whether trainings without noise, of such accuracies and AUC, miss what is asked of the model too."""
        asked = ((self.accuracy_at_least, accuracies), (self.auc_at_least, areas))
        return any(least is not None and values and mean(values) < least for least, values in asked)

    def by_area(self, outcome: Performance) -> bool:
        """Whether settings are compared by AUC: where it is limited, or where one class is so frequent that accuracies
        hardly differ, and accuracy is not limited.
        """
        if self.auc_at_least is not None:
            return True
        return self.accuracy_at_least is None and bool(outcome.balanced) and outcome.area is not None

    def worth(self, outcome: Performance) -> float | None:
        """What is to be large: the AUC where settings are compared by it; else accuracy, or minus the loss where there
        is none.
        """
        if self.by_area(outcome):
            return outcome.area
        if outcome.accuracy is not None:
            return outcome.accuracy
        if outcome.loss is None:
            return None
        return -outcome.loss

    def limits(self, outcome: Performance) -> tuple[float, float] | None:
        """Of `worth`; None where they are not known."""
        if self.by_area(outcome):
            return outcome.area_limits
        return outcome.accuracy_limits

    def alike(self, one: Performance, other: Performance) -> bool:
        """Whether the worth of two settings is not shown to differ: by less than both half-intervals together."""
        worths, limits = (self.worth(one), self.worth(other)), (self.limits(one), self.limits(other))
        if worths[0] is None or worths[1] is None or limits[0] is None or limits[1] is None:
            return False
        halves = [(high - low) / 2 for low, high in (limits[0], limits[1])]
        return abs(worths[0] - worths[1]) <= hypot(*halves)

    def figure(self, outcome: Performance | None) -> str:
        """What settings are compared by beside leakage and ε, as a table's column has it."""
        if self.by_area(outcome or Performance()):
            return "AUC"
        return "accuracy"

    def figure_said(self, outcome: Performance | None) -> str:
        """That of one setting; "" where there is none, as of a regression."""
        measured = outcome or Performance()
        if self.by_area(measured):
            if measured.area is None:
                return ""
            return number(measured.area, 3)
        if measured.accuracy is None:
            return ""
        return percent(measured.accuracy, 3)

    def _accuracy(self, outcome: Performance) -> list[Kept]:
        if (least := self.accuracy_at_least) is None:
            return []
        value, limits = outcome.accuracy, outcome.accuracy_limits
        excess = inf if value is None else max(0.0, least - value) / max(least, 0.01)
        said = _beside(value, limits, *outcome.beside_accuracy, digits=3)  # as its rival beside it
        ok = value is not None and value >= least
        return [Kept(f"accuracy at least {percent(least)}", value, said, ok, ok, "measurement", excess)]

    def _area(self, outcome: Performance) -> list[Kept]:
        if (least := self.auc_at_least) is None:
            return []
        goal, value, limits = f"AUC at least {number(least, 3)}", outcome.area, outcome.area_limits
        if value is None or limits is None:
            return [Kept(goal, None, "not measured", False, False, "measurement", inf)]
        said = f"{number(value, 3)} ({number(limits[0], 3)} to {number(limits[1], 3)}; guessing 0.5)"
        excess = max(0.0, least - value) / max(least, 0.01)
        return [Kept(goal, value, said, value >= least, value >= least, "measurement", excess)]

    def _reidentified(self, outcome: Performance) -> list[Kept]:
        if (most := self.reidentified_at_most) is None:
            return []
        leak = outcome.reidentified
        goal = f"re-identified at most {percent(most)}"
        if leak is None:
            return [Kept(goal, None, "not measured", False, False, "attack", inf)]
        own = [each for each in outcome.leaks if each.attack.startswith("inversion")]
        proof = all(each.ceiling is not None and each.ceiling <= most for each in own)
        widest = max(own, key=lambda each: each.high)
        shown = proof or widest.high <= most
        excess = max(0.0, leak.share - most) / max(most, 0.01)
        said = _beside(leak.share, (leak.low, leak.high)) + f" of {leak.n} records"
        if widest.high > leak.high:  # of fewer images, say: it decides
            said += f", and at most {percent_at_most(widest.high)} {widest.what}"
        return [Kept(goal, leak.share, said, leak.share <= most, shown, "proof" if proof else "attack", excess)]

    def _words_told(self, outcome: Performance) -> list[Kept]:
        if (most := self.words_told_at_most) is None:
            return []
        goal, told = f"words told at most {percent(most)}", outcome.words_told
        if told is None:
            return [Kept(goal, None, "not measured", False, False, "attack", inf)]
        said = _beside(told.share, (told.low, told.high), f"{percent(told.control)} without any message")
        excess = max(0.0, told.share - most) / max(most, 0.01)
        kept = f"{said} of {told.n} texts"
        return [Kept(goal, told.share, kept, told.share <= most, told.high <= most, "attack", excess)]

    def _leakage(self, outcome: Performance) -> list[Kept]:
        if (most := self.leakage_at_most) is None:
            return []
        goal = f"singled out beyond chance at most {percent(most)}"
        value, limit = outcome.leakage, outcome.most_leakage
        if value is None or limit is None:
            return [Kept(goal, None, "not measured", False, False, "attack", inf)]
        strongest = outcome.strongest
        found = "" if strongest is None else f" ({strongest.what})"
        said = f"{percent(value)}{found}, at most {percent_at_most(limit)} by any attack tried"
        excess = max(0.0, value - most) / max(most, 0.01)
        return [Kept(goal, value, said, value <= most, limit <= most, "attack", excess)]

    def _above_control(self, outcome: Performance) -> list[Kept]:
        """The search tests nothing, so there nothing is missed."""
        if not self.none_above_control:
            return []
        goal, above = "no attack clearly above its control", outcome.above_control
        if above is None:
            return [Kept(goal, None, "not measured", True, False, "attack", 0.0)]
        said = "none" if not above else f"{len(above)}: {', '.join(above)}"
        return [Kept(goal, float(len(above)), said, not above, not above, "attack", float(len(above)))]

    def _epsilon(self, epsilon: float | None) -> list[Kept]:
        if (most := self.epsilon_at_most) is None:
            return []
        goal = f"proven ε at most {number(most)}"
        if epsilon is None:
            return [Kept(goal, None, "not priced", False, False, "proof", inf)]
        kept = epsilon <= most
        excess = 0.0
        if not kept:
            excess = inf if epsilon == inf else log(epsilon / most)
        return [Kept(goal, epsilon, at_most(epsilon), kept, kept, "proof", excess)]

    def order(self, outcome: Performance, epsilon: float | None) -> tuple[float, ...]:
        """The sort key of settings, the best first."""
        worth = self.worth(outcome)
        if worth is None:
            worth = -inf
        leakage = inf if outcome.leakage is None else outcome.leakage
        loss = inf if epsilon is None else epsilon
        if self.best == "accuracy":
            return (-worth, leakage, loss)
        return (leakage, loss, -worth)


def with_defaults(goals: Goals) -> Goals:
    """The goals, or, where there is no limit at all, `DEFAULT_LEAKAGE`."""
    of_model = (goals.accuracy_at_least, goals.auc_at_least)
    limits = (*of_model, goals.epsilon_at_most)
    if goals.of_attacks or any(limit is not None for limit in limits):
        return goals
    return Goals(leakage_at_most=DEFAULT_LEAKAGE, best=goals.best)


def _beside(value: float | None, limits: tuple[float, float] | None, *more: str, digits: int = 2) -> str:
    if value is None or limits is None:
        return "not measured"
    return f"{percent(value, digits)} ({'; '.join([between(limits), *more])})"
