"""Data whose records have names of their own, so that a neighbour moves nobody else's coin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...defenses.randomness import generator
from ..errors import BadInput
from ..worlds.planted import default_canaries
from .adjacency import ReplayAdjacency

HUGE = 1e30  # finite in float32, and its square is not
NO_NUMBERS = {"nan": float("nan"), "infinite": float("inf")}


@dataclass(eq=False)
class ReplayRecords(Dataset):
    """A data set, map-style; a batch is taken by `__getitems__`, as torch's DataLoader does.

    values: the records. ids: of each, whose coins are drawn by them. changed: the id in which two neighbours differ.
    absent: whether that record has weight 0: its place is drawn, and left out of every batch (`zero_out`).
    """

    values: Sequence[Any]
    ids: Sequence[int]
    changed: int
    absent: bool = False
    batched: bool = False  # whether a batch was taken: a record that is left out of batches is seen elsewhere

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        self.batched = True
        return [self.values[i] for i in self._present([int(i) % len(self) for i in indices])]

    def drawn(self, seed: int, draw: int, rate: float) -> list[int]:
        """The places whose coins fall so, the changed record last: sums over a batch then round alike.

        A place of weight 0 is left out.
        """
        self.batched = True
        others = [i for i, name in enumerate(self.ids) if name != self.changed and coin(seed, name, draw) < rate]
        here = [i for i, name in enumerate(self.ids) if name == self.changed and self.falls(seed, draw, rate)]
        return self._present([*others, *here])

    def falls(self, seed: int, draw: int, rate: float) -> bool:
        """Whether the changed record is drawn, in whichever data set it is. Its coin always falls at draws 0, 1, 3, 7,
        15, …: a record that is never drawn shows nothing.
        """
        return (draw + 1) & draw == 0 or coin(seed, self.changed, draw) < rate

    def _present(self, places: Sequence[int]) -> list[int]:
        return [i for i in places if not (self.absent and self.ids[i] == self.changed)]


def coin(seed: int, record: int, draw: int) -> float:
    """Uniform on [0, 1): of this record at this draw, whoever else there is."""
    digest = hashlib.sha256(f"replay|{seed}|{record}|{draw}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


@dataclass(frozen=True, eq=False)
class NeighbourPair:
    """Two neighbours. name: what is done to `data` to make `neighbour`."""

    name: str
    data: ReplayRecords
    neighbour: ReplayRecords


def pairs(
    records: Sequence[Any],
    adjacency: ReplayAdjacency,
    count: int,
    seed: int,
    canaries: Mapping[str, Any] | None = None,
    unit: str = "record",
) -> list[NeighbourPair]:
    """At most `count` pairs: of records by lot, and of canaries in their places.

    Args:
        records: a map-style data set. canaries: values by name, in place of those that are made of a record: itself,
            mislabelled, blank, crafted, not a number, infinite, and of 1e30. adjacency, count, seed, unit: as of
            `replay`.

    Raises:
        BadInput: there are fewer than two records.
    """
    values = [records[i] for i in range(len(records))]
    if len(values) < 2:
        raise BadInput(f"data: {len(values)} records; neighbours are made of at least 2")
    draw = generator(seed, "replay", "places")
    places = torch.randperm(len(values), generator=draw).tolist()
    place = places[0]
    others = [values[i] for i in places[1:17]]
    if canaries is not None:
        made = dict(canaries)
    else:
        made = _canaries(values[place], others, draw)
    made.pop("existing", None)
    ids = range(len(values))

    def with_canary(value: Any) -> list[Any]:
        return [value if i == place else old for i, old in enumerate(values)]

    found: list[NeighbourPair] = []
    for where in (place, *places[1:]):
        if adjacency == "add_remove":
            whole, rest = ReplayRecords(values, ids, where), [i for i in ids if i != where]
            found.append(
                NeighbourPair(f"removing {unit} {where}", whole, ReplayRecords([values[i] for i in rest], rest, where))
            )
        elif adjacency == "zero_out":
            whole = ReplayRecords(values, ids, where)
            found.append(
                NeighbourPair(f"leaving out {unit} {where}", whole, ReplayRecords(values, ids, where, absent=True))
            )
        else:
            other = values[places[-1] if where != places[-1] else place]
            changed = [other if i == where else old for i, old in enumerate(values)]
            found.append(
                NeighbourPair(
                    f"another {unit} in place of {unit} {where}",
                    ReplayRecords(values, ids, where),
                    ReplayRecords(changed, ids, where),
                )
            )
    of_canaries = []
    for name, value in made.items():
        if adjacency == "add_remove":
            added = ReplayRecords([*values, value], [*ids, len(values)], len(values))
            of_canaries.append(NeighbourPair(f"adding {name!r}", ReplayRecords(values, ids, len(values)), added))
        elif adjacency == "zero_out":
            planted = with_canary(value)
            one = ReplayRecords(planted, ids, place), ReplayRecords(planted, ids, place, absent=True)
            of_canaries.append(NeighbourPair(f"leaving out {name!r}", *one))
        else:
            one = ReplayRecords(values, ids, place), ReplayRecords(with_canary(value), ids, place)
            of_canaries.append(NeighbourPair(f"{name!r} in place of {unit} {place}", *one))
    return [found[0], *of_canaries, *found[1:]][:count]


def _canaries(record: Any, others: Sequence[Any], draw: torch.Generator) -> dict[str, Any]:
    made = default_canaries(record, others, draw)
    made |= faulty(record)
    if "blank" not in made and (blank := _filled(record, 0.0)) is not None:
        made["blank"] = blank
    return made


def faulty(record: Any) -> dict[str, Any]:
    """The record with numbers that a clip may not be made for, by name."""
    return {name: value for name, fill in FILLS.items() if (value := _filled(record, fill)) is not None}


FILLS = {"huge": HUGE, **NO_NUMBERS}


def _filled(record: Any, fill: float) -> Any:
    """The record with its first real value, or all of its first array of real values, put to `fill`; None without."""
    if isinstance(record, Tensor) and record.is_floating_point():
        return torch.full_like(record, fill)
    if isinstance(record, np.ndarray) and record.dtype.kind == "f":
        return np.full_like(record, fill)
    if isinstance(record, float):
        return fill
    if isinstance(record, tuple | list):
        for i, part in enumerate(record):
            if (filled := _filled(part, fill)) is not None:
                return type(record)([*record[:i], filled, *record[i + 1 :]])
    return None
