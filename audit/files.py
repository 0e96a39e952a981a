"""Atomic writes: a file is whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from math import isinf
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def json_text(content: Any) -> str:
    """JSON with sorted keys and a line end. It has no infinity: ∞ is written "inf". Raises ValueError for a NaN.

    >>> json_text({"b": float("inf"), "a": (1.5, None)}).split()
    ['{', '"a":', '[', '1.5,', 'null', '],', '"b":', '"inf"', '}']
    """
    return json.dumps(plain(content), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A value as JSON has it: ∞ as "inf", tuples as lists; the one place where that is decided."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and isinf(value) else value


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, json_text(content).encode())


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """JSON lines."""
    write_bytes(path, "".join(json.dumps(row, sort_keys=True, allow_nan=False) + "\n" for row in rows).encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """safetensors; names sorted, so that equal content gives equal bytes."""
    ordered = {
        name: tensors[name].detach().cpu().contiguous().clone() for name in sorted(tensors)
    }  # no two may share memory
    write_bytes(path, save(ordered, dict(metadata) if metadata else None))


def digest_of_file(path: Path) -> str:
    """SHA-256, read piece by piece."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_json(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content, however it is written.

    >>> digest_of_json({"a": 1, "b": 2}) == digest_of_json({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in the subfolders of a setup and of its tables, by relative path: what setup.json seals."""
    paths = [
        p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".work" not in p.parts and p.name not in ("setup.json", "environment.json")
    ]
    return {p.relative_to(folder).as_posix(): digest_of_file(p) for p in paths}
