"""How long work reports how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with what is done, what there is in all, in the work's own unit, and what the work is, in words."""

    def __call__(self, done: int, total: int, /, words: str = "") -> None: ...
