"""How long work reports how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with what is done, what there is in all, in the work's own unit, and what the work is, in words."""

    def __call__(self, done: int, total: int, /, words: str = "") -> None: ...


def part_of(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """The progress of a whole out of that of its part from begin to end, in [0, 1]; None where nobody asks."""
    if progress is None:
        return None

    def of_part(done: int, total: int, /, words: str = "") -> None:
        progress(int(1000 * (begin + (end - begin) * done / max(1, total))), 1000, words)

    return of_part
