"""Writing a file so that it is whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_bytes(path: Path, content: bytes, *, writer: str = "") -> None:
    """Write beside the target, flush to disk, rename over it.

    writer: told apart from others who may write the same file at the same time, such as a process's number.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}{writer and '.'}{writer}.part")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
