"""The report page: one self-contained HTML file from one or several RESULTS folders. Prepares plain values; the template only lays them out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from . import plots, words
from .advice_text import advice, leaks, measured
from .pictures import data_uri, fingerprint
from .pictures import read as read_pictures
from .results import FILE, LEVELS, Attack, Epsilon, Results
from .verdict import checks, headline, refutations, strength

TEMPLATES = Path(__file__).parent / "templates"
WEAK_CLASSIFIER = 0.6      # a reference classifier below this accuracy cannot judge likeness
SHOWN_PAIRS = 30           # of the strongest attack of each kind; the folder has them all
STRIP = 8                  # images in a row when settings stand side by side
CONTROLS = ("gray", "mean", "label_mean", "random")


@dataclass(frozen=True, eq=False)
class Setting:
    """One RESULTS folder, read. label: its name, told apart from others of the same name."""

    folder: Path
    results: Results
    label: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256((self.folder / FILE).read_bytes()).hexdigest()

    @cached_property
    def by_strength(self) -> list[Attack]:
        return sorted(self.results.attacks, key=strength, reverse=True)

    def strongest(self, kind: str) -> Attack | None:
        return next((attack for attack in self.by_strength if attack.kind == kind and attack.scored), None)

    @cached_property
    def headline(self) -> Epsilon | None:
        return headline(self.results.attacks, self.results.epsilon)


def read_settings(folders: Sequence[Path]) -> list[Setting]:
    """Raises BadInput if a folder does not hold valid results."""
    read = [(Path(folder), Results.read(Path(folder))) for folder in folders]
    titles = [results.setup.title for _, results in read]
    return [Setting(folder, results, title if titles.count(title) == 1 else f"{title} ({_distinct(folder, folders)})")
            for (folder, results), title in zip(read, titles, strict=True)]


def _distinct(folder: Path, folders: Sequence[Path]) -> str:
    """The shortest tail of the path that no other folder has: `demo/a/results` and `demo/b/results` are a/results and b/results."""
    parts, others = folder.parts, [Path(other).parts for other in folders if Path(other) != folder]
    length = next((k for k in range(1, len(parts)) if all(parts[-k:] != other[-k:] for other in others)), len(parts))
    return "/".join(parts[-length:])


def page(folders: Sequence[Path]) -> str:
    """The HTML text. Names in results are strangers' text, so everything is escaped."""
    settings = read_settings(folders)
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=words.number, percent=words.percent, code=_code)
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    html = environment.get_template("report.html.j2").render(
        css=Markup(css), levels=LEVELS, settings=[_setting(setting, i) for i, setting in enumerate(settings)],
        several=_several(settings) if len(settings) > 1 else None, advice=advice([setting.results for setting in settings], [setting.label for setting in settings]),
        version=_version(settings))
    return re.sub(r"\n\s*\n+", "\n", html).strip() + "\n"


def _code(text: str) -> Markup:
    """Escapes a sentence and sets its `commands` as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _version(settings: Sequence[Setting]) -> str:
    return words.listed(sorted({str(setting.results.setup.versions.get("dpfl-audit", "")) for setting in settings} - {""}))


# --- one setting ---------------------------------------------------------------------------------------------------------------------


def _setting(setting: Setting, index: int) -> dict[str, Any]:
    results = setting.results
    pictures = [_pictures(setting, attack) for attack in _strongest_of_each_manner(setting)]
    return {
        "id": f"setting-{index + 1}", "label": setting.label, "setup": results.setup, "subtitle": _subtitle(results), "facts": _facts(results),
        "level": results.verdict.level, "measured": measured(results), "sentences": results.verdict.sentences, "notices": notices(results), "epsilon": _epsilon(results),
        "pictures": pictures, "tables": _tables(setting), "membership": _membership(setting), "plots": _own_plots(setting),
        "provenance": _provenance(setting), "unscored": _unscored(results),
    }


def _subtitle(results: Results) -> str:
    setup = results.setup
    shared = {"gradient": "gradients shared", "update": "updates shared", "weights": "weights shared"}.get(setup.share or "", setup.share)
    model = setup.model and (setup.model.name + (f" with {setup.model.parameters:,} parameters" if setup.model.parameters else ""))
    parts = [f"scheme {setup.scheme}", setup.data.get("name"), model, setup.clients and words.times(setup.clients, "client"),
             setup.rounds and words.times(setup.rounds, "round"), shared]
    return " · ".join(str(part) for part in parts if part)


def _facts(results: Results) -> list[dict[str, str]]:
    """Noise, clip and accuracy, always with the sensitivity that the multiplier is over."""
    setup = results.setup
    over = f"over {setup.sensitivity}" if setup.sensitivity else ""
    clipped = [] if setup.share_clipped is None else [f"{words.percent(setup.share_clipped)} of contributions clipped"]
    median = [] if setup.norm_before_clip_median is None else [f"median norm {words.number(setup.norm_before_clip_median)}"]
    return [
        {"name": "noise_std", "value": words.number(setup.noise_std), "note": "in parameter units"},
        {"name": "noise_multiplier", "value": words.number(setup.noise_multiplier), "note": over},
        {"name": "clip norm", "value": "none" if setup.clip_norm is None else words.number(setup.clip_norm), "note": ", ".join(clipped + median)},
        {"name": "test accuracy", "value": words.percent(setup.test_accuracy), "note": ""},
    ]


def notices(results: Results) -> list[str]:
    """What a reader must know before believing the numbers: the run's own warnings, and what its fields say that no warning did."""
    setup, said = results.setup, " ".join(results.warnings)
    clip, median = words.number(setup.clip_norm), words.number(setup.norm_before_clip_median)
    below = "" if setup.norm_before_clip_median is None else f" (median {median})"
    weak = [f"{c.family} ({words.percent(c.accuracy)})" for c in results.classifiers if c.accuracy is not None and c.accuracy < WEAK_CLASSIFIER]
    facts = [       # whether it holds, what a warning about it would contain, how we say it
        (results.quick, "--quick", "This was a --quick run: the attacks are weaker than they could be."),
        (setup.status == "diverged", "diverged", "Training diverged; only its finite rounds were attacked."),
        (setup.status == "partial", "not finished", "Training was not finished when it was audited."),
        (setup.clip_norm is None, "clipped", "Nothing was clipped in training: this setup has no clip."),
        (setup.clip_norm is not None and setup.share_clipped == 0, "clipped", f"Nothing was clipped in training: every norm{below} stayed below C = {clip}."),
        (bool(weak), "reference classifier", f"Weak reference classifiers: {words.listed(weak)} of test images right, under {words.percent(WEAK_CLASSIFIER)}; "
         "feature distances say little."),
    ]
    found = [sentence for holds, topic, sentence in facts if holds and topic not in said.lower()]
    return list(dict.fromkeys([*results.warnings, *found, *_not_measured(results)]))


def _not_measured(results: Results) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for attack in results.attacks:
        for name, reason in attack.not_measured.items():
            names = reasons.setdefault(reason.rstrip("."), [])
            names += [label] if (label := words.metric(name).label) not in names else []
    return [f"{reason}." if "not measured" in reason else f"{words.listed(names)} not measured: {reason}." for reason, names in reasons.items()]


def _epsilon(results: Results) -> dict[str, Any]:
    """The rows by observer, and below the table each reason with the rows it is about."""
    refuted = {id(shown): claim for shown, claim in refutations(results.epsilon)}
    observers: dict[str, list[dict[str, Any]]] = {}
    about: dict[str, list[Epsilon]] = {}
    for row in results.epsilon:
        flag = "refuted" if id(row) in refuted else "contradicted" if _exceeds(row.demonstrated, row.proven) else ""
        observers.setdefault(words.observer(row.observer), []).append({"row": row, "flag": flag})
        for reason in _reasons(row, refuted.get(id(row))):
            about.setdefault(reason, []).append(row)
    rows = len(results.epsilon)
    tested = any(row.demonstrated is not None for row in results.epsilon)
    grouped: dict[str, list[str]] = {}
    for reason, covered in about.items():
        grouped.setdefault("every row" if rows > 1 and len(covered) == rows else "; ".join(_places(covered, len(observers))), []).append(reason)
    return {"observers": list(observers.items()), "reasons": list(grouped.items()), "untested": bool(rows) and not tested}


def _places(rows: Sequence[Epsilon], observers: int) -> list[str]:
    """The rows in words, observers with the same rows together: "every observer: record (zero_out, replace_one)"."""
    units: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        adjacencies = units.setdefault(words.observer(row.observer), {}).setdefault(row.unit, [])
        adjacencies += [row.adjacency] if row.adjacency not in adjacencies else []
    alike: dict[str, list[str]] = {}
    for who, found in units.items():
        alike.setdefault(", ".join(f"{unit} ({', '.join(adjacencies)})" for unit, adjacencies in found.items()), []).append(who)
    return [f"{'every observer' if 1 < len(who) == observers else words.listed(who)}: {what}" for what, who in alike.items()]


def _reasons(row: Epsilon, refuted: Epsilon | None) -> list[str]:
    """Why the three numbers of a row differ, the gravest first."""
    said = []
    if refuted is not None:
        confidence = f" with {words.percent(row.confidence)} confidence" if row.confidence is not None else ""
        said.append(f"Demonstrated ({words.number(row.demonstrated)}{confidence}) exceeds claimed ({words.number(refuted.claimed)}): the claim is false.")
    if _exceeds(row.demonstrated, row.proven):
        said.append(f"Demonstrated ({words.number(row.demonstrated)}) exceeds proven ({words.number(row.proven)}): the proof does not describe what ran.")
    if row.claimed is not None and row.proven is not None:
        if row.proven == float("inf") > row.claimed:
            said.append("The claim has no proof at any finite ε.")
        elif row.proven > row.claimed:
            times = f", {words.number(row.proven / row.claimed, 2)} times the claim" if row.claimed else ""
            said.append(f"What can be proven is ε = {words.number(row.proven)}{times}.")
        elif row.proven < row.claimed:
            said.append("More can be proven than is claimed.")
    said += row.notes
    if row.demonstrated is not None and _exceeds(row.proven, row.ceiling):
        said.append(f"The test could not have shown more than {words.number(row.ceiling)}, whatever leaks.")
    return said


def _exceeds(value: float | None, bound: float | None) -> bool:
    return value is not None and bound is not None and value > bound


def _strongest_of_each_manner(setting: Setting) -> list[Attack]:
    """The strongest inversion of each kind that there is, strongest kind first."""
    best: dict[tuple[str, str, str | None], Attack] = {}
    for attack in setting.by_strength:
        if attack.kind == "inversion" and attack.key is not None:
            best.setdefault((attack.attack, attack.observer, attack.manner), attack)
    return list(best.values())


def _pictures(setting: Setting, attack: Attack) -> dict[str, Any]:
    pictures = read_pictures(setting.folder, attack)
    shown: list[dict[str, Any]] = []
    if pictures.rebuilt is not None and pictures.originals is not None:
        for pair in pictures.worst_first[:SHOWN_PAIRS]:
            closeness = [f"{pair.psnr:.1f} dB"] if pair.psnr is not None else []
            closeness += [f"SSIM {pair.ssim:.2f}"] if pair.ssim is not None else []
            shown.append({"original": data_uri(pictures.originals[pair.original]), "rebuilt": data_uri(pictures.rebuilt[pair.reconstruction]),
                          "number": pair.original + 1, "said": " · ".join(closeness)})
        total = len(pictures.attack.pairs)
    else:
        total = 0 if pictures.rebuilt is None else len(pictures.rebuilt)
        for i in range(min(total, SHOWN_PAIRS)):
            assert pictures.rebuilt is not None
            shown.append({"original": None, "rebuilt": data_uri(pictures.rebuilt[i]), "number": i + 1, "said": ""})
    lack = ("The evidence file is not in the folder, so there is nothing to show." if pictures.rebuilt is None else
            "The originals are not in the folder: reconstructions alone, unscored." if pictures.originals is None else "")
    return {"name": attack_name(attack), "shown": shown, "total": total, "lack": lack, "round": attack.round}


def attack_name(attack: Attack, with_observer: bool = True) -> str:
    """In words: what, how, when, against whom."""
    manner = {"one-round": "one round", "all-rounds": "all rounds together"}.get(attack.manner or "", attack.manner)
    when = f"round {attack.round}" if attack.manner == "one-round" and attack.round is not None else manner
    seen = f"seen by {words.observer(attack.observer)}" if with_observer else ""
    return " · ".join(part for part in (attack.attack.replace("/", ": "), when, seen) if part)


def _tables(setting: Setting) -> list[dict[str, Any]]:
    """A full table for every attack that is not membership inference, strongest first."""
    return [{"name": attack_name(attack), "attack": attack, "rows": metric_rows(attack), "controls": _controls(attack),
             "leaks": any(check.excludes for check in checks(attack)), "judged": bool(checks(attack)),
             "control_names": [name.replace("_", " ") for name in _controls(attack)]}
            for attack in setting.by_strength if attack.kind != "membership"]


def _controls(attack: Attack) -> list[str]:
    known = [name for name in CONTROLS if name in attack.controls]
    return known + sorted(set(attack.controls) - set(known))


def metric_rows(attack: Attack) -> list[dict[str, Any]]:
    """One row a metric: label, meaning, value, interval and controls as text; whether its interval excludes its control (None: not a gate)."""
    values = attack.numbers
    order = [name for name in words.METRICS if name in values] + sorted(name for name in values if name not in words.METRICS)
    judged = {check.metric: check.excludes for check in checks(attack)}
    rows = []
    for name in order:
        if name == "reidentified_chance":
            continue
        metric, interval = words.metric(name), attack.intervals.get(name)
        chance = values.get("reidentified_chance") if name == "reidentified" else None
        rows.append({"name": name, "label": metric.label, "meaning": metric.meaning, "direction": metric.direction, "value": metric.say(values[name]),
                     "interval": f"{metric.say(interval[0])} to {metric.say(interval[1])}" if interval else words.MISSING,
                     "controls": [metric.say(attack.controls[control].get(name)) for control in _controls(attack)],
                     "control_names": _controls(attack), "chance": "" if chance is None else f"chance {words.percent(chance)}",
                     "leaks": judged.get(name), "missing": values[name] is None})
    return rows


def _unscored(results: Results) -> str:
    if not results.attacks:
        return "No attack was run: what this setup really leaks was not measured."
    if not any(attack.scored for attack in results.attacks):
        return "The training data was not available, so no attack could be scored: not measured."
    return ""


def _membership(setting: Setting) -> dict[str, Any] | None:
    attacks = [attack for attack in setting.by_strength if attack.kind == "membership"]
    if not attacks:
        return None
    observers = {attack.observer for attack in attacks}
    curves = {attack_name(attack, with_observer=len(observers) > 1): attack.roc for attack in attacks if attack.roc is not None}
    rows = []
    for attack in attacks:
        points = {round(point.fpr, 9): point for point in attack.tpr_points}
        rows.append({"name": attack_name(attack), "attack": attack, "auc": attack.value("auc"), "auc_interval": attack.intervals.get("auc"),
                     "shuffled": attack.controls.get("shuffled", {}).get("auc"), "balanced": attack.value("balanced_accuracy"),
                     "shuffled_balanced": attack.controls.get("shuffled", {}).get("balanced_accuracy"),
                     "points": [points.get(fpr) for fpr in (0.1, 0.01, 0.001, 0.0001)],
                     "members": attack.value("n_members"), "nonmembers": attack.value("n_nonmembers"), "classes": attack.per_class, "exposed": attack.most_exposed})
    best = attacks[0]
    return {"rows": rows, "roc": plots.roc(curves) if curves else None, "names": list(curves),
            "histogram": plots.histogram(best.histogram) if best.histogram is not None else None, "best": attack_name(best)}


def _own_plots(setting: Setting) -> list[dict[str, str]]:
    """One setting has one noise and one clip; what can be drawn is how the leak goes with the rounds."""
    series: dict[str, list[plots.Point]] = {}
    for attack in setting.results.attacks:
        margin = attack.value("psnr_margin")
        if attack.manner == "one-round" and attack.round is not None and margin is not None:
            series.setdefault(f"{attack.attack}, {attack.observer}", []).append(_point(attack.round, attack, "psnr_margin"))
    if len({point.x for points in series.values() for point in points}) < 2:
        return []
    image = plots.leakage(series, "round", "PSNR margin (dB)", reference=0.0, reference_label="best control", log=False)
    return [{"image": image, "alt": "PSNR margin over the best control against the round; the numbers are in the tables above",
             "caption": "One-round attacks: how much closer to the originals than the best control, by round."}]


def _point(x: float, attack: Attack, metric: str) -> plots.Point:
    interval = attack.intervals.get(metric) or (None, None)
    return plots.Point(x, attack.value(metric) or 0.0, *interval)


def _provenance(setting: Setting) -> dict[str, Any]:
    results = setting.results
    setup = results.setup
    rows = [("setup digest", setup.digest), ("results.json (SHA-256)", setting.digest), ("training", setup.status),
            ("seed", setup.seed), ("scheme parameters", _inline(setup.parameters)), ("data", _inline(setup.data)), ("versions", _inline(setup.versions)),
            ("reference classifiers", ", ".join(f"{c.family} ({words.percent(c.accuracy)})" for c in results.classifiers)),
            ("accountants", words.listed(sorted({row.accountant for row in results.epsilon if row.accountant})))]
    assumed: dict[tuple[str, ...], list[str]] = {}
    for attack in results.attacks:
        name = f"{attack.attack.replace('/', ': ')}{f' ({attack.manner})' if attack.manner else ''}, {words.observer(attack.observer)}"
        names = assumed.setdefault((*attack.assumed, *([f"settings: {_inline(attack.settings)}"] if attack.settings else [])), [])
        if name not in names:
            names.append(name)
    return {"rows": [(name, str(value)) for name, value in rows if value not in (None, "", "{}")],
            "config": json.dumps(setup.config, indent=2, ensure_ascii=False, sort_keys=True) if setup.config else "",
            "assumed": [{"names": "; ".join(names), "items": items} for items, names in assumed.items()]}


def _inline(content: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value}" for key, value in content.items())


# --- several settings ----------------------------------------------------------------------------------------------------------------


def _several(settings: Sequence[Setting]) -> dict[str, Any]:
    worst = max(settings, key=lambda setting: LEVELS.index(setting.results.verdict.level))
    return {"level": worst.results.verdict.level, "measured": measured(worst.results), "sentences": summary(settings, worst), "rows": comparison(settings),
            "strip": _strip(settings), "plots": _shared_plots(settings)}


def summary(settings: Sequence[Setting], worst: Setting) -> list[str]:
    """Three sentences on all settings: how they were judged, what the worst gave away, where nothing was found."""
    names = {level: [setting.label for setting in settings if setting.results.verdict.level == level] for level in reversed(LEVELS)}
    judged = "; ".join(f"{level}: {words.quoted(labels)}" for level, labels in names.items() if labels)
    quiet = [setting.label for setting in settings if measured(setting.results) and not leaks(setting.results)]
    untested = [setting.label for setting in settings if not measured(setting.results)]
    last = (f"No attack beat its control with {words.quoted(quiet)}; that is no proof, the proven ε below is." if quiet
            else "In every setting that was measured some attack beat its control." if len(untested) < len(settings) else "Nothing was measured in any setting.")
    return [f"{len(settings)} settings: {judged}.", f"“{worst.label}”: {worst.results.verdict.sentences[0]}", last]


def comparison(settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """One row of plain values a setting; PSNR and re-identification are those of its strongest inversion. None: not measured."""
    rows = []
    for i, setting in enumerate(settings):
        setup, best, member, row = setting.results.setup, setting.strongest("inversion"), setting.strongest("membership"), setting.headline
        rows.append({
            "id": f"setting-{i + 1}", "setting": setting.label, "level": setting.results.verdict.level, "measured": measured(setting.results), "noise_std": setup.noise_std,
            "noise_multiplier": setup.noise_multiplier, "clip_norm": setup.clip_norm, "test_accuracy": setup.test_accuracy,
            "psnr": best and best.value("psnr"), "reidentified": best and best.value("reidentified"),
            "reidentified_chance": best and best.value("reidentified_chance"), "auc": member and member.value("auc"),
            "claimed": row and row.claimed, "proven": row and row.proven, "demonstrated": row and row.demonstrated})
    return rows


def _strip(settings: Sequence[Setting]) -> dict[str, Any] | None:
    """The same originals in every setting, each as the best that any attack made of it there: recovered, half recovered, gone.

    The images are those that most settings have; among them those that leaked most anywhere come first.
    """
    found = [_best_of_each_original(setting) for setting in settings]
    marks = list(dict.fromkeys(mark for images in found for mark in images))
    if not marks:
        return None

    def rank(mark: str) -> tuple[int, float]:
        have = [images[mark] for images in found if mark in images]
        return -len(have), -max(psnr for psnr, _, _ in have)

    chosen = sorted(marks, key=rank)[:STRIP]
    originals = [next(data_uri(images[mark][1]) for images in found if mark in images) for mark in chosen]
    rows = []
    for setting, images in zip(settings, found, strict=True):
        cells = [{"image": data_uri(images[mark][2]), "said": f"{images[mark][0]:.1f} dB"} if mark in images else None for mark in chosen]
        rows.append({"label": setting.label, "level": setting.results.verdict.level, "measured": measured(setting.results), "cells": cells, "notes": _strip_notes(setting, bool(images))})
    return {"originals": originals, "rows": rows, "all_shared": all(mark in images for images in found for mark in chosen)}


def _best_of_each_original(setting: Setting) -> dict[str, tuple[float, np.ndarray, np.ndarray]]:
    """Fingerprint of an original -> (PSNR, original, the closest reconstruction of it)."""
    best: dict[str, tuple[float, np.ndarray, np.ndarray]] = {}
    for attack in setting.by_strength:
        if attack.kind != "inversion" or not attack.pairs:
            continue
        pictures = read_pictures(setting.folder, attack)
        if pictures.rebuilt is None or pictures.originals is None:
            continue
        for pair in pictures.attack.pairs:
            if pair.psnr is None:
                continue
            original = pictures.originals[pair.original]
            mark = fingerprint(original)
            if mark not in best or pair.psnr > best[mark][0]:
                best[mark] = pair.psnr, original, pictures.rebuilt[pair.reconstruction]
    return best


def _strip_notes(setting: Setting, pictured: bool) -> list[str]:
    noise = f"noise_std {words.number(setting.results.setup.noise_std)}"
    if not pictured:
        return [noise, "no pictures to compare"]
    best = setting.strongest("inversion")
    share = best.value("reidentified") if best else None
    return [noise] if share is None else [noise, f"{words.percent(share)} re-identified"]


def _shared_plots(settings: Sequence[Setting]) -> list[dict[str, str]]:
    found = []
    for metric, y_label, share in (("reidentified", "re-identified", True), ("psnr_margin", "PSNR margin (dB)", False), ("auc", "membership AUC", False)):
        reference, said = {"psnr_margin": (0.0, "best control"), "auc": (0.5, "guessing")}.get(metric, (None, ""))
        if metric == "reidentified":
            chances = [best.value("reidentified_chance") for s in settings if (best := s.strongest("inversion"))]
            known = [chance for chance in chances if chance is not None]
            reference, said = (max(known), "chance") if known else (None, "")
        for axis, other, x_label in (("noise_std", "clip_norm", "noise_std (parameter units)"), ("clip_norm", "noise_std", "clip norm")):
            series = _series(settings, metric, axis, other)
            if not any(len({point.x for point in points}) > 1 for points in series.values()):
                continue        # nothing else held equal, nothing varied
            image = plots.leakage(series, x_label, y_label, reference, said, share=share)
            found.append({"image": image, "alt": f"{y_label} against {axis}; the numbers are in the comparison table",
                          "caption": f"{y_label[0].upper()}{y_label[1:]} of the strongest attack against {axis}, with intervals."})
    return found


def _series(settings: Iterable[Setting], metric: str, axis: str, other: str) -> dict[str, list[plots.Point]]:
    """Points by the other of noise and clip. A setting whose value on the axis is unknown, or which has no clip, has no place on it."""
    series: dict[float | None, list[plots.Point]] = {}
    for setting in settings:
        attack = setting.strongest("membership" if metric == "auc" else "inversion")
        x, held = getattr(setting.results.setup, axis), getattr(setting.results.setup, other)
        if attack is None or attack.value(metric) is None or x is None:
            continue
        series.setdefault(held, []).append(_point(x, attack, metric))
    said = {"clip_norm": ("clip ", "no clip"), "noise_std": ("noise_std ", "noise_std unknown")}[other]
    return {said[1] if held is None else said[0] + words.number(held): points for held, points in sorted(series.items(), key=lambda item: (item[0] is None, item[0] or 0))}
