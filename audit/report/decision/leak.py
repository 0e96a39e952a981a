"""The most that any attack got, or any test of ε showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from ...results import words
from ...results.checks import (
    STRICT_FPR,
    clearly_member,
    clearly_rebuilt,
    leaking,
    most_demonstrated,
    picked,
    refutations,
    refuted_on_condition,
    severely_rebuilt,
    strength,
    strict_point,
)
from ...results.format import AttackResult
from ..facts import ReportedSetting


@dataclass(frozen=True, eq=False)
class Leak:
    """The most that any attack got.

    kind: what shows it best: the images, a membership attack's ROC, or a number.
    found: whether it is a leak by the verdict's rules; else it is only the best of the attempts.
    value, beside: for a number, it and what it is to be compared with, in words.
    """

    kind: Literal["images", "roc", "number"]
    setting: ReportedSetting
    found: bool
    said: str
    attack: AttackResult | None = None
    value: str = ""
    beside: str = ""


def strongest(settings: Sequence[ReportedSetting]) -> Leak | None:
    """The gravest of all settings' leaks; the best attempt where none leaked; None where nothing was tried."""
    found = [
        (grade, strength(leak.attack) if leak.attack else (-inf,), leak)
        for setting in settings
        for grade, leak in _leaks(setting)
    ]
    return max(found, key=lambda entry: entry[:2])[2] if found else None


def _leaks(setting: ReportedSetting) -> list[tuple[int, Leak]]:
    """Each attack's leak, and that of the tests of ε, with how grave it is: 4 at most, 0 is no leak."""
    results = setting.results
    leaks = []
    for attack in results.attacks:
        own = setting.checks(attack)
        if attack.kind not in ("inversion", "linking", "membership") or not attack.scored:
            continue
        grade = 1 if any(check.beats for check in own) else 0
        if severely_rebuilt(own):
            grade = 4
        elif clearly_rebuilt(attack, own) or clearly_member(own):
            grade = 3
        if attack.kind == "inversion":
            leaks.append((grade, Leak("images", setting, grade > 0, _rebuilt(setting, attack), attack)))
        elif attack.kind == "linking":
            value = words.percent(attack.value("linked"))
            leaks.append((grade, Leak("number", setting, grade > 0, _linked(attack), attack, value, "")))
        elif attack.roc is not None:
            leaks.append((grade, Leak("roc", setting, grade > 0, _recognised(attack), attack)))
        else:
            leaks.append((grade, Leak("number", setting, grade > 0, _recognised(attack), attack, _area(attack), "")))
    if (tested := _tested(setting)) is not None:
        leaks.append(tested)
    return leaks


def _rebuilt(setting: ReportedSetting, attack: AttackResult) -> str:
    share, margin = attack.value(picked(attack).share), attack.value("psnr_margin")
    control, against = setting.compared(attack)
    said = []
    if share is not None:
        interval = attack.intervals.get(picked(attack).share)
        beside = [words.between(interval)] if interval else []
        beside += [] if control is None else [f"{against} {words.percent(control)}"]
        of = "" if attack.n is None else f" of {words.times(attack.n, attack.thing)}"
        exact = attack.value("exact")
        back = f", {words.percent(exact)} came back beyond doubt" if exact else ""
        compared = f" ({'; '.join(beside)})" if beside else ""
        said.append(f"{words.percent(share)}{of} re-identified{compared}{back}")
    if margin is not None and margin > 0:
        said.append(f"{words.number(margin, 2)} dB closer to the original than the best control")
    elif margin is not None:
        said.append("no closer to the original than the best control")
    return ", ".join(said)


def _linked(attack: AttackResult) -> str:
    interval = attack.intervals.get("linked")
    between = f"{words.between(interval)}; " if interval else ""
    share, chance = words.percent(attack.value("linked")), words.percent(attack.value("linked_chance"))
    return f"{share} of the pairs of messages of one anonymous sender linked ({between}chance {chance})"


def _recognised(attack: AttackResult) -> str:
    point = strict_point(attack)
    said = f"{_area(attack)} (guessing 0.5)"
    if point is not None:
        said = (
            f"{words.percent(point[0])} of the members recognised while {words.percent(STRICT_FPR)} of outsiders are"
            f" accused; {said}"
        )
    return said


def _area(attack: AttackResult) -> str:
    """AUC, with its interval."""
    interval = attack.intervals.get("auc")
    between = f" ({words.at_least(interval[0])} to {words.at_most(interval[1])})" if interval else ""
    return f"AUC {words.number(attack.value('auc'))}{between}"


def _tested(setting: ReportedSetting) -> tuple[int, Leak] | None:
    """The largest ε that a test demonstrated, beside the claim or proof that it refutes or keeps within."""
    rows = setting.results.epsilon
    claims = [pair for pair in refutations(rows) if not pair[1].aside]  # of others it is said beside ε
    pairs = [*claims, *refutations(rows, "proven")]
    doubts = [pair for pair in refuted_on_condition(rows) if not pair[1].aside]
    if pairs or doubts:
        shown, limit = max(pairs or doubts, key=lambda pair: most_demonstrated(pair[0]))
        grade = 4 if pairs else 3
    else:
        rows = tuple(row for row in rows if not row.aside)
        shown = limit = max(rows, key=most_demonstrated, default=None)  # type: ignore[assignment]
        if shown is None or not any(row.demonstrated is not None or row.condition for row in rows):
            return None
        grade = 1 if leaking(rows) else 0
    counted = shown.demonstrated is not None and shown.demonstrated >= most_demonstrated(shown)
    value = f"ε ≥ {words.at_least(shown.demonstrated if counted else shown.demonstrated_on_condition)}"
    nothing = "ε not priced" if setting.results.verdict.proof == "not priced" else "nothing proven"
    beside = f"{words.at_most(limit.proven)} proven" if limit.proven is not None else nothing
    if limit.claimed is not None:
        beside = f"{words.claim(limit.claimed, limit.claimed_by)} claimed, {beside}"
    condition = "" if counted else f", if {shown.condition}"
    if not counted and shown.demonstrated is not None:
        condition += f" (at least {words.at_least(shown.demonstrated)} in any case)"
    said = f"demonstrated by a test, {words.where(shown)}{condition}{words.chosen(shown)}"
    return grade, Leak("number", setting, grade > 0, said, None, value, beside)
