"""Configs of small federations, as text."""

from __future__ import annotations

import json
from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "data": {"name": "digits", "clients": 2, "samples_per_client": 10},
    "model": {"name": "mlp", "options": {"widths": [4]}},
    "local": {"optimiser": "sgd", "lr": 0.01, "batch_size": 5},
    "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 2},
}


def small_config(**changes: Any) -> str:
    """`SMALL` with changes: a table joins that of its name, one that names itself takes its place."""
    raw: dict[str, Any] = dict(SMALL)
    for name, value in changes.items():
        if name in SMALL and "name" not in value:
            value = {**SMALL[name], **value}
        raw[name] = value
    return toml(raw)


def toml(raw: dict[str, Any]) -> str:
    """Plain values as TOML; JSON's are nearly the same."""
    lines = [f"{k} = {json.dumps(v)}" for k, v in raw.items() if not isinstance(v, dict)]
    for name, table in raw.items():
        if isinstance(table, dict):
            lines += [f"[{name}]", *(f"{k} = {_inline(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_inline(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)
