"""Paths in a config: a relative one starts at the folder of the config, wherever the command is given.

Whoever writes a config into another folder rewrites them (`rebase`), as relative ones again, so that no file names the
machine and a tree of folders can be moved as a whole. A setup keeps its config as it was typed, as the noise is drawn
with that.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any


def rebase(tables: MutableMapping[str, Any], start: Path, end: Path) -> None:
    """Rewrites the relative path of a config's data, so that it means from `end` what it meant from `start`.

    >>> config = {"data": {"name": "csv", "root": "adult.csv"}}
    >>> rebase(config, Path("/work"), Path("/work/study"))
    >>> config
    {'data': {'name': 'csv', 'root': '../adult.csv'}}
    """
    data = tables.get("data", {})
    if isinstance(path := data.get("root"), str) and path:
        data["root"] = relative(path, start, end)


def relative(path: str, start: Path, end: Path) -> str:
    """The path that means from `end` what `path` means from `start`."""
    if Path(path).expanduser().is_absolute():
        return path
    file, folder = start.resolve() / path, end.resolve()
    path_there = Path(os.path.relpath(file, folder))
    if (folder / path_there).resolve() != file.resolve():  # a link to a folder, and .. behind it
        path_there = Path(os.path.relpath(file.resolve(), folder))
    return path_there.as_posix()
