"""Neighbours that a killed replay finished: norms, names and steps, so that the same command goes on where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import write_json
from ..owners_code import files_of_owner
from ..setup.reading import plain_json, read_text
from .tap import Event, Violation

FILE = "replay-unfinished.json"


@dataclass(frozen=True)
class PairFound:
    """What one neighbour showed. steps: releases. moved: queries that the changed record was drawn for. longest: the
    largest distance over its bound. violations: of one kind and value the first.
    """

    steps: int
    moved: int
    longest: float
    violations: tuple[Violation, ...]


@dataclass
class KeptPairs:
    """In a folder, None for nowhere. key: of the training as it is and of what is asked; others' neighbours are not its
    own.
    """

    folder: Path | None
    key: str
    found: dict[str, PairFound] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path | None, key: str) -> KeptPairs:
        """Those that are there already. Raises BadInput where the file is damaged."""
        path = None if folder is None else folder / FILE
        if path is None or not path.exists():
            return cls(folder, key)
        try:
            content = plain_json(read_text(path))
            if content["key"] != key:
                return cls(folder, key)
            return cls(folder, key, {name: _pair(one) for name, one in content["pairs"].items()})
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path}: it is no list of finished neighbours ({error}); remove it to begin anew") from None

    def add(self, name: str, found: PairFound) -> None:
        self.found[name] = found
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            pairs = {name: asdict(one) | {"longest": repr(one.longest)} for name, one in self.found.items()}
            write_json(self.folder / FILE, {"key": self.key, "pairs": pairs})

    def done(self) -> None:
        """All are in the result by now."""
        if self.folder is not None:
            (self.folder / FILE).unlink(missing_ok=True)


def _pair(content: dict[str, Any]) -> PairFound:
    violations = tuple(Violation(**{**one, **_sizes(one)}) for one in content["violations"])
    return PairFound(content["steps"], content["moved"], float(content["longest"]), violations)


def _sizes(one: dict[str, Any]) -> dict[str, float | None]:
    return {name: None if one[name] is None else float(one[name]) for name in ("distance", "bound")}


def key_of(events: Sequence[Event], *asked: object) -> str:
    """Of what the training told on its data as they are, and of all files of its owner's code: both may be mended
    between a kill and the next call.
    """
    made = hashlib.sha256(repr(asked).encode())
    for file in files_of_owner():
        made.update(file.read_bytes())
    for event in events:
        made.update(f"{event.kind} {event.name} {event.bound} {event.drawn}".encode())
        for name, part in event.parts.items():
            made.update(name.encode() + part.numpy().tobytes())
    return made.hexdigest()
