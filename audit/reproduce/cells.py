"""Work cell by cell: a finished cell is a JSON file, so a killed run goes on and ends with the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...defenses.progress import Progress
from ...defenses.workers import Workers
from ..errors import BadInput
from ..files import write_bytes, write_json
from ..lock import NAME as LOCK


class Cells:
    """The finished cells of one run under `folder`/cells, or nowhere (None).

    `content`, JSON-able, is all that decides a cell's figures beside its key.

    Raises:
        BadInput: the folder holds something else.
    """

    def __init__(self, folder: Path | None, content: Any) -> None:
        self.folder = None if folder is None else folder / "cells"
        if folder is None or self.folder is None:
            return
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        mark = self.folder / "digest"
        if mark.exists():
            if mark.read_text() != digest:
                raise BadInput(
                    f"{folder} holds a table made with other settings, data or versions; choose another folder for -o,"
                    " or remove it"
                )
        elif folder.exists() and any(p != self.folder and p.name != LOCK for p in folder.iterdir()):
            raise BadInput(f"{folder} is not empty and holds no reproduced table; choose another folder for -o")
        else:
            write_bytes(mark, digest.encode())

    def all(
        self,
        make: Callable[[str, Progress | None], dict[str, Any]],
        keys: Sequence[str],
        workers: Workers,
        watch: Callable[[int], Progress],
    ) -> Iterator[dict[str, Any]]:
        """The cells of these keys, in order: read if an earlier run finished them, else made and kept, each whole or
        not at all.

        Args:
            make: a cell by its key. keys: of the cells. workers: who makes them. watch: who hears of the n-th.
        """
        paths = [None if self.folder is None else self.folder / f"{key}.json" for key in keys]
        todo = [n for n, path in enumerate(paths) if path is None or not path.exists()]
        made = workers.map(make, (keys[n] for n in todo), lambda place: watch(todo[place]))
        for n, path in enumerate(paths):
            cell = None
            if n in todo:
                cell = next(made)
            if path is not None:
                if cell is not None:
                    write_json(path, cell)
                try:
                    cell = json.loads(path.read_text())
                except ValueError:
                    raise BadInput(f"{path} is damaged; remove it, and the same command makes it again") from None
            yield dict(cell or {})
