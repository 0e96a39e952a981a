"""The report page: one self-contained HTML file, of each setting's plain values, which the template only lays out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..judge.judgement import Judgement
from ..results.ablation import worth, worth_cells
from ..results.format import AttackResult, Pair, Results
from ..say import words
from ..say.badge import leak_said, proof_word
from ..say.evidence import cells_beside
from ..say.knowledge import nothing_said
from ..say.metrics import metric
from ..say.warnings import picked_said
from . import plots
from .cells import cell_table
from .decision import Decision, Leak, decision_on
from .facts import ReportedSetting, attack_name, controls, epsilon_table, facts, metric_rows, notices, read_settings
from .membership import membership
from .pictures import Pictures, data_uri, read_pictures
from .side_by_side import several
from .texts import text_table

TEMPLATES = Path(__file__).parent / "templates"
OVERVIEW = ("whole", "words_told", "reidentified", "psnr_margin", "linked", "attribute_advantage", "auc", "epsilon")
SHOWN_PAIRS = 30  # of the strongest attack of each kind; the folder has them all


def page(folders: Sequence[Path]) -> str:
    """The HTML text. Names in results are strangers' text, so everything is escaped; the page's own script is the only
    one that runs, by its hash.
    """
    settings = read_settings(folders)
    decided = decision_on(settings)
    return filled(
        "report.html.j2",
        decision=_decision(decided),
        audited=_audited([setting.results for setting in settings]),
        settings=[_setting(setting, i) for i, setting in enumerate(settings)],
        several=several(settings) if len(settings) > 1 else None,
        version=words.listed(sorted({str(s.results.setup.versions.get("dpfl-audit", "")) for s in settings} - {""})),
    )


def filled(template: str, **content: Any) -> str:
    """A page out of a template of `TEMPLATES`, with the style and the script that all pages have.

    Args:
        template: its file's name. content: what it lays out; texts are escaped.
    """
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8").strip()
    html = (
        _environment(TEMPLATES)
        .get_template(template)
        .render(
            css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8").strip()),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
            **content,
        )
    )
    # Blank lines of the template go; those of the script are within its hash.
    head, mark, rest = html.partition("<script>")
    code, end, tail = rest.partition("</script>")
    return _dense(head).lstrip() + mark + code + end + _dense(tail).rstrip() + "\n"


@cache
def _environment(templates: Path) -> Environment:
    """One for all pages of a process: a template is compiled once, which takes longer than filling it in."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=words.number,
        at_least=words.at_least,
        at_most=words.at_most,
        proven_if_secret=words.proven_if_secret,
        claim=words.claim,
        claimant=words.claimant,
        percent=words.percent,
        percent_at_least=words.percent_at_least,
        between=words.between,
        percent_at_most=words.percent_at_most,
        noise=words.noise,
        code=_code,
        on_condition=words.on_condition,
        chosen_briefly=words.chosen_briefly,
    )
    environment.tests["pictured"] = any
    environment.tests["finite"] = isfinite
    return environment


def _dense(html: str) -> str:
    return re.sub(r"\n\s*\n+", "\n", html)


def _code(text: str) -> Markup:
    """Escapes a sentence and sets its `commands` as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _decision(decided: Decision) -> dict[str, Any]:
    return {
        "share": decided.share,
        "badge": _badge(decided.worst.judgement),
        "worst": decided.worst.label,
        "leak": None if decided.leak is None else _leak(decided.leak),
        "losses": decided.losses,
        "change": decided.change,
        "untrained": decided.untrained,
    }


def _badge(judgement: Judgement) -> dict[str, str]:
    """Both axes of a judgement: the words, and the class names that colour them."""
    return {
        "leak": leak_said(judgement),
        "level": judgement.level.replace(" ", "-"),
        "proof": proof_word(judgement),
        "proven": judgement.proof.replace(" ", "-"),
    }


def _leak(leak: Leak) -> dict[str, Any]:
    """The strongest leak with what shows it: pairs of images, a plot, or a number."""
    shown: dict[str, Any] = {
        "found": leak.found,
        "said": leak.said,
        "setting": leak.setting.label,
        "value": leak.value,
        "beside": leak.beside,
        "seen_by": "" if leak.attack is None else words.observer(leak.attack.observer),
        "attack": "" if leak.attack is None else attack_name(leak.attack, with_observer=False),
        "pair": None,
        "cells": None,
        "roc": None,
        "text": None,
    }
    if leak.kind == "texts" and leak.attack is not None:
        rows = text_table(leak.setting.folder_of(leak.attack), leak.attack)["rows"]
        shown["text"] = rows[0] if rows and rows[0]["rebuilt"] else None
    if leak.kind == "images" and leak.attack is not None:
        pictures = read_pictures(leak.setting.folder_of(leak.attack), leak.attack)
        shown["cells"] = cells = cell_table(pictures, leak.setting.results.setup)
        if cells is not None:
            shown["cells_beside"] = cells_beside(leak.attack, cells["right"])
        shown["pair"] = None if shown["cells"] else _most_telling(pictures)
    if leak.kind == "roc" and leak.attack is not None and leak.attack.roc is not None:
        shown["roc"] = plots.roc_plot({leak.attack.attack: leak.attack.roc})
    return shown


def _most_telling(pictures: Pictures) -> dict[str, Any] | None:
    """The best rebuilt of the originals with much to see in them: a patch of night sky is rebuilt best, and says least.

    None where the images are not in the folder.
    """
    if pictures.rebuilt is None or pictures.originals is None:
        return None
    contrast = {pair.original: float(pictures.originals[pair.original].std()) for pair in pictures.worst_first}
    vivid = [pair for pair in pictures.worst_first if contrast[pair.original] >= np.median(list(contrast.values()))]
    if vivid:
        return _pair(pictures, vivid[0])
    return None


def _setting(setting: ReportedSetting, index: int) -> dict[str, Any]:
    results = setting.results
    pictures = [_pictures(setting, attack) for attack in _strongest_of_each_manner(setting)]
    return {
        "id": f"setting-{index + 1}",
        "label": setting.label,
        "setup": results.setup,
        "server_noise_std": results.server_noise_std,
        "subtitle": _subtitle([results]),
        "facts": facts(results, setting.without_noise),
        "without_noise": setting.no_noise_accuracy is not None and setting.without_noise != "",
        "badge": _badge(setting.judgement),
        "sentences": setting.sentences,
        "notices": notices(results),
        "epsilon": epsilon_table(setting.judgement),
        "pictures": pictures,
        "tables": _tables(setting),
        "overview": _overview(setting),
        "worth": _worth(results),
        "membership": membership(setting),
        "plots": _own_plots(setting),
        "provenance": _provenance(setting),
        "unscored": _unscored(results),
    }


def _audited(settings: Sequence[Results]) -> str:
    """What was audited, in a line: what all settings share, and how many of what they differ in."""
    count = [f"{len(settings)} settings"] if len(settings) > 1 else []
    return " · ".join([*count, _subtitle(settings)])


def _subtitle(settings: Sequence[Results]) -> str:
    setups = [results.setup for results in settings]
    plural = {"gradient": "gradients", "update": "updates"}
    models = [setup.model for setup in setups if setup.model]
    sizes = {model.parameters for model in models}
    size = None
    if len(sizes) == 1:
        size = sizes.pop()
    names = [setup.data.get("name") for setup in setups]
    parts = [
        f"scheme {either}" if (either := _either([setup.scheme for setup in setups])) else "",
        _either(names),
        _either([model.name for model in models]) + (f" with {words.number(size)} parameters" if size else ""),
        _counted([setup.clients for setup in setups], "client"),
        _counted([setup.rounds for setup in setups], "round"),
        f"{what} shared" if (what := _either([plural.get(s.share or "", s.share) for s in setups])) else "",
    ]
    return " · ".join(filter(None, parts))


def _either(values: Sequence[object]) -> str:
    """What all have, or what they have between them; where that is too much for a line, the first and how many more."""
    known = list(dict.fromkeys(str(value) for value in values if value))
    if len(known) <= 2:
        return " or ".join(known)
    return f"{known[0]} or {len(known) - 1} others"


def _counted(counts: Sequence[int | None], noun: str) -> str:
    """
    >>> _counted([2, None, 2], "round"), _counted([2, 1, 5], "round")
    ('2 rounds', '1 to 5 rounds')
    """
    known = sorted({count for count in counts if count})
    if len(known) > 1:
        return f"{known[0]} to {words.times(known[-1], noun)}"
    if known:
        return words.times(known[0], noun)
    return ""


def _strongest_of_each_manner(setting: ReportedSetting) -> list[AttackResult]:
    """The strongest inversion of each kind that there is, strongest kind first."""
    best: dict[tuple[str, str, str | None], AttackResult] = {}
    for attack in setting.by_strength:
        if attack.kind == "inversion" and attack.key is not None:
            best.setdefault((attack.attack, attack.observer, attack.manner), attack)
    return list(best.values())


def _pictures(setting: ReportedSetting, attack: AttackResult) -> dict[str, Any]:
    if attack.thing == "text":
        texts = text_table(setting.folder_of(attack), attack, setting.results.setup.noise_multiplier)
        return {"name": attack_name(attack), "texts": texts, "lack": texts["lack"], "round": attack.round}
    pictures = read_pictures(setting.folder_of(attack), attack)
    shown: list[dict[str, Any]] = []
    if pictures.rebuilt is not None and pictures.originals is not None:
        shown += [_pair(pictures, pair) for pair in pictures.worst_first[:SHOWN_PAIRS]]
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
    cells = cell_table(pictures, setting.results.setup)
    return {
        "name": attack_name(attack),
        "texts": None,
        "shown": shown,
        "total": total,
        "lack": lack,
        "round": attack.round,
        "cells": cells,
        "leaks": any(check.beats for check in setting.checks(attack)),
        "thing": attack.thing,
        "closest": words.closest_said(attack.value("psnr_ceiling"), attack.value("psnr_ceiling_even")),
    }


def _pair(pictures: Pictures, pair: Pair) -> dict[str, Any]:
    assert pictures.rebuilt is not None and pictures.originals is not None
    closeness = [f"{pair.psnr:.1f} dB"] if pair.psnr is not None else []
    if pair.ssim is not None:
        closeness.append(f"SSIM {pair.ssim:.2f}")
    return {
        "original": data_uri(pictures.originals[pair.original]),
        "rebuilt": data_uri(pictures.rebuilt[pair.reconstruction]),
        "number": pair.original + 1,
        "closeness": " · ".join(closeness),
    }


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


def _overview(setting: ReportedSetting) -> dict[str, Any]:
    """One row an attack, strongest first, with the metrics that any of them has."""
    names = [name for name in OVERVIEW if any(attack.value(name) is not None for attack in setting.by_strength)]
    rows = []
    for attack in setting.by_strength:
        own = setting.checks(attack)
        rows.append(
            {
                "name": attack_name(attack, with_observer=False),
                "observer": words.observer(attack.observer),
                "n": attack.n,
                "values": [
                    {"value": attack.value(name), "said": metric(name).say(attack.value(name))} for name in names
                ],
                "outcome": "yes" if any(check.beats for check in own) else "no" if own else words.MISSING,
            }
        )
    return {"metrics": [metric(name).label for name in names], "rows": rows}


def _worth(results: Results) -> dict[str, Any] | None:
    """What each piece of knowledge is worth; None where nobody asked."""
    if not results.ablated:
        return None
    known = worth(results)
    tables = [
        {
            "name": table.name,
            "images": table.rows[0].images,
            "rows": [(row.name, worth_cells(row)) for row in table.rows],
        }
        for table in known
    ]
    thing = "image"
    if known:
        thing = known[0].thing
    said = nothing_said(results.not_withheld)
    return {"tables": tables, "thing": thing, "nothing": f"{said[0].upper()}{said[1:]}." if said else ""}


def _unscored(results: Results) -> str:
    if not results.attacks:
        return "No attack was run: what this setup really leaks was not measured."
    if not any(attack.scored for attack in results.attacks):
        return "The training data was not available, so no attack could be scored: not measured."
    return ""


def _own_plots(setting: ReportedSetting) -> list[dict[str, str]]:
    """One setting has one noise and one clip; what can be drawn is how the leak goes with the rounds."""
    series: dict[str, list[plots.Point]] = {}
    several = len({attack.observer for attack in setting.results.attacks}) > 1
    for attack in setting.results.attacks:
        margin = attack.value("psnr_margin")
        if attack.manner == "one-round" and attack.round is not None and margin is not None:
            said = attack.variant or attack.attack
            name = f"{said}, {attack.observer}" if several else said
            series.setdefault(name, []).append(plots.point(attack.round, attack, "psnr_margin"))
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
        names = assumed.setdefault((*attack.assumed, *_settings(attack.settings)), [])
        if name not in names:
            names.append(name)
    return {
        "rows": [(name, str(value)) for name, value in rows if value not in (None, "", "{}")],
        "config": json.dumps(setup.config, indent=2, ensure_ascii=False, sort_keys=True) if setup.config else "",
        "assumed": [{"names": "; ".join(names), "items": items} for items, names in assumed.items()],
    }


def _settings(settings: dict[str, Any]) -> list[str]:
    """The settings in a line, and why `auto` picked them in another."""
    plain = {key: value for key, value in settings.items() if key != "picked"}
    said = picked_said(settings)
    return [*([f"settings: {_inline(plain)}"] if plain else []), *([said.rstrip(".")] if said else [])]


def _inline(content: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} = {json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value}"
        for key, value in content.items()
        if value is not None
    )
