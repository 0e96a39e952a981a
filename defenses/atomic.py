"""Writing a file so that it is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_bytes(path: Path, content: bytes, *, writer: str = "") -> None:
    """Write beside the target, flush to disk, rename over it.

    writer: told apart from others who may write the same file at the same time, such as a process's number.
    """
    write_parts(path, [content], writer=writer)


def write_parts(path: Path, parts: Iterable[bytes | memoryview], *, writer: str = "", durable: bool = True) -> None:
    """The same of content in several parts, which are never joined in memory.

    Args:
        path: the target. parts: one after the other. writer: as for `write_bytes`.
        durable: whether it must outlast the machine's power too, and not only this process: what is looked at once and
            removed need not wait for the disk.

    Raises:
        OSError: with the path, of a full disk too. What was begun is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}{writer and '.'}{writer}.part")
    try:
        with open(beside, "wb") as file:
            for part in parts:
                file.write(part)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk names no file
            error.filename = str(path)
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
