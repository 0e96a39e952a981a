"""The report page: one self-contained HTML file from one or several RESULTS folders. Prepares plain values; the template only lays them out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import plots, words
from .advice_text import advice, leaks, tested
from .pictures import data_uri, fingerprint
from .pictures import read as read_pictures
from .results import FILE, LEVELS, Attack, Epsilon, Results
from .verdict import checks, headline, refutations, strength

TEMPLATES = Path(__file__).parent / "templates"
WEAK_CLASSIFIER = 0.6      # a reference classifier below this accuracy cannot judge likeness
SHOWN_PAIRS = 24           # of the strongest attack of each kind; the folder has them all
STRIP = 8                  # images in a row when settings stand side by side
CONTROLS = ("gray", "mean", "random")


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
    """Raises ValueError if a folder does not hold valid results."""
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
    environment.filters.update(number=words.number, percent=words.percent)
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(
        css=Markup(css), levels=LEVELS, settings=[_setting(setting, i) for i, setting in enumerate(settings)],
        several=_several(settings) if len(settings) > 1 else None, advice=advice([setting.results for setting in settings]),
        version=_version(settings))


def _version(settings: Sequence[Setting]) -> str:
    return words.listed(sorted({str(setting.results.setup.versions.get("dpfl-audit", "")) for setting in settings} - {""}))


# --- one setting ---------------------------------------------------------------------------------------------------------------------


def _setting(setting: Setting, index: int) -> dict[str, Any]:
    results = setting.results
    pictures = [_pictures(setting, attack) for attack in _strongest_of_each_manner(setting)]
    return {
        "id": f"setting-{index + 1}", "label": setting.label, "setup": results.setup, "subtitle": _subtitle(results), "facts": _facts(results),
        "level": results.verdict.level, "sentences": results.verdict.sentences, "notices": notices(results), "epsilon": _epsilon(results),
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
    """What a reader must know before believing the numbers: sentences."""
    setup, found = results.setup, []
    if results.quick:
        found.append("This was a --quick run: fewer iterations and images than a real audit, so the attacks are weaker than they could be.")
    if setup.status == "diverged":
        found.append("Training became non-finite and stopped; only its finite rounds were attacked.")
    if setup.status == "partial":
        found.append("Training was not finished when it was audited.")
    if setup.clip_norm is None:
        found.append("Nothing was clipped in training: this setup has no clip.")
    elif setup.share_clipped == 0:
        median = f" (median {words.number(setup.norm_before_clip_median)})" if setup.norm_before_clip_median is not None else ""
        found.append(f"Nothing was clipped in training: every norm{median} stayed below the clip of {words.number(setup.clip_norm)}.")
    weak = [f"{c.family} ({words.percent(c.accuracy)})" for c in results.classifiers if c.accuracy is not None and c.accuracy < WEAK_CLASSIFIER]
    if weak:
        found.append(f"Weak reference classifier: {words.listed(weak)} right on test images, under {words.percent(WEAK_CLASSIFIER)}; "
                     "feature distances and re-identification say little.")
    reasons: dict[str, list[str]] = {}
    for attack in results.attacks:
        for name, reason in attack.not_measured.items():
            if name not in reasons.setdefault(reason, []):
                reasons[reason].append(name)
    found += [f"Not measured: {words.listed([words.metric(name).label for name in names])}. {reason}" for reason, names in reasons.items()]
    return list(dict.fromkeys([*found, *results.warnings]))


def _epsilon(results: Results) -> list[dict[str, Any]]:
    refuted = {id(shown): claim for shown, claim in refutations(results.epsilon)}
    rows = []
    for row in results.epsilon:
        flag = "refuted" if id(row) in refuted else "contradicted" if _exceeds(row.demonstrated, row.proven) else ""
        rows.append({"row": row, "observer": words.observer(row.observer), "flag": flag, "notes": _reasons(row, refuted.get(id(row)))})
    return rows


def _reasons(row: Epsilon, refuted: Epsilon | None) -> list[str]:
    said = []
    if refuted is not None:
        confidence = f" with {words.percent(row.confidence)} confidence" if row.confidence is not None else ""
        said.append(f"Demonstrated ({words.number(row.demonstrated)}{confidence}) exceeds claimed ({words.number(refuted.claimed)}): the claim is false.")
    if _exceeds(row.demonstrated, row.proven):
        said.append(f"Demonstrated ({words.number(row.demonstrated)}) exceeds proven ({words.number(row.proven)}): the proof does not describe what ran.")
    if row.claimed is not None and row.proven is not None and row.claimed != row.proven:
        if _exceeds(row.proven, row.claimed):
            gap = "has no proof at any finite ε" if row.proven == float("inf") else f"is {words.number(row.proven / row.claimed, 2)} times short of what can be proven" if row.claimed else "has no proof"
            said.append(f"The claim {gap}.")
        else:
            said.append("More can be proven than is claimed.")
    said += row.notes
    if row.demonstrated is None:
        said.append("Nothing was demonstrated: no test of ε was run for this row.")
    elif row.ceiling is not None and _exceeds(row.proven, row.ceiling):
        said.append(f"The test could not have shown more than {words.number(row.ceiling)}, whatever leaks.")
    return list(dict.fromkeys(said))


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
            closeness = [f"{words.number(pair.psnr)} dB"] if pair.psnr is not None else []
            closeness += [f"SSIM {words.number(pair.ssim, 2)}"] if pair.ssim is not None else []
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


def attack_name(attack: Attack) -> str:
    """In words: what, how, when, against whom."""
    manner = {"one-round": "one round", "all-rounds": "all rounds together"}.get(attack.manner or "", attack.manner)
    when = f"round {attack.round}" if attack.manner == "one-round" and attack.round is not None else manner
    return " · ".join(part for part in (attack.attack.replace("/", ": "), when, f"seen by {words.observer(attack.observer)}") if part)


def _tables(setting: Setting) -> list[dict[str, Any]]:
    """A full table for every attack that is not membership inference, strongest first."""
    return [{"name": attack_name(attack), "attack": attack, "rows": metric_rows(attack), "controls": _controls(attack),
             "leaks": any(check.excludes for check in checks(attack)), "judged": bool(checks(attack))}
            for attack in setting.by_strength if attack.kind != "membership"]


def _controls(attack: Attack) -> list[str]:
    known = [name for name in CONTROLS if name in attack.controls]
    return known + sorted(set(attack.controls) - set(known))


def metric_rows(attack: Attack) -> list[dict[str, Any]]:
    """One row a metric: label, meaning, value, interval and controls as text; whether its interval excludes its control (None: not a gate)."""
    values = attack.metrics.__pydantic_extra__ or {}
    order = [name for name in words.METRICS if name in values] + sorted(name for name in values if name not in words.METRICS)
    judged = {check.metric: check.excludes for check in checks(attack)}
    rows = []
    for name in order:
        if name == "reidentified_chance":
            continue
        metric, interval = words.metric(name), attack.intervals.get(name)
        controls = [metric.say(attack.controls[control].get(name)) for control in _controls(attack)]
        chance = f"chance {words.percent(attack.value('reidentified_chance'))}" if name == "reidentified" and values.get("reidentified_chance") is not None else ""
        rows.append({"name": name, "label": metric.label, "meaning": metric.meaning, "direction": metric.direction, "value": metric.say(values[name]),
                     "interval": f"{metric.say(interval[0])} to {metric.say(interval[1])}" if interval else words.MISSING,
                     "controls": controls, "control_names": _controls(attack), "chance": chance, "leaks": judged.get(name), "missing": values[name] is None})
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
    curves = {attack_name(attack): attack.roc for attack in attacks if attack.roc is not None}
    rows = []
    for attack in attacks:
        points = {round(point.fpr, 9): point for point in attack.tpr_points}
        rows.append({"name": attack_name(attack), "attack": attack, "auc": attack.value("auc"), "auc_interval": attack.intervals.get("auc"),
                     "shuffled": attack.controls.get("shuffled", {}).get("auc"), "balanced": attack.value("balanced_accuracy"),
                     "points": [points.get(fpr) for fpr in (0.1, 0.01, 0.001, 0.0001)],
                     "members": attack.value("n_members"), "nonmembers": attack.value("n_nonmembers")})
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
    return {"level": worst.results.verdict.level, "sentences": summary(settings, worst), "rows": comparison(settings),
            "strip": _strip(settings), "plots": _shared_plots(settings)}


def summary(settings: Sequence[Setting], worst: Setting) -> list[str]:
    """Three sentences on all settings: how they were judged, what the worst gave away, where nothing was found."""
    names = {level: [setting.label for setting in settings if setting.results.verdict.level == level] for level in reversed(LEVELS)}
    judged = "; ".join(f"{level}: {words.listed(labels)}" for level, labels in names.items() if labels)
    quiet = [setting.label for setting in settings if tested(setting.results) and not leaks(setting.results)]
    untested = [setting.label for setting in settings if not tested(setting.results)]
    last = (f"No attack beat its control with {words.listed(quiet)}; that is no proof, the proven ε below is." if quiet
            else "In every setting that was measured some attack beat its control." if len(untested) < len(settings) else "Nothing was measured in any setting.")
    return [f"{len(settings)} settings, judged {judged}.", f"The worst, {worst.label}: {worst.results.verdict.sentences[0]}", last]


def comparison(settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """One row of plain values a setting; PSNR and re-identification are those of its strongest inversion. None: not measured."""
    rows = []
    for i, setting in enumerate(settings):
        setup, best, member, row = setting.results.setup, setting.strongest("inversion"), setting.strongest("membership"), setting.headline
        rows.append({
            "id": f"setting-{i + 1}", "setting": setting.label, "level": setting.results.verdict.level, "noise_std": setup.noise_std,
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
        cells = [{"image": data_uri(images[mark][2]), "said": f"{words.number(images[mark][0])} dB"} if mark in images else None for mark in chosen]
        rows.append({"label": setting.label, "level": setting.results.verdict.level, "cells": cells, "note": _strip_note(setting, bool(images))})
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


def _strip_note(setting: Setting, pictured: bool) -> str:
    noise = f"noise_std {words.number(setting.results.setup.noise_std)}"
    if not pictured:
        return f"{noise} · no pictures to compare"
    best = setting.strongest("inversion")
    share = best and best.value("reidentified")
    return noise + (f" · {words.percent(share)} re-identified" if share is not None else "")


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
            if len({point.x for points in series.values() for point in points}) < 2:
                continue
            image = plots.leakage(series, x_label, y_label, reference, said, share=share)
            found.append({"image": image, "alt": f"{y_label} against {axis}; the numbers are in the comparison table",
                          "caption": f"{y_label[0].upper()}{y_label[1:]} of the strongest attack against {axis}, with intervals."})
    return found


def _series(settings: Iterable[Setting], metric: str, axis: str, other: str) -> dict[str, list[plots.Point]]:
    """Points by the other of noise and clip. A setting whose value on the axis is unknown, or which has no clip, has no place on it."""
    series: dict[str, list[plots.Point]] = {}
    for setting in settings:
        attack = setting.strongest("membership" if metric == "auc" else "inversion")
        x, held = getattr(setting.results.setup, axis), getattr(setting.results.setup, other)
        if attack is None or attack.value(metric) is None or x is None:
            continue
        name = {"clip_norm": "clip ", "noise_std": "noise_std "}[other] + ("none" if held is None else words.number(held))
        series.setdefault(name, []).append(_point(x, attack, metric))
    return dict(sorted(series.items()))
