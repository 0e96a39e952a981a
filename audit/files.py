"""What is written to disk, and how: whole or not at all, ∞ as "inf", names sorted."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..defenses.atomic import write_bytes, write_parts
from .errors import BadInput
from .lock import NAME as LOCK
from .lock import writing_file

if TYPE_CHECKING:
    from torch import Tensor


def json_text(content: Any, *, sort_keys: bool = True) -> str:
    """JSON with a line end, keys sorted unless asked otherwise.

    JSON has no infinity: ∞ is written "inf". Raises ValueError for a NaN.

    >>> json_text({"b": float("inf"), "a": (1.5, None)}).split()
    ['{', '"a":', '[', '1.5,', 'null', '],', '"b":', '"inf"', '}']
    """
    return json.dumps(plain(content), indent=1, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A value as JSON has it: ∞ as "inf", tuples as lists; the one place where that is decided."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and isinf(value):
        return str(value)
    return value


def cache_folder(what: str) -> Path:
    """The folder in which this user's runs keep what takes long to compute again."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dpfl-audit" / what


def appears(path: Path, seconds: float = 60.0) -> bool:
    """Whether it is there by then: what another machine wrote shows late on a network's file system."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def write_named(files: Sequence[tuple[Path, bytes]]) -> None:
    """Writes files that a user named, each over an older one of its kind alone: a slip in typing costs no config.

    Raises BadInput: a path is a folder or is named twice, and nothing is written; another kind of file is there,
    somebody else writes it, or it cannot be written.
    """
    for path, _ in files:
        if path.is_dir():
            raise BadInput(f"{path} is a folder; name the file to write")
        if sum(path.resolve() == other.resolve() for other, _ in files) > 1:
            raise BadInput(f"{path} is named for two files; name another for one of them")
    for path, content in files:
        head = 0 if path.suffix == ".yaml" else 12  # bytes that tell a kind of file; YAML files do not begin alike
        try:
            with writing_file(path):
                if path.is_file() and not content.startswith(_beginning(path, head)):
                    raise BadInput(f"{path} is another kind of file, which is not written over; name another")
                write_bytes(path, content)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def _beginning(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        return file.read(length)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, json_text(content).encode())


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """JSON lines."""
    write_bytes(path, "".join(json.dumps(plain(row), sort_keys=True, allow_nan=False) + "\n" for row in rows).encode())


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, *, durable: bool = True
) -> None:
    """safetensors; names sorted, so that equal content gives equal bytes, the same as safetensors' own.

    A tensor goes from its own memory to the file: what a training captures is many times as large as its model, and
    safetensors' `save` copies it three times.

    Args:
        path: the file. tensors: by name. metadata: at most one, as safetensors writes several in any order.
        durable: as for `write_parts`.
    """
    import torch

    kinds = {  # safetensors' names, in the order in which it writes them
        **{torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16"},
        **{torch.float16: "F16", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"},
    }
    order = {kind: place for place, kind in enumerate(kinds)}
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts, end = [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (order[item[1].dtype], item[0])):
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        part = whole.view(torch.uint8).numpy().data if len(whole) else memoryview(b"")
        place = [end, end + part.nbytes]
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        parts.append(part)
        end = place[1]
    said = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    said += b" " * (-len(said) % 8)
    write_parts(path, [len(said).to_bytes(8, "little"), said, *parts], durable=durable)


def remove_all(folder: Path, *, but: Collection[str] = ()) -> None:
    """Everything in a folder but its lock and these files (or files in folders)."""
    kept = {folder / name for name in (LOCK, *but)}
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before it
        if path in kept or any(path in each.parents for each in kept):
            continue
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


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
        if p.is_file() and ".work" not in p.parts and p.name not in ("setup.json", "environment.json", LOCK)
    ]
    return {p.relative_to(folder).as_posix(): digest_of_file(p) for p in paths}
