"""What `audit replay` is asked, by names."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from typing import Any

from ...defenses.progress import Progress
from ..errors import BadInput
from ..extras import needed
from ..worlds.source import own_code
from .adjacency import ReplayAdjacency
from .outcome import Replay
from .replay import replay


def replay_named(
    what: str,
    data: str,
    adjacency: ReplayAdjacency,
    opacus: bool,
    *,
    neighbours: int,
    unit: str,
    seed: int,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> Replay:
    """`replay` of a function in somebody's file; what it prints goes to stderr.

    Args:
        what, data: FILE.py:NAME. opacus: whether the function takes a privacy engine. Else as of `replay`.

    Raises:
        BadInput: a name is wrong, or as of `replay`.
    """
    function, records = own_code(what, Path()), own_code(data, Path())
    _ = function.function  # is one
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus's, of secure random numbers: nothing is released here
        engine = None
        if opacus:
            engine = needed("opacus", "--opacus", "opacus").PrivacyEngine()
    with contextlib.redirect_stdout(sys.stderr):
        held: Any = records.function() if callable(records.value) else records.value
        if not hasattr(held, "__len__") or not hasattr(held, "__getitem__"):
            raise BadInput(f"{data} is a {type(held).__name__}; expected a map-style data set: len(data) and data[i]")
        return replay(
            function.value,
            held,
            adjacency=adjacency,
            engine=engine,
            neighbours=neighbours,
            seed=seed,
            unit=unit,
            name=function.name,
            progress=progress,
            folder=folder,
        )
