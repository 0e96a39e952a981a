"""The function by which an app's clients load their records, with a canary planted in what it gives."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ....defenses.nearest import instead
from ....defenses.randomness import generator
from ....defenses.terms import Adjacency
from ...errors import BadInput
from ...labelled import labelled_record
from ..planted import PlantedDataset, default_canaries
from ..source import own_code, public_names
from .app import FlowerApp

PLACE = 0  # whose record the canary takes
KNOWN = 200  # records that are looked at to make one


@dataclass(frozen=True, eq=False)
class OwnData:
    """name, function: what the app's training calls to get a client's records."""

    name: str
    function: Callable[..., Any]

    @classmethod
    def of(cls, name: str, app: FlowerApp) -> OwnData:
        """By its name: of the app's own module, FILE.py:FUNCTION or package.module:function. Raises BadInput."""
        where, _, attribute = name.rpartition(":")
        module = None
        if not where or _same_file(where, app.module):
            module = app.module
        if module is None:
            value = own_code(name).value
        elif hasattr(module, attribute):
            value = getattr(module, attribute)
        else:
            raise BadInput(f"{app.name} has no {attribute!r}{instead(attribute, public_names(module))}")
        if not callable(value):
            raise BadInput(
                f"--data {name} is a {type(value).__name__}; expected the function that loads a client's data"
            )
        return cls(name, value)

    @contextmanager
    def changed(self, change: Callable[[Any], Any]) -> Iterator[None]:
        """Within it whoever calls the function, by whatever name a module has it, gets what `change` makes of it."""

        def instead_of_it(*arguments: Any, **options: Any) -> Any:
            return change(self.function(*arguments, **options))

        for space, name in self._places:
            space[name] = instead_of_it
        try:
            yield
        finally:
            for space, name in self._places:
                space[name] = self.function

    @cached_property
    def _places(self) -> list[tuple[dict[str, Any], str]]:
        """Where it stands under some name: in modules, and in a file that is none of its name."""
        own = getattr(self.function, "__globals__", {})
        spaces = [own, *(vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__"))]
        each = {id(space): space for space in spaces}
        return [(s, name) for s in each.values() for name, value in list(s.items()) if value is self.function]


def _same_file(where: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return where.endswith(".py") and file is not None and Path(where).resolve() == Path(file).resolve()


def record_canaries(loaded: Any, adjacency: Adjacency, seed: int) -> dict[str, Any]:
    """Canaries in the place of a client's first record, by name: existing (the record itself, under zero_out),
    mislabelled, blank and crafted. loaded: what the app's function gave.

    Raises:
        BadInput: its records are no (input, label) pairs of a classifier.
    """
    records = loaded_records(loaded)
    first = records[PLACE]
    if labelled_record(first) is None:
        raise BadInput(
            f"--data: a record is {_shape(first)}; expected a pair of numbers and a class, or a dict of these"
        )
    others = [records[i] for i in range(min(len(records), KNOWN))]
    made = default_canaries(first, others, generator(seed, "canary record"))
    if adjacency == "replace_one":
        del made["existing"]
    return made


def planted(loaded: Any, canary: Any, *, present: bool, adjacency: Adjacency) -> Any:
    """What the app's function gave, with the canary in its first record's place; without it that place is left out of
    its batches (zero_out), or holds the record (replace_one).

    Args:
        loaded: (inputs, targets), a map-style data set, a DataLoader, or several of which the first is trained on.
        canary: as of `record_canaries`. present: in which world. adjacency: between them.

    Raises:
        BadInput: a record of arrays cannot be left out without changing their number.
    """
    if isinstance(loaded, DataLoader):
        loader = copy.copy(loaded)
        loader.__dict__["dataset"] = planted(loaded.dataset, canary, present=present, adjacency=adjacency)
        return loader
    if _are_arrays(loaded):
        if adjacency == "zero_out":
            raise BadInput(
                "--data gives arrays, of which no record can be left out without changing their number; ask for"
                " --adjacency replace_one, or let it give a data set"
            )
        if present:
            return _with_row(loaded, canary)
        return loaded
    if _are_several(loaded):
        first = planted(loaded[0], canary, present=present, adjacency=adjacency)
        return type(loaded)([first, *loaded[1:]])
    if adjacency == "zero_out":
        return PlantedDataset(loaded, PLACE, canary, present)
    return PlantedDataset(loaded, PLACE, canary if present else loaded[PLACE], True)


def loaded_records(loaded: Any) -> Any:
    """The records that are trained on, one by one. Raises BadInput where they cannot be told."""
    if isinstance(loaded, DataLoader):
        return loaded_records(loaded.dataset)
    if _are_arrays(loaded):
        return [*zip(loaded[0], loaded[1])]
    if _are_several(loaded):
        return loaded_records(loaded[0])
    if hasattr(loaded, "__getitem__") and hasattr(loaded, "__len__") and not isinstance(loaded, Mapping | str):
        return loaded
    raise BadInput(
        f"--data gives a {type(loaded).__name__}; expected (inputs, targets), a data set, a DataLoader, or several of"
        " which the first is trained on"
    )


def _are_several(loaded: Any) -> bool:
    """Loaders or data sets beside each other; a plain list of records is one data set."""
    if not isinstance(loaded, tuple | list) or not loaded:
        return False
    return isinstance(loaded, tuple) or isinstance(loaded[0], DataLoader | Dataset)


def _are_arrays(loaded: Any) -> bool:
    if not isinstance(loaded, tuple | list) or len(loaded) < 2:
        return False
    inputs, targets = loaded[:2]
    arrays = all(isinstance(part, Tensor | np.ndarray) for part in (inputs, targets))
    return arrays and targets.ndim == 1 and len(inputs) == len(targets)


def _with_row(loaded: Any, canary: tuple[Any, Any]) -> Any:
    parts: list[Any] = []
    for part, value in zip(loaded[:2], canary):
        changed: Any = part.clone() if isinstance(part, Tensor) else part.copy()
        if isinstance(part, Tensor):
            changed[PLACE] = torch.as_tensor(value)
        else:
            changed[PLACE] = np.asarray(value)
        parts.append(changed)
    return type(loaded)([*parts, *loaded[2:]])


def _shape(record: Any) -> str:
    """A record in a few words."""
    if isinstance(record, Mapping):
        return "a dict of " + ", ".join(f"{name!r} ({type(value).__name__})" for name, value in record.items())
    if isinstance(record, tuple | list):
        return f"a {type(record).__name__} of " + ", ".join(type(part).__name__ for part in record)
    return f"a {type(record).__name__}"
