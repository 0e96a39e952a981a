"""A trial's cells as experiments: their tables put over a base config, data and model shared where they are equal, so
that clients of many cells are stacked and messages of many cells are attacked as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..setup.config import Config, parse_config
from ..setup.experiment import Experiment, build, with_scheme
from .table import Request
from .trial_table import TableCell

Tables = Mapping[str, Any]


def experiments_of(base: Tables, cells: Sequence[TableCell], seed: int) -> dict[str, Experiment]:
    """By `training_name`: one for all cells that differ only in what they read of it. Raises BadInput."""
    made: dict[str, Experiment] = {}
    known: dict[str, Experiment] = {}
    for cell in cells:
        if (name := training_name(cell)) not in made:
            config = parse_config({**merged(base, cell.tables), "seed": seed}, cell.name)
            first = known.get(alike := _data_and_model(config))
            made[name] = (
                build(config, Path()) if first is None else with_scheme(config, first.data, first.module, first.clients)
            )
            known.setdefault(alike, made[name])
    return made


def training_name(cell: TableCell) -> str:
    """Equal for cells of the same training."""
    return json.dumps(cell.tables, sort_keys=True)


def merged(base: Tables, over: Tables) -> dict[str, Any]:
    """Tables of keys, those of `over` put over those of `base`.

    >>> merged({"scheme": {"name": "ldp", "clip": 1}}, {"scheme": {"clip": 2}})
    {'scheme': {'name': 'ldp', 'clip': 2}}
    """
    names = dict.fromkeys((*base, *over))
    return {
        name: {**base.get(name, {}), **over[name]}
        if isinstance(over.get(name), Mapping)
        else over.get(name, base.get(name))
        for name in names
    }


def _data_and_model(config: Config) -> str:
    return json.dumps([config.data.model_dump(mode="json"), config.model.model_dump(mode="json"), config.seed])


def stand_in(
    request: Request, published: str, sets: Mapping[str, str], bundled: str
) -> tuple[str, dict[str, Any], str]:
    """The first of `sets` (name → folder under --data-root) that is there, else the bundled one: its name, its [data]
    table's name and root, and what to call it in a row.

    Args:
        request: with data_root and data. published: the publication's data set, in words.
        sets: those that will do, the published one first. bundled: what stands in without a folder.

    Raises:
        BadInput: another set is asked for, or the folder holds none of them.
    """
    if request.data is not None and request.data not in (*sets, bundled):
        raise BadInput(f"data = {request.data!r}: the table is made on {', '.join((*sets, bundled))}")
    name = request.data
    if name is None and request.data_root is None:
        name = bundled
    if name == bundled:
        return name, {"name": name}, f"bundled {name} for {published}"
    if request.data_root is None:
        raise BadInput(f"{name} is read from a folder; give --data-root DIR, with DIR/{sets[str(name)]}")
    found = [each for each, folder in sets.items() if name in (None, each) and (request.data_root / folder).exists()]
    if not found:
        wanted = " nor ".join(folder for each, folder in sets.items() if name in (None, each))
        raise BadInput(
            f"--data-root {request.data_root} holds {'no' if name else 'neither'} {wanted}; give a folder with one of"
            f" them, or leave it out for {bundled}"
        )
    root = str(request.data_root.resolve())
    shown = found[0] if found[0] == next(iter(sets)) else f"{found[0]} for {published}"
    return found[0], {"name": found[0], "root": root, "split_seed": request.seed}, shown
