"""The report on one RESULTS folder, or on several side by side: a page, or the same facts as JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import BadInput
from ..files import json_text, write_named
from ..lock import holder_of
from ..results.format import Epsilon, Results
from .facts import ReportedSetting, read_settings
from .page import page
from .side_by_side import comparison

Format = Literal["html", "json", "csv"]


def render(folders: Sequence[Path], output: Path | None = None, format: Format = "html") -> str | Path:
    """The report as text, or, with `output`, written there and its path returned. The same folders give the same bytes.

    A page is one file that fetches nothing and runs no script but its own; a half-written `output` never exists.

    Raises:
        BadInput: no folder, an unknown format, results that are missing, wrong or being written, or an `output` that
            cannot be written.
    """
    if not folders:
        raise BadInput("a report needs at least one RESULTS folder, got none")
    if format not in _FORMATS:
        raise BadInput(f"format is {format!r}, expected one of {', '.join(_FORMATS)}")
    folders = [Path(folder) for folder in folders]
    for folder in folders:
        if not folder.is_dir():
            Results.read(folder)  # says what is wrong
        if (holder := holder_of(folder)) is not None:
            raise BadInput(f"{folder}: {holder} is writing here; wait until it has ended")
    if output is None:
        return _FORMATS[format](folders)
    write_named([(Path(output), _FORMATS[format](folders).encode())])
    return Path(output)


def _json(folders: Sequence[Path]) -> str:
    """{"format": 1, "comparison": [one row a setting], "results": [each results.json, checked]}."""
    settings = read_settings(folders)
    rows = [{key: value for key, value in row.items() if key != "id"} for row in comparison(settings)]
    content = {
        "format": 1,
        "comparison": rows,
        "results": [results.model_dump(by_alias=True) for s in settings for _, results in s.parts],
    }
    return json_text(content)


COLUMNS = (
    "setting",
    "digest",
    "noise_std",
    "server_noise_std",
    "noise_multiplier",
    "clip_norm",
    "accuracy",
    "attack",
    "observer",
    "unit",
    "adjacency",
    "delta",
    "manner",
    "round",
    "client",
    "n",
    "quantity",
    "value",
    "low",
    "high",
    "p_value",
    "control",
    "control_value",
    "condition",
    "claimed_by",
    "demonstrated_from",
)


def _csv(folders: Sequence[Path]) -> str:
    """One row a measured quantity, and one for each of its controls; the columns are in docs/results.md. Numbers are
    plain: shares of 1, a point, no thousands. Empty: not measured or not applicable; inf: ∞.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for setting in read_settings(folders):
        setup = setting.results.setup
        common = {
            "setting": setting.label,
            "digest": setup.digest,
            "noise_std": setup.noise_std,
            "server_noise_std": setting.results.server_noise_std,
            "noise_multiplier": setup.noise_multiplier,
            "clip_norm": setup.clip_norm,
            "accuracy": setup.test_accuracy,
        }
        for row in [*_epsilon_rows(setting), *_attack_rows(setting)]:
            writer.writerow({key: _cell(value) for key, value in {**common, **row}.items()})
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    """Spreadsheets run a text that starts like a formula; a stranger's name must not."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value
    return value


def _epsilon_rows(setting: ReportedSetting) -> list[dict[str, Any]]:
    return [
        {
            "observer": row.observer,
            "unit": row.unit,
            "adjacency": row.adjacency,
            "delta": row.delta,
            "quantity": f"epsilon_{what}",
            "value": getattr(row, what),
            **_further(row, what),
        }
        for row in setting.results.epsilon
        for what in (
            "claimed",
            "proven",
            "demonstrated",
            "ceiling",
            "demonstrated_on_condition",
            "ceiling_on_condition",
        )
    ]


def _further(row: Epsilon, what: str) -> dict[str, str]:
    """What else belongs to one of a row's numbers."""
    if what == "claimed":
        return {"claimed_by": row.claimed_by}
    further = {"condition": row.condition} if what.endswith("_on_condition") else {}
    if what.startswith("demonstrated"):
        return {**further, "demonstrated_from": row.demonstrated_from}
    return further


def _attack_rows(setting: ReportedSetting) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for attack in setting.results.attacks:
        common = {
            "attack": attack.attack,
            "observer": attack.observer,
            "manner": attack.manner,
            "round": attack.round,
            "client": attack.client,
            "n": attack.n,
        }
        for name, value in attack.numbers.items():
            low, high = attack.intervals.get(name) or (None, None)
            row = {**common, "quantity": name, "value": value, "low": low, "high": high}
            row["p_value"] = attack.p_values.get(name)
            if name.startswith("epsilon"):
                row["demonstrated_from"] = attack.demonstrated_from
            rows.append(row)
            rows += [
                {**row, "control": control, "control_value": values[name]}
                for control, values in attack.controls.items()
                if values.get(name) is not None
            ]
        for point in attack.tpr_points:
            low, high = point.interval or (None, None)
            rows.append(
                {**common, "quantity": f"tpr_at_fpr_{point.fpr:g}", "value": point.tpr, "low": low, "high": high}
            )
            if point.realised_fpr is not None:
                rows.append({**common, "quantity": f"fpr_reached_at_{point.fpr:g}", "value": point.realised_fpr})
            if point.ceiling is not None:
                rows.append({**common, "quantity": f"tpr_ceiling_at_{point.fpr:g}", "value": point.ceiling})
    return rows


_FORMATS: dict[str, Callable[[Sequence[Path]], str]] = {"html": page, "json": _json, "csv": _csv}
