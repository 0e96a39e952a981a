"""What there is to choose from, for `audit list`."""

from __future__ import annotations

from typing import Any

from ..attacks import ATTACKS
from ..defenses.data import NAMES as DATASETS
from ..defenses.models import MODELS
from ..defenses.presets import PRESETS
from .run import CANARY
from .setup import OBSERVERS
from .words import METRICS


def catalogue(what: str) -> list[dict[str, Any]]:
    """Objects with "name" and a line or more about each."""
    match what:
        case "schemes":
            return [{"name": p.name, "about": p.title, "paper": p.source, "needs": p.needs, "claims": p.claimed_unit, "provable": p.provable}
                    for p in PRESETS.values()]
        case "attacks":
            canary = {"name": CANARY, "about": "canaries: a valid lower bound on ε, by the setup's own code with and without a record or client"}
            return [*({"name": name, "about": kind.about} for name, kind in ATTACKS.items()), canary]
        case "metrics":
            return [{"name": name, "about": m.meaning} for name, m in METRICS.items()]
        case "datasets":
            return [{"name": name, "about": about} for name, about in DATASETS.items()]
        case "models":
            return [{"name": name, "about": about} for name, about in MODELS.items()]
        case _:
            return [{"name": name, "about": about} for name, about in OBSERVERS.items()]
