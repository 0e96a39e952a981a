"""The report page: one self-contained HTML file, of each setting's plain values, which the template only lays out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..results import words
from ..results.format import LEVELS, AttackResult, Results
from . import plots
from .advice import advice, measured
from .facts import ReportedSetting, attack_name, controls, epsilon_table, facts, metric_rows, notices, read_settings
from .membership import membership
from .pictures import data_uri, read_pictures
from .side_by_side import several

TEMPLATES = Path(__file__).parent / "templates"
SHOWN_PAIRS = 30  # of the strongest attack of each kind; the folder has them all


def page(folders: Sequence[Path]) -> str:
    """The HTML text. Names in results are strangers' text, so everything is escaped."""
    settings = read_settings(folders)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=words.number,
        at_least=words.at_least,
        at_most=words.at_most,
        claimant=words.claimant,
        percent=words.percent,
        percent_at_least=words.percent_at_least,
        noise=words.noise,
        code=_code,
        on_condition=words.on_condition,
        badge=words.badge,
    )
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    html = environment.get_template("report.html.j2").render(
        css=Markup(css),
        levels=LEVELS,
        settings=[_setting(setting, i) for i, setting in enumerate(settings)],
        several=several(settings) if len(settings) > 1 else None,
        advice=advice([setting.results for setting in settings], [setting.label for setting in settings]),
        version=_version(settings),
    )
    return re.sub(r"\n\s*\n+", "\n", html).strip() + "\n"


def _code(text: str) -> Markup:
    """Escapes a sentence and sets its `commands` as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _version(settings: Sequence[ReportedSetting]) -> str:
    return words.listed(
        sorted({str(setting.results.setup.versions.get("dpfl-audit", "")) for setting in settings} - {""})
    )


def _setting(setting: ReportedSetting, index: int) -> dict[str, Any]:
    results = setting.results
    pictures = [_pictures(setting, attack) for attack in _strongest_of_each_manner(setting)]
    return {
        "id": f"setting-{index + 1}",
        "label": setting.label,
        "setup": results.setup,
        "server_noise_std": results.server_noise_std,
        "subtitle": _subtitle(results),
        "facts": facts(results, setting.without_noise),
        "level": results.verdict.level,
        "measured": measured(results),
        "sentences": results.verdict.sentences,
        "notices": notices(results),
        "epsilon": epsilon_table(results),
        "pictures": pictures,
        "tables": _tables(setting),
        "membership": membership(setting),
        "plots": _own_plots(setting),
        "provenance": _provenance(setting),
        "unscored": _unscored(results),
    }


def _subtitle(results: Results) -> str:
    setup = results.setup
    shared = {"gradient": "gradients shared", "update": "updates shared", "weights": "weights shared"}.get(
        setup.share or "", setup.share
    )
    model = setup.model and (
        setup.model.name + (f" with {setup.model.parameters:,} parameters" if setup.model.parameters else "")
    )
    parts = [
        f"scheme {setup.scheme}",
        setup.data.get("name"),
        model,
        setup.clients and words.times(setup.clients, "client"),
        setup.rounds and words.times(setup.rounds, "round"),
        shared,
    ]
    return " · ".join(str(part) for part in parts if part)


def _strongest_of_each_manner(setting: ReportedSetting) -> list[AttackResult]:
    """The strongest inversion of each kind that there is, strongest kind first."""
    best: dict[tuple[str, str, str | None], AttackResult] = {}
    for attack in setting.by_strength:
        if attack.kind == "inversion" and attack.key is not None:
            best.setdefault((attack.attack, attack.observer, attack.manner), attack)
    return list(best.values())


def _pictures(setting: ReportedSetting, attack: AttackResult) -> dict[str, Any]:
    pictures = read_pictures(setting.folder_of(attack), attack)
    shown: list[dict[str, Any]] = []
    if pictures.rebuilt is not None and pictures.originals is not None:
        for pair in pictures.worst_first[:SHOWN_PAIRS]:
            closeness = [f"{pair.psnr:.1f} dB"] if pair.psnr is not None else []
            closeness += [f"SSIM {pair.ssim:.2f}"] if pair.ssim is not None else []
            shown.append(
                {
                    "original": data_uri(pictures.originals[pair.original]),
                    "rebuilt": data_uri(pictures.rebuilt[pair.reconstruction]),
                    "number": pair.original + 1,
                    "closeness": " · ".join(closeness),
                }
            )
        total = len(pictures.attack.pairs)
    else:
        total = 0 if pictures.rebuilt is None else len(pictures.rebuilt)
        for i in range(min(total, SHOWN_PAIRS)):
            assert pictures.rebuilt is not None
            shown.append({"original": None, "rebuilt": data_uri(pictures.rebuilt[i]), "number": i + 1, "closeness": ""})
    lack = ""
    if pictures.rebuilt is None:
        lack = "The evidence file is not in the folder, so there is nothing to show."
    elif pictures.originals is None:
        lack = "The originals are not in the folder: reconstructions alone, unscored."
    return {"name": attack_name(attack), "shown": shown, "total": total, "lack": lack, "round": attack.round}


def _tables(setting: ReportedSetting) -> list[dict[str, Any]]:
    """A full table for every attack that is not membership inference, strongest first."""
    return [
        {
            "name": attack_name(attack),
            "attack": attack,
            "rows": metric_rows(attack, setting.checks(attack)),
            "further": metric_rows(attack, setting.checks(attack), further=True),
            "controls": controls(attack),
            "leaks": any(check.beats for check in setting.checks(attack)),
            "judged": bool(setting.checks(attack)),
            "control_names": [name.replace("_", " ") for name in controls(attack)],
        }
        for attack in setting.by_strength
        if attack.kind != "membership"
    ]


def _unscored(results: Results) -> str:
    if not results.attacks:
        return "No attack was run: what this setup really leaks was not measured."
    if not any(attack.scored for attack in results.attacks):
        return "The training data was not available, so no attack could be scored: not measured."
    return ""


def _own_plots(setting: ReportedSetting) -> list[dict[str, str]]:
    """One setting has one noise and one clip; what can be drawn is how the leak goes with the rounds."""
    series: dict[str, list[plots.Point]] = {}
    for attack in setting.results.attacks:
        margin = attack.value("psnr_margin")
        if attack.manner == "one-round" and attack.round is not None and margin is not None:
            series.setdefault(f"{attack.attack}, {attack.observer}", []).append(
                plots.point(attack.round, attack, "psnr_margin")
            )
    if len({point.x for points in series.values() for point in points}) < 2:
        return []
    image = plots.leakage(series, "round", "PSNR margin (dB)", reference=0.0, reference_label="best control", log=False)
    return [
        {
            "image": image,
            "alt": "PSNR margin over the best control against the round; the numbers are in the tables above",
            "caption": "One-round attacks: how much closer to the originals than the best control, by round.",
        }
    ]


def _provenance(setting: ReportedSetting) -> dict[str, Any]:
    results = setting.results
    setup = results.setup
    rows = [
        ("setup digest", setup.digest),
        ("results.json (SHA-256)", setting.digest),
        ("training", setup.status),
        ("seed", setup.seed),
        ("scheme parameters", _inline(setup.parameters)),
        ("data", _inline(setup.data)),
        ("versions", _inline(setup.versions)),
        ("reference classifiers", ", ".join(f"{c.family} ({words.percent(c.accuracy)})" for c in results.classifiers)),
        ("accountants", words.listed(sorted({row.accountant for row in results.epsilon if row.accountant}))),
    ]
    assumed: dict[tuple[str, ...], list[str]] = {}
    for attack in results.attacks:
        name = (
            f"{attack.attack.replace('/', ': ')}{f' ({attack.manner})' if attack.manner else ''},"
            f" {words.observer(attack.observer)}"
        )
        names = assumed.setdefault(
            (*attack.assumed, *([f"settings: {_inline(attack.settings)}"] if attack.settings else [])), []
        )
        if name not in names:
            names.append(name)
    return {
        "rows": [(name, str(value)) for name, value in rows if value not in (None, "", "{}")],
        "config": json.dumps(setup.config, indent=2, ensure_ascii=False, sort_keys=True) if setup.config else "",
        "assumed": [{"names": "; ".join(names), "items": items} for items, names in assumed.items()],
    }


def _inline(content: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} = {json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value}"
        for key, value in content.items()
    )
