"""A trial's cells as experiments: their tables put over a base config, data and model shared where they are equal, so
that clients of many cells are stacked and messages of many cells are attacked as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
            config = parse_config({**over_base(base, cell.tables), "seed": seed}, cell.name)
            first = known.get(alike := _data_and_model(config))
            if first is None:
                made[name] = build(config, Path())
            else:
                made[name] = with_scheme(config, first.data, first.module, first.clients)
            known.setdefault(alike, made[name])
    return made


def training_name(cell: TableCell) -> str:
    """Equal for cells of the same training."""
    return json.dumps(cell.tables, sort_keys=True)


def over_base(base: Tables, over: Tables) -> dict[str, Any]:
    """Tables of keys, those of `over` put over those of `base`.

    >>> over_base({"scheme": {"name": "ldp", "clip": 1}}, {"scheme": {"clip": 2}})
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


@dataclass(frozen=True)
class StandIn:
    """A data set for a published one. table: what its [data] table begins with. shown: what a row says it is measured
    on. files: names and sizes of what is read, which decide figures as settings do.
    """

    name: str
    table: Tables
    shown: str
    files: tuple[tuple[str, int], ...] = ()


def stand_in(request: Request, published: str, sets: Mapping[str, str], bundled: str) -> StandIn:
    """The first of `sets` (name → folder or file under --data-root) that is there, without a root the bundled set.

    Args:
        request: with data_root and data. published: the publication's data set, in words.
        sets: those that will do, the published one first. bundled: what stands in without a folder.

    Raises:
        BadInput: another set is asked for, or the folder holds none of them.
    """
    if request.data is not None and request.data not in (*sets, bundled):
        raise BadInput(f"data = {request.data!r}: the table is made on {', '.join((*sets, bundled))}")
    name = bundled if request.data is None and request.data_root is None else request.data
    if name == bundled:
        return StandIn(bundled, {"name": bundled}, f"bundled {bundled} for {published}")
    if request.data_root is None:
        raise BadInput(f"{name} is read from a folder; give --data-root DIR, with DIR/{sets[str(name)]}")
    wanted = {each: request.data_root / place for each, place in sets.items() if name in (None, each)}
    found = next((each for each, place in wanted.items() if place.exists()), None)
    if found is None:
        places = " nor ".join(sets[each] for each in wanted)
        raise BadInput(
            f"--data-root {request.data_root} holds {'neither' if len(wanted) > 1 else 'no'} {places}; give a folder"
            f" with one of them, or leave it out for {bundled}"
        )
    table = {"name": found, "root": str(request.data_root.resolve()), "split_seed": request.seed}
    shown = found if found == next(iter(sets)) else f"{found} for {published}"
    return StandIn(found, table, shown, _sizes(wanted[found]))


def _sizes(place: Path) -> tuple[tuple[str, int], ...]:
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    return tuple((file.name, file.stat().st_size) for file in files if file.is_file())
