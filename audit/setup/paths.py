"""Paths in a config: a relative one starts at the folder of the config, wherever the command is given.

Whoever writes a config into another folder rewrites them (`rebase`), as relative ones again, so that no file names the
machine and a tree of folders can be moved as a whole. A setup keeps its config as it was typed, as the noise is drawn
with that; where its paths start stands in environment.json, which decides nothing else.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

PATHS = (("data", "root"), ("attack", "inversion", "prior_weights"))  # every key of a config that names a file


def rebase(tables: MutableMapping[str, Any], start: Path, end: Path) -> None:
    """Rewrites the relative paths of a config's tables, so that they mean from `end` what they meant from `start`.

    >>> config = {"data": {"name": "csv", "root": "adult.csv"}}
    >>> rebase(config, Path("/work"), Path("/work/study"))
    >>> config
    {'data': {'name': 'csv', 'root': '../adult.csv'}}
    """
    for *names, key in PATHS:
        table: Any = tables
        for name in names:
            table = table.get(name, {})
        if isinstance(path := table.get(key), str) and path:
            table[key] = _moved(path, start, end)


def _moved(path: str, start: Path, end: Path) -> str:
    if Path(path).expanduser().is_absolute():
        return path
    file, folder = start.resolve() / path, end.resolve()
    moved = Path(os.path.relpath(file, folder))
    if (folder / moved).resolve() != file.resolve():  # a link to a folder, and .. behind it
        moved = Path(os.path.relpath(file.resolve(), folder))
    return moved.as_posix()
