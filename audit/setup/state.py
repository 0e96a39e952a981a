"""The state that a killed training goes on from: what lasts from one round to the next, in SETUP/.work."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from ...defenses.federation import State, start_state
from ...defenses.releases import Release
from ...defenses.wire import Lineage, Parcel
from ..files import write_tensors
from .experiment import Experiment
from .ledger import release_of
from .reading import plain_json, read_text, regular


def round_files(work: Path) -> list[Path]:
    """The files of the finished rounds, in order; from round 10,000 on their names grow by a digit."""
    return sorted(work.glob("round-*.json"), key=lambda path: (len(path.name), path.name))


def save_state(state: State, work: Path) -> None:
    """Written last in a round: what it names is there by then."""
    tensors = {f"model/{party}": parcel.vector for party, parcel in state.models.items()}
    tensors |= {f"kept/{party}/{name}": value for party, kept in state.kept.items() for name, value in kept.items()}
    facts = {
        "round": state.round,
        "memory": {str(p): m for p, m in state.memory.items()},
        "history": state.history,
        "participations": {str(c): n for c, n in state.participations.items()},
        "versions": {str(p): [version.id for version in parcel.inherits] for p, parcel in state.models.items()},
        "sides": {str(p): dict(parcel.side) for p, parcel in state.models.items()},
    }
    write_tensors(work / "state.safetensors", tensors, {"state": json.dumps(facts, sort_keys=True)})


def load_state(experiment: Experiment, work: Path) -> State | None:
    """The state of a killed run, or None for a fresh start; leftovers of the round it was in are removed."""
    path = work / "state.safetensors"
    if not path.exists():
        shutil.rmtree(work, ignore_errors=True)
        return None
    with safe_open(regular(path), "pt") as file:
        facts = json.loads(file.metadata()["state"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    releases: dict[str, Release] = {}
    versions: dict[str, Lineage] = {}
    for left in round_files(work):
        content = plain_json(read_text(left))
        if content["round"] >= facts["round"]:
            left.unlink()
            continue
        releases.update({row["id"]: release_of(row) for row in content["releases"]})
        for row in content["models"]:  # a version stands after its parents
            new, summed, merged = (
                None if row[what] is None else frozenset(releases[i] for i in row[what])
                for what in ("releases", "summed", "merged")
            )
            parents = tuple(versions[i] for i in row["parents"])
            versions[row["id"]] = Lineage(row["id"], new or frozenset(), parents, summed, merged)
    fresh = start_state(experiment.federation())
    models: dict[int, Parcel] = {}
    kept: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        what, party, *rest = name.split("/")
        if what == "model":
            inherits = tuple(versions[i] for i in facts["versions"][party])
            models[int(party)] = Parcel(value, inherits=inherits, side=facts["sides"][party])
        else:
            kept[int(party)][rest[0]] = value
    memory: dict[int, dict[str, Any]] = defaultdict(dict, {int(p): m for p, m in facts["memory"].items()})
    participations: dict[int, int] = defaultdict(int, {int(c): n for c, n in facts["participations"].items()})
    return State(facts["round"], {p: models[p] for p in fresh.models}, kept, memory, facts["history"], participations)
