"""`audit epsilon`: the three-number table of a config (nothing is trained) or of a setup, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from ...defenses.terms import ADJACENCIES, UNITS, Observer
from ..errors import BadInput, bad_input
from ..files import number
from ..results.format import Results
from ..setup.auditor import Auditor
from ..setup.config import read_config
from ..setup.experiment import build
from ..setup.folder import open_setup
from ..setup.ledger import Ledger
from ..setup.planned import planned_ledger
from . import rows as epsilon
from .accounting import Exposure


def table(
    source: Path,
    *,
    delta: float | None = None,
    unit: str = "both",
    adjacency: str = "both",
    observers: Sequence[str] = (),
    target_epsilon: float | None = None,
    results: Path | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """{"source", "delta", "rows": [...], "targets": [...]}; rows as in results.json. Raises BadInput."""
    if delta is not None and not 0 < delta < 1:
        raise BadInput(f"--delta {delta}: δ must lie between 0 and 1")
    if target_epsilon is not None and not 0 < target_epsilon < inf:
        raise BadInput(f"--target-epsilon {target_epsilon}: a target must be above 0 and finite")
    with bad_input(""):
        asked = tuple(Observer.parse(name) for name in observers)
    if source.is_dir():
        if overrides:
            raise BadInput("--set changes a config; a setup's values are what was trained")
        setup = open_setup(source)
        if (key := Auditor(setup).ledger) is None:
            raise BadInput(f"{source} has no auditor/ folder; ε is priced from the releases in it")
        ledger, claim, config = key, setup.scheme.claim, setup.config
    else:
        config = read_config(source, overrides)
        experiment = build(config, source.parent)
        ledger, claim = planned_ledger(experiment), experiment.scheme.claim
    delta = config.audit.delta if delta is None else delta
    units = tuple(u for u in UNITS if unit in ("both", u))
    adjacencies = tuple(a for a in ADJACENCIES if adjacency in ("both", a))
    rows = epsilon.rows(ledger, claim, delta, asked or None, units, adjacencies)
    if results is not None:
        _add_demonstrated(rows, results, config.model_dump(mode="json"))
    made: dict[str, Any] = {"source": str(source), "delta": delta, "rows": rows}
    if target_epsilon is not None:
        made["targets"] = [_target(ledger, row, target_epsilon) for row in rows]
    return made


def _target(ledger: Ledger, row: dict[str, Any], target: float) -> dict[str, Any]:
    """By how much all noise must grow for a proven ε of `target` in this row."""
    cases = ledger.cases(Observer.parse(row["observer"]))
    place = {k: row[k] for k in ("observer", "unit", "adjacency", "delta")}
    try:
        with bad_input(row["observer"]):
            scales = [
                Exposure.of(seen, subjects).worst_noise_scale_for(
                    unit=row["unit"], adjacency=row["adjacency"], delta=row["delta"], target_epsilon=target
                )
                for seen, subjects in cases
            ]
    except BadInput as error:
        return {**place, "target_epsilon": target, "noise_factor": None, "noise_std": None, "why": str(error)}
    own = sorted({r.noise_std for seen, _ in cases for r in seen if r.mechanism != "none"})
    factor = max(scales, default=1.0)
    return {
        **place,
        "target_epsilon": target,
        "noise_factor": factor,
        "noise_std": number(own[0] * factor) if len(own) == 1 else None,
        "why": "",
    }


def _add_demonstrated(rows: list[dict[str, Any]], results: Path, config: dict[str, Any]) -> None:
    found = Results.read(results)
    if found.setup.config != config:
        raise BadInput(f"{results} holds the results of another setup; its config is not that of the source")
    for row in rows:
        for other in found.epsilon:
            if all(getattr(other, k) == row[k] for k in ("observer", "unit", "adjacency", "delta")):
                row |= {
                    "demonstrated": number(other.demonstrated),
                    "confidence": other.confidence,
                    "ceiling": number(other.ceiling),
                }


def text(made: dict[str, Any]) -> str:
    """The table for a terminal, with the reasons below."""
    head = ("observer", "unit", "adjacency", "claimed", "proven", "demonstrated", "multiplier", "accountant")
    lines = [head] + [tuple(_cell(row, name) for name in head) for row in made["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    out = [f"ε at δ = {made['delta']:g}; - is not claimed or not measured"]
    out += ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]
    for row in made["rows"]:
        for note in row["notes"]:
            line = f"{row['observer']}, {row['unit']}, {row['adjacency']}: {note}"
            if line not in out:
                out.append(line)
    for target in made.get("targets", []):
        place = f"{target['observer']}, {target['unit']}, {target['adjacency']}"
        if target["noise_factor"] is None:
            out.append(f"{place}: no noise factor gives a proven ε of {target['target_epsilon']:g}: {target['why']}")
        else:
            std = f" (noise_std {target['noise_std']:.6g})" if target["noise_std"] else ""
            out.append(
                f"{place}: proven ε = {target['target_epsilon']:g} needs {target['noise_factor']:.6g} times the"
                f" noise{std}"
            )
    return "\n".join(out)


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if name == "multiplier" or value >= 1e5 else f"{value:.2f}"
    return "∞" if value == "inf" else str(value)
