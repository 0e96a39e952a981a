"""The most that any attack got, or any test of ε showed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from ...judge.judgement import NO_LEAK, JudgedAttack
from ...results.checks import most_demonstrated, strength
from ...results.format import LEVELS, AttackResult, Level
from ...say import evidence as say
from ...say.words import percent
from ..facts import ReportedSetting

SHOWN = ("inversion", "linking", "attribute", "membership")  # kinds; of canaries the row of ε says more


@dataclass(frozen=True, eq=False)
class Leak:
    """The most that any attack got.

    kind: what shows it best: the images, the texts, a membership attack's ROC, or a number. level: of the leak by the
    judgement; "none found": it is only the best of the attempts. value, beside: for a number, it and what it is to be
    compared with, in words.
    """

    kind: Literal["images", "texts", "roc", "number"]
    setting: ReportedSetting
    level: Level
    said: str
    attack: AttackResult | None = None
    value: str = ""
    beside: str = ""

    @property
    def found(self) -> bool:
        return self.level != NO_LEAK

    @property
    def gravity(self) -> tuple[float, ...]:
        """The sort key of leaks; of one level a test of ε comes after every attack."""
        best = strength(self.attack) if self.attack else (-inf,)
        return LEVELS.index(self.level), *best


def strongest(settings: Sequence[ReportedSetting]) -> Leak | None:
    """The gravest of all settings' leaks; the best attempt where none leaked; None where nothing was tried."""
    return max((leak for setting in settings for leak in _leaks(setting)), key=lambda leak: leak.gravity, default=None)


def _leaks(setting: ReportedSetting) -> list[Leak]:
    """Each attack's leak, and that of the tests of ε."""
    attacks = [judged for judged in setting.judgement.attacks if judged.attack.scored and judged.attack.kind in SHOWN]
    stacked = {judged.attack.observer: LEVELS.index(judged.level) for judged in attacks if judged.attack.combines}
    shown = [judged for judged in attacks if not _combined(judged, stacked)]
    return [*(_of_attack(setting, judged) for judged in shown), *_tested(setting)]


def _combined(judged: JudgedAttack, stacked: Mapping[str, int]) -> bool:
    """Whether the attack that combines an observer's tests of membership speaks for this one: it was named before any
    score was seen, as the luckiest of many was not. It never speaks for one that shows a graver leak.
    """
    attack = judged.attack
    if attack.kind != "membership" or attack.combines:
        return False
    return stacked.get(attack.observer, -1) >= LEVELS.index(judged.level)


def _of_attack(setting: ReportedSetting, judged: JudgedAttack) -> Leak:
    attack, level = judged.attack, judged.level
    if attack.thing == "text":
        return Leak("texts", setting, level, say.rebuilt(attack, None, ""), attack)
    if attack.kind == "inversion":
        return Leak("images", setting, level, say.rebuilt(attack, *setting.compared(attack)), attack)
    if attack.kind == "linking":
        return Leak("number", setting, level, say.linked_line(attack), attack, percent(attack.value("linked")))
    if attack.kind == "attribute":
        return Leak("number", setting, level, say.guessed_line(attack), attack, percent(attack.value("attribute")))
    if attack.roc is not None:
        return Leak("roc", setting, level, say.recognised(attack), attack)
    return Leak("number", setting, level, say.recognised(attack), attack, say.area(attack))


def _tested(setting: ReportedSetting) -> list[Leak]:
    """The largest ε that a test demonstrated, beside the claim or proof that it refutes or keeps within; none without a
    test. A false claim about observers whom the run is not about is said beside ε.
    """
    judgement, level = setting.judgement, NO_LEAK
    refuted = [refutation for refutation in judgement.refuted if not refutation.aside]
    certain = [refutation for refutation in refuted if not refutation.on_condition]
    tests = [row for row in judgement.epsilon if row.tested and not row.aside]
    if refuted:
        strongest = max(certain or refuted, key=lambda refutation: most_demonstrated(refutation.shown))
        shown, limit = strongest.shown, strongest.row
        level = "high"
        if certain:
            level = "severe"
    elif tests:
        shown = limit = max(tests, key=most_demonstrated)
        level = "moderate" if judgement.leaking else NO_LEAK
    else:
        return []
    return [
        Leak("number", setting, level, say.tested(shown), None, say.least_line(shown), say.limits(limit, judgement))
    ]
