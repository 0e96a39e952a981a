"""What a report says of one RESULTS folder, whatever its format: names, facts, warnings, rows of tables; all as text or
plain values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...defenses.presets import PRESETS
from ..judge.judgement import JudgedAttack, Judgement, Limit, Refutation, judgement_of
from ..results.checks import Check, picked, strength
from ..results.format import CEILINGS, FILE, AttackResult, AuditedSetup, Epsilon, Results
from ..say import words
from ..say.accuracy import accuracy_said, without_noise
from ..say.change import noised
from ..say.metrics import METRICS, Metric, metric
from ..say.reasons import reasons
from ..say.verdict import sentences
from ..say.warnings import implied, unscored
from .together import combined, labels, no_noise_accuracy, noiseless

CONTROLS = ("gray", "mean", "label_mean", "random")


@dataclass(frozen=True, eq=False)
class ReportedSetting:
    """One audited setup with all results on it, which may lie in several RESULTS folders.

    folder: the first of them. results: of all together (`combined`). label: the setup's name, with what differs where
    another has the same. parts: each folder's own. no_noise_accuracy: of a compared setting without noise, the best on
    the same data with the same model; None without one.
    """

    folder: Path
    results: Results
    label: str
    parts: tuple[tuple[Path, Results], ...] = ()
    no_noise_accuracy: float | None = None

    @property
    def without_noise(self) -> str:
        """What to say of that accuracy beside the setting's own; "" where it is the setting's own."""
        if noiseless(self.results):
            return ""
        return without_noise(self.no_noise_accuracy)

    @cached_property
    def digest(self) -> str:
        folders = [folder for folder, _ in self.parts] or [self.folder]
        return ", ".join(hashlib.sha256((folder / FILE).read_bytes()).hexdigest() for folder in folders)

    def folder_of(self, attack: AttackResult) -> Path:
        """Where the evidence of one of the attacks lies."""
        as_read = attack.having(run="")
        return next((folder for folder, own in self.parts if as_read in own.attacks), self.folder)

    @cached_property
    def by_strength(self) -> list[AttackResult]:
        return sorted(self.results.attacks, key=strength, reverse=True)

    def strongest(self, kind: str) -> AttackResult | None:
        return next((attack for attack in self.by_strength if attack.kind == kind and attack.scored), None)

    @cached_property
    def judgement(self) -> Judgement:
        return judgement_of(self.results)

    @cached_property
    def sentences(self) -> tuple[str, str, str]:
        """What was reached, what ε says, what it means."""
        return sentences(self.judgement)

    @cached_property
    def _judged(self) -> dict[int, JudgedAttack]:
        return {id(judged.attack): judged for judged in self.judgement.attacks}

    def checks(self, attack: AttackResult) -> tuple[Check, ...]:
        """The checks of one of the results' attacks, judged together with all others."""
        return self._judged[id(attack)].checks

    def compared(self, attack: AttackResult) -> tuple[float | None, str]:
        """What the verdict compares an attack's re-identified share with, and what that is: chance or a control.

        Chance where no control of its images is comparable, so that the verdict judges none.
        """
        check = next((check for check in self.checks(attack) if check.metric == "reidentified"), None)
        if check is None:
            return attack.value(picked(attack).chance), "chance"
        return check.control, "chance" if check.against == "chance" else "control"


def read_settings(folders: Sequence[Path]) -> list[ReportedSetting]:
    """One setting a training, whose results in several folders are taken together; of one config there may be several
    trainings, with another noise key each.

    Raises BadInput if a folder does not hold valid results.
    """
    read = [(Path(folder), Results.read(Path(folder))) for folder in dict.fromkeys(folders)]
    trainings: dict[tuple[str | None, ...], list[tuple[Path, Results]]] = {}
    for folder, results in read:
        setup = results.setup
        trainings.setdefault((setup.digest or str(folder), setup.noise_key, setup.messages), []).append(
            (folder, results)
        )
    groups = list(trainings.values())
    together = [combined([results for _, results in parts]) for parts in groups]
    names = labels([results.setup for results in together], [parts[0][0] for parts in groups])
    return [
        ReportedSetting(parts[0][0], results, name, tuple(parts), no_noise_accuracy(results, together))
        for parts, results, name in zip(groups, together, names, strict=True)
    ]


def facts(results: Results, without_noise: str = "") -> list[dict[str, str]]:
    """Noise, clip and accuracy, always with the sensitivity that the multiplier is over.

    without_noise: what to say of the accuracy without noise.
    """
    setup = results.setup
    if setup.own_code:
        return _declared(setup)
    central = _central(results)
    if central:
        where = "on what a client sends, in parameter units"
    else:
        where = f"on {noised(setup)}, in its units"
    return [
        _fact("noise_std", words.number(setup.noise_std), where),
        *_own_noise(results),
        _fact("noise_multiplier", words.number(setup.noise_multiplier), _sensitivity(setup)),
        _fact("clip norm", words.number(setup.clip_norm).replace(words.MISSING, "none"), _clipped(setup)),
        *central,
        *_holders(setup),
        *_constants(results),
        _fact("test accuracy", *_accuracy(setup, without_noise)),
    ]


def _fact(name: str, value: str, note: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _sensitivity(setup: AuditedSetup) -> str:
    """What the multiplier is over."""
    if not setup.sensitivity or setup.noise_multiplier is None:
        return ""
    what = "noise_std"
    if setup.clipped_in_training:
        what = "noise on a batch's sum"
    return f"{what} divided by the clip norm {setup.sensitivity}"


def _clipped(setup: AuditedSetup) -> str:
    notes = []
    if setup.share_clipped is not None:
        notes.append(f"{words.percent(setup.share_clipped)} of contributions clipped")
    if setup.norm_before_clip_median is not None:
        notes.append(f"median norm {words.number(setup.norm_before_clip_median)}")
    return ", ".join(filter(None, notes))


def _declared(setup: AuditedSetup) -> list[dict[str, str]]:
    """What is known of somebody's own code beforehand, by whatever it is called there."""
    values = {
        name: words.number(value) if isinstance(value, int | float) else str(value)
        for name, value in setup.parameters.items()
    }
    return [_fact(name.replace("_", " "), value, "as declared") for name, value in values.items()]


def _accuracy(setup: AuditedSetup, without_noise: str) -> tuple[str, str]:
    value, _, further = accuracy_said(setup, without_noise).partition(" (")
    return value, further.removesuffix(")")


def _own_noise(results: Results) -> list[dict[str, str]]:
    """The parameter that the scheme's noise follows from, by the scheme's own letter and with its formula: σ = 1 may be
    a multiplier of .01.
    """
    setup = results.setup
    preset = PRESETS.get(str(setup.scheme))
    if preset is None:
        return []
    return [
        {"name": name, "value": words.number(value), "note": f"the scheme's own parameter, {described}"}
        for name, field in preset.parameters.model_fields.items()
        if name in preset.noise
        and isinstance(value := setup.parameters.get(name), int | float)
        and "noise_std" in (described := field.description or "")
    ]


CONSTANTS = {
    "config": "given in the config",
    "published": "published values",
    "auxiliary": "of auxiliary records",
    "none": "none: 0 and 1",
    "training": "of the private training records",
}


def _constants(results: Results) -> list[dict[str, str]]:
    """Where the first layer's mean and std are from; own code has no such line."""
    source = results.setup.data.get("statistics_of")
    if source not in CONSTANTS:
        return []
    note = "in front of the model, so everybody gets them"
    if source in ("training", "auxiliary"):
        note += " without noise"
    return [_fact("mean and std", CONSTANTS[source], note)]


def _holders(setup: AuditedSetup) -> list[dict[str, str]]:
    """Which client is which holder of a table's rows."""
    if not setup.holders:
        return []
    return [_fact("clients", str(setup.clients), words.listed([f"{n} {s}" for n, s in enumerate(setup.holders)]))]


def _central(results: Results) -> list[dict[str, str]]:
    """What the server does to what it received (means over the rounds): who sees only its broadcasts sees that noise,
    who sees uploads does not.
    """
    noise, central = results.server_noise_std, []
    norm, share = (results.mean_of(f"server_{name}") for name in ("clip_norm", "share_clipped"))
    if noise is not None:
        note = "added to what it broadcasts; the server itself sees none of it"
        central.append(_fact("server's noise_std", words.number(noise), note))
    if norm is not None:
        note = "by the server, of what it receives"
        if share is not None:
            note += f": {words.percent(share)} clipped"
        central.append(_fact("server's clip norm", words.number(norm), note))
    return central


def notices(results: Results) -> list[str]:
    """What a reader must know before believing the numbers: the run's own warnings, and what its fields imply."""
    return list(dict.fromkeys([*results.warnings, *implied(results), *unscored(results)]))


def epsilon_table(judgement: Judgement) -> dict[str, Any]:
    """The rows by observer, and below the table each reason with the rows it is about."""
    rows = judgement.epsilon
    observers: dict[str, list[dict[str, Any]]] = {}
    about: dict[str, list[Epsilon]] = {}
    for row in rows:
        refuted = _refuted_by(row, judgement)
        flag = "" if not refuted else FLAGS[refuted[0].limit, refuted[0].on_condition]
        observers.setdefault(words.observer(row.observer), []).append({"row": row, "flag": flag})
        for reason in reasons(row, refuted):
            about.setdefault(reason, []).append(row)
    tested = any(row.tested for row in rows)
    grouped: dict[str, list[str]] = {}
    for reason, covered in about.items():
        place = "; ".join(_places(covered, len(observers)))
        if 1 < len(covered) == len(rows):
            place = "every row"
        grouped.setdefault(place, []).append(reason)
    return {
        "adjacencies": words.adjacency_said(row.adjacency for row in rows),
        "observers": list(observers.items()),
        "reasons": list(grouped.items()),
        "untested": bool(rows) and not tested,
    }


FLAGS: dict[tuple[Limit, bool], str] = {
    ("claimed", False): "refuted",
    ("proven", False): "contradicted",
    ("claimed", True): "refuted on its condition",
    ("proven", True): "contradicted on its condition",
}


def _refuted_by(row: Epsilon, judgement: Judgement) -> list[Refutation]:
    """What a row's test refutes, the gravest first: one claim and one proof, each certain or on a condition, of its own
    observer where there is one.
    """
    first: dict[tuple[Limit, bool], Refutation] = {}
    for refutation in judgement.refuted:
        if refutation.shown is row:
            first.setdefault((refutation.limit, refutation.on_condition), refutation)
    return list(first.values())


def _places(rows: Sequence[Epsilon], observers: int) -> list[str]:
    """The rows in words, observers with the same rows together: "every observer: record (zero_out, replace_one)"."""
    units: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        adjacencies = units.setdefault(words.observer(row.observer), {}).setdefault(row.unit, [])
        if row.adjacency not in adjacencies:
            adjacencies.append(row.adjacency)
    alike: dict[str, list[str]] = {}
    for who, of_unit in units.items():
        what = ", ".join(f"{unit} ({', '.join(adjacencies)})" for unit, adjacencies in of_unit.items())
        alike.setdefault(what, []).append(who)
    return [
        f"{'every observer' if 1 < len(who) == observers else words.listed(who)}: {what}" for what, who in alike.items()
    ]


def attack_name(attack: AttackResult, with_observer: bool = True) -> str:
    """In words: what, how, when, against whom.

    >>> one = {"attack": "inversion", "observer": "server", "manner": "one-round", "round": 0}
    >>> attack_name(AttackResult(**one, settings={"objective": "cosine"}), with_observer=False)
    'inversion · cosine · round 0'
    """
    manner = {"one-round": "one round", "all-rounds": "all rounds together"}.get(attack.manner or "", attack.manner)
    when = f"round {attack.round}" if attack.manner == "one-round" and attack.round is not None else manner
    seen = ""
    if with_observer:
        seen = f"seen by {words.observer(attack.observer)}"
    named = (attack.attack.replace("/", ": "), attack.variant, when, seen)
    return " · ".join(part for part in named if part)


def _interval(name: str, metric: Metric, interval: tuple[float, float] | None) -> str:
    """In words. A demonstrated ε has no upper limit."""
    if interval is None:
        return words.MISSING
    low, high = metric.at_least(interval[0]), metric.at_most(interval[1])
    if name.startswith("epsilon"):
        return f"at least {low}"
    return f"{low} to {high}"


def _beside(name: str, values: Mapping[str, float | None]) -> str:
    """What stands beside a metric's name: what chance gives, and the most that the proof allows any attack."""
    chance, notes = values.get(CHANCES.get(name, "")), []
    if chance is not None:
        notes.append(f"chance {words.percent(chance)}")
    if name == "pool_share":
        notes.append(words.ceiling_said(values.get("pool_ceiling")))
    if name == "psnr" and (most := values.get("psnr_ceiling")) is not None:
        notes.append(f"ceiling {words.at_most(most)} for Gaussian pictures")
    if name == "attribute_advantage":
        notes.append(words.ceiling_said(values.get("attribute_ceiling")))
    if name == "auc":
        notes.append(words.area_ceiling(values.get("auc_ceiling")))
    return ", ".join(notes)


def controls(attack: AttackResult) -> list[str]:
    known = [name for name in CONTROLS if name in attack.controls]
    return known + sorted(set(attack.controls) - set(known))


CHANCES = {
    "reidentified": "reidentified_chance",
    "pool_share": "pool_chance",
    "label_accuracy": "label_chance",
    "linked": "linked_chance",
}
FURTHER = ("leak_probability",)  # its control may score higher than an attack, so a table would mislead


def metric_rows(attack: AttackResult, judged: Sequence[Check], further: bool = False) -> list[dict[str, Any]]:
    """One row a metric: label, meaning, value, interval and controls as text; whether it beats its control (None: not a
    gate).

    further: the metrics that stand in the details alone (`FURTHER`), instead of all others.
    """
    values = attack.numbers
    order = [name for name in METRICS if name in values] + sorted(name for name in values if name not in METRICS)
    beats = {check.metric: check.beats for check in judged}
    rows = []
    for name in order:
        if name in (*CHANCES.values(), *CEILINGS) or (name in FURTHER) is not further:
            continue
        described, interval = metric(name), attack.intervals.get(name)
        rows.append(
            {
                "name": name,
                "label": described.label,
                "meaning": described.meaning,
                "direction": described.direction,
                "value": described.say(values[name]),
                "interval": _interval(name, described, interval),
                "controls": [described.say(attack.controls[control].get(name)) for control in controls(attack)],
                "control_names": controls(attack),
                "chance": _beside(name, values),
                "leaks": beats.get(name),
                "missing": values[name] is None,
            }
        )
    return rows
