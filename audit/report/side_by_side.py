"""Several settings compared: one table, the same images under each, leakage against noise and clip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..results.checks import picked
from ..say import words
from ..say.accuracy import accuracy_interval, accuracy_said
from ..say.badge import badge
from . import plots
from .facts import ReportedSetting
from .pictures import data_uri, fingerprint, read_pictures

STRIP = 8  # images in a row


def several(settings: Sequence[ReportedSetting]) -> dict[str, Any]:
    return {
        "adjacencies": words.adjacency_said(row.adjacency for s in settings for row in s.results.epsilon),
        "multiplier": words.MULTIPLIER,
        "rows": comparison(settings),
        "strip": _strip(settings),
        "plots": _shared_plots(settings),
    }


def comparison(settings: Sequence[ReportedSetting]) -> list[dict[str, Any]]:
    """One row of plain values a setting; None: not measured.

    PSNR and re-identification are those of its strongest inversion, the latter out of each image's own pool where it
    has one, beside what the verdict judges it by: the larger of chance and the controls' share. no_noise_accuracy: the
    best of a compared setting without noise, on the same data with the same model.
    """
    rows = []
    for i, setting in enumerate(settings):
        setup, row = setting.results.setup, setting.judgement.rows.quoted
        best, member = setting.strongest("inversion"), setting.strongest("membership")
        line_up = best and picked(best)
        control, against = setting.compared(best) if best else (None, "")
        low, high = accuracy_interval(setup) or (None, None)
        rows.append(
            {
                "id": f"setting-{i + 1}",
                "setting": setting.label,
                "level": setting.judgement.level,
                "proof": setting.judgement.proof,
                "badge": badge(setting.judgement),
                "noise_std": setup.noise_std,
                "server_noise_std": setting.results.server_noise_std,
                "noise_multiplier": setup.noise_multiplier,
                "clip_norm": setup.clip_norm,
                "test_accuracy": setup.test_accuracy,
                "accuracy_low": low,
                "accuracy_high": high,
                "guessing_accuracy": setup.guessing_accuracy,
                "no_noise_accuracy": setting.no_noise_accuracy,
                "accuracy": accuracy_said(setup, setting.without_noise),
                "psnr": best and best.value("psnr"),
                "reidentified": best and line_up and best.value(line_up.share),
                "reidentified_interval": best and line_up and best.intervals.get(line_up.share),
                "reidentified_control": control,
                "reidentified_against": against,
                "auc": member and member.value("auc"),
                "auc_interval": member and member.intervals.get("auc"),
                "claimed": row and row.claimed,
                "claimed_by": row.claimed_by if row else "",
                "proven": row and row.proven,
                "secret": setting.judgement.secret,
                "demonstrated": row and row.demonstrated,
                "on_condition": row and words.on_condition(row),
                "demonstrated_from": words.chosen_briefly(row) if row else "",
            }
        )
    return rows


def _strip(settings: Sequence[ReportedSetting]) -> dict[str, Any] | None:
    """The same originals in every setting, each beside its best reconstruction there: recovered, half recovered, gone.

    The images are those that most settings have; among them those that leaked most anywhere come first.
    """
    by_setting = [best_of_each_original(setting) for setting in settings]
    marks = list(dict.fromkeys(mark for images in by_setting for mark in images))
    if not marks:
        return None

    def rank(mark: str) -> tuple[int, float]:
        have = [images[mark] for images in by_setting if mark in images]
        return -len(have), -max(psnr for psnr, _, _ in have)

    chosen = sorted(marks, key=rank)[:STRIP]
    originals = [next(data_uri(images[mark][1]) for images in by_setting if mark in images) for mark in chosen]
    rows = []
    for setting, images in zip(settings, by_setting, strict=True):
        cells = [
            {"image": data_uri(images[mark][2]), "closeness": f"{images[mark][0]:.1f} dB"} if mark in images else None
            for mark in chosen
        ]
        rows.append(
            {
                "label": setting.label,
                "level": setting.judgement.level,
                "cells": cells,
                "notes": _strip_notes(setting, bool(images)),
            }
        )
    return {
        "originals": originals,
        "rows": rows,
        "all_shared": all(mark in images for images in by_setting for mark in chosen),
    }


def best_of_each_original(setting: ReportedSetting) -> dict[str, tuple[float, np.ndarray, np.ndarray]]:
    """Fingerprint of an original -> (PSNR, original, the closest reconstruction of it)."""
    best: dict[str, tuple[float, np.ndarray, np.ndarray]] = {}
    for attack in setting.by_strength:
        if attack.kind != "inversion" or attack.thing == "text" or not attack.pairs:
            continue
        pictures = read_pictures(setting.folder_of(attack), attack)
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


def _strip_notes(setting: ReportedSetting, pictured: bool) -> list[str]:
    noise = words.noise(setting.results.setup.noise_std, setting.results.server_noise_std)
    if not pictured:
        return [noise, "no pictures to compare"]
    best = setting.strongest("inversion")
    share = None
    if best:
        share = best.value(picked(best).share)
    if share is None:
        return [noise]
    return [noise, f"{words.percent(share)} re-identified"]


def _shared_plots(settings: Sequence[ReportedSetting]) -> list[dict[str, str]]:
    pictures = []
    for metric, y_label, share in (
        ("reidentified", "re-identified", True),
        ("psnr_margin", "PSNR margin (dB)", False),
        ("auc", "membership AUC", False),
    ):
        reference, label = {"psnr_margin": (0.0, "best control"), "auc": (0.5, "guessing")}.get(metric, (None, ""))
        for axis, other, name, unit in (
            ("noise_std", "clip_norm", "noise_std", " (parameter units)"),
            ("server_noise_std", "clip_norm", "server's noise_std", " (parameter units)"),
            ("clip_norm", "noise_std", "clip norm", ""),
        ):
            series = _series(settings, metric, axis, other)
            if not any(len({point.x for point in points}) > 1 for points in series.values()):
                continue  # nothing else held equal, nothing varied
            image = plots.leakage(series, name + unit, y_label, reference, label, share=share)
            pictures.append(
                {
                    "image": image,
                    "alt": f"{y_label} against {name}; the numbers are in the comparison table",
                    "caption": (
                        f"{y_label[0].upper()}{y_label[1:]} of the strongest attack against {name}, with intervals."
                    ),
                }
            )
    return pictures


def _series(settings: Iterable[ReportedSetting], metric: str, axis: str, other: str) -> dict[str, list[plots.Point]]:
    """Points by the other of noise and clip.

    A setting whose value on the axis is unknown, or which has no clip, has no place on it.
    """
    series: dict[float | None, list[plots.Point]] = {}
    for setting in settings:
        attack = setting.strongest("membership" if metric == "auc" else "inversion")
        known = {
            **setting.results.setup.model_dump(include={"noise_std", "clip_norm"}),
            "server_noise_std": setting.results.server_noise_std,
        }
        x, held = known[axis], known[other]
        if attack is None or x is None:
            continue
        name = picked(attack).share if metric == "reidentified" else metric
        if attack.value(name) is not None:
            control = None
            if metric == "reidentified":
                control = setting.compared(attack)[0]
            series.setdefault(held, []).append(plots.point(x, attack, name, control))
    prefix, unknown = {"clip_norm": ("clip ", "no clip"), "noise_std": ("noise_std ", "noise_std unknown")}[other]
    return {
        unknown if held is None else prefix + words.number(held): points
        for held, points in sorted(series.items(), key=lambda item: (item[0] is None, item[0] or 0))
    }
