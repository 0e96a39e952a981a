"""What a report says of membership inference: the table's rows, which ε covers whom, the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...attacks import ATTACKS
from ..judge.question import bounding_rows
from ..results.format import AttackResult, ClientRow, Results, TprPoint
from ..say import words
from . import plots
from .facts import ReportedSetting, attack_name

LEVELS = (0.1, 0.01, 0.001, 0.0001, 0.0)


def membership(setting: ReportedSetting) -> dict[str, Any] | None:
    """Attacks by observer: what combines the others, then the strongest first; None where there are none."""
    attacks = [attack for attack in setting.by_strength if attack.kind == "membership"]
    attacks.sort(key=lambda attack: not attack.combines)
    if not attacks:
        return None
    by_observer: dict[str, list[AttackResult]] = {}
    for attack in attacks:
        by_observer.setdefault(attack.observer, []).append(attack)
    best = next((attack for attack in attacks if attack.histogram is not None), None)
    return {
        "observers": [_seen_by(observer, own, len(by_observer) > 1) for observer, own in by_observer.items()],
        "levels": [words.percent(level) for level in LEVELS],
        "coverage": coverage(setting.results),
        "histogram": None if best is None or best.histogram is None else plots.histogram(best.histogram),
        "best": "" if best is None else attack_name(best),
        "best_attack": best,
    }


def _seen_by(observer: str, attacks: Sequence[AttackResult], several: bool) -> dict[str, Any]:
    labels = _labels(attacks)
    known = [(label, attack.roc) for label, attack in zip(labels, attacks) if attack.roc is not None]
    curves = dict(known[: len(plots.LINES)])  # the strongest, each with a line of its own
    rows = [_row(label, attack) for label, attack in zip(labels, attacks)]
    return {
        "name": words.observer(observer),
        "several": several,
        "counts": rows[0]["counts"],
        "rows": rows,
        "roc": plots.roc_plot(curves) if curves else None,
        "names": list(curves),
    }


def _labels(attacks: Sequence[AttackResult]) -> list[str]:
    """A name for each attack of one observer, numbered where two share it (their settings differ)."""
    names = [attack.attack for attack in attacks]
    return [name if names.count(name) == 1 else f"{name} #{names[: i + 1].count(name)}" for i, name in enumerate(names)]


def _row(label: str, attack: AttackResult) -> dict[str, Any]:
    shuffled = attack.controls.get("shuffled", {})
    low, high = shuffled.get("auc_low"), shuffled.get("auc_high")
    members, others = attack.value("n_members"), attack.value("n_nonmembers")
    area = attack.intervals.get("auc")
    return {
        "name": label,
        "about": ATTACKS[attack.attack].about if attack.attack in ATTACKS else "",
        "attack": attack,
        "auc": attack.value("auc"),
        "auc_interval": area and _span(*area),
        "auc_ceiling": words.area_ceiling(attack.value("auc_ceiling")),
        "shuffled": words.number(shuffled.get("auc")) if low is None or high is None else _span(low, high),
        "balanced": attack.value("balanced_accuracy"),
        "shuffled_balanced": shuffled.get("balanced_accuracy"),
        "points": [_point(level, point, why) for level, point, why in points(attack)],
        "counts": "" if members is None else f"{words.number(members)} members, {words.number(others)} others",
        "classes": [(row.label, row) for row in attack.per_class],
        "clients": [(row.client, row) for row in _shown(attack.per_client)],
        "more_clients": _left_out(attack.per_client),
        "exposure": _exposure(attack),
        "lack": "; ".join(dict.fromkeys(attack.not_measured.values())),
        "histogram": None if attack.histogram is None else plots.histogram(attack.histogram),
    }


def _exposure(attack: AttackResult) -> str:
    """What members' numbers are exposed by, beside outsiders'; "" of an attack that does not ask."""
    value, others = attack.value("exposure"), attack.controls.get("outsiders", {}).get("exposure")
    if value is None or others is None:
        return ""
    interval = attack.intervals.get("exposure")
    between = "" if interval is None else f" ({_span(*interval)})"
    return f"exposure {words.number(value)} bits{between}, outsiders {words.number(others)}"


CLIENTS = 30  # that a page lists


def _shown(rows: Sequence[ClientRow]) -> list[ClientRow]:
    """In their order, those with a value; of too many those of whom most is shown, by the lower end."""
    known = [row for row in rows if row.auc is not None]
    least = sorted(known, key=lambda row: row.interval[0] if row.interval else 0.0, reverse=True)[:CLIENTS]
    return [row for row in known if row in least]


def _left_out(rows: Sequence[ClientRow]) -> str:
    """Which clients are not listed and why, "" where all are.

    >>> known = [ClientRow(client=f"client-{i}", n_members=1, n_nonmembers=1, auc=0.5) for i in range(40)]
    >>> _left_out(known), _left_out([ClientRow(client="client-40", n_members=0, n_nonmembers=0)])
    ('The 30 of 40 with the largest lower limits; the others are in results.json.', '1 client has nobody to compare.')
    """
    known = [row for row in rows if row.auc is not None]
    said = []
    if len(known) > CLIENTS:
        said.append(f"The {CLIENTS} of {len(known)} with the largest lower limits; the others are in results.json.")
    if without := len(rows) - len(known):
        said.append(f"{words.times(without, 'client')} {'has' if without == 1 else 'have'} nobody to compare.")
    return " ".join(said)


def _span(low: float, high: float) -> str:
    return f"{words.at_least(low)} to {words.at_most(high)}"


def _point(level: float, point: TprPoint | None, why: str) -> dict[str, str]:
    cell = {"level": words.percent(level), "tpr": "", "interval": "", "realised": "", "lack": why}
    if point is None:
        return cell
    cell |= {"tpr": words.percent(point.tpr), "lack": ""}
    if point.interval is not None:
        cell["interval"] = words.between(point.interval)
    if point.realised_fpr is not None:
        reached = [words.percent(point.realised_fpr)]
    else:
        reached = []
    return {**cell, "realised": "; ".join(filter(None, (*reached, said_ceiling(point))))}


def said_ceiling(point: TprPoint) -> str:
    """The most that the proof allows any attack at this point, in words."""
    if point.ceiling is None:
        return ""
    return words.ceiling_said(point.ceiling)


def points(attack: AttackResult) -> list[tuple[float, TprPoint | None, str]]:
    """Each level with its point, or with why there is none: a rate needs at least one outsider to be wrong about."""
    measured = {round(point.fpr, 9): point for point in attack.tpr_points}
    others = attack.value("n_nonmembers")

    def why(level: float) -> str:
        needed = 1
        if level:
            needed = math.ceil(1 / level - 1e-9)
        if others is not None and others < needed:
            return f"needs {words.number(needed)} others"
        return "not measured"

    return [(level, measured.get(level), "" if level in measured else why(level)) for level in LEVELS]


def coverage(results: Results) -> list[str]:
    """Which ε covers whom: the proven and claimed ε by observer, and the attacks that no proven ε bounds."""
    observers = [row.observer for row in results.epsilon if not row.aside]
    rows = {observer: row for observer, row in bounding_rows(observers, results.epsilon).items() if row}
    if not rows:
        return []
    proven: dict[float, list[str]] = {}
    for observer, row in rows.items():
        proven.setdefault(math.inf if row.proven is None else row.proven, []).append(words.observer(observer))
    unbounded = proven.pop(math.inf, [])
    bounds = [f"ε = {words.number(value)} towards {words.listed(names)}" for value, names in sorted(proven.items())]
    if unbounded:
        bounds.append(f"no finite ε towards {words.listed(unbounded)}")
    units = " or ".join(sorted({row.unit for row in rows.values()}))
    sentences = [f"Proven for one {units}: {'; '.join(bounds)}."]
    claims = {(row.claimed, row.unit, row.observer) for row in results.epsilon if row.claimed is not None}
    sentences += [
        f"The claimed ε of {words.number(value)} for one {unit} speaks of {words.observer(who)} only."
        for value, unit, who in sorted(claims)
    ]
    tried = dict.fromkeys(attack.observer for attack in results.attacks if attack.kind == "membership")
    open_to = [words.observer(o) for o in tried if o not in rows or rows[o].proven in (None, math.inf)]
    if open_to:
        sentences.append(f"So no proven ε bounds the attacks by {words.listed(open_to)}.")
    return sentences
