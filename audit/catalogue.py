"""What there is to choose from, for `audit list`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from ..attacks import ATTACKS, AUTO
from ..defenses.data import NAMES as DATASETS
from ..defenses.models import MODELS
from ..defenses.presets import GROUPS, PRESETS
from ..defenses.terms import KINDS
from .results.gates import GATED
from .say.metrics import METRICS
from .setup.config import CANARY

NARROWEST = 60  # columns; a terminal that says it has fewer is not believed


def catalogue(what: str) -> list[dict[str, Any]]:
    """Objects with "name" and "about", and for schemes "group", by which they are sorted, "paper", "needs", "claims",
    "provable" (yes, no or depends) and "why".
    """
    match what:
        case "schemes":
            return [
                {
                    "name": p.name,
                    "about": p.title,
                    "group": p.group,
                    "paper": p.source,
                    "needs": p.needs,
                    "claims": p.claimed_unit,
                    "provable": p.provable,
                    "why": p.why,
                }
                for p in PRESETS.values()
            ]
        case "attacks":
            canary = {
                "name": CANARY,
                "about": (
                    "canaries: a valid lower bound on ε, by the setup's own code with and without a record or client"
                ),
            }
            auto = {"name": AUTO, "about": "inversion by the preset that suits what the observer is told; says why"}
            return [*({"name": name, "about": kind.about} for name, kind in ATTACKS.items()), auto, canary]
        case "metrics":
            metrics = {name: m.meaning for name, m in METRICS.items() if m.meaning}
            return [{"name": name, "about": about} for name, about in {**metrics, **GATED}.items()]
        case "datasets":
            return [{"name": name, "about": about} for name, about in DATASETS.items()]
        case "models":
            return [{"name": name, "about": about} for name, about in MODELS.items()]
        case _:
            return [{"name": name, "about": kind.about} for name, kind in KINDS.items()]


def text(entries: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """One line an entry (width None: a pipe), or for a terminal of `width` columns a block each, every field on lines
    of its own; there a group has one heading.
    """
    indent = 2 + max(len(e["name"]) for e in entries)
    parts = [(e["name"], str(e["about"]), _fields(e)) for e in entries]
    if width is None:
        return "\n".join(
            f"{name:{indent}}" + "; ".join([about, *(f"{k}: {v}" for k, v in fields.items())])
            for name, about, fields in parts
        )
    width = max(width, NARROWEST)
    label = 2 + max((len(k) for _, _, fields in parts for k in fields), default=0)
    lines: list[str] = []
    group = ""
    for name, about, fields in parts:
        if (own := fields.pop("group", "")) != group:
            group = own
            lines += [*[""] * bool(lines), *_hanging("", f"{group}: {GROUPS[group]}", width)]  # type: ignore[index]
        lines += _hanging(f"{name:{indent}}", about, width)
        for key, value in fields.items():
            lines += _hanging(" " * indent + f"{key:{label}}", value, width)
    return "\n".join(lines)


def _fields(entry: Mapping[str, Any]) -> dict[str, str]:
    """What stands beside name and about, a reason behind its answer."""
    fields = {k: str(v) for k, v in entry.items() if k not in ("name", "about", "why")}
    return fields | ({"provable": f"{entry['provable']} – {entry['why']}"} if "why" in entry else {})


def _hanging(head: str, words: str, width: int) -> list[str]:
    return wrap(
        words,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]
