"""What replaying found: violations, or how many neighbours showed none. It holds norms, names and steps, no values."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..files import write_json
from ..say.words import times
from .adjacency import ReplayAdjacency
from .tap import Violation

FILE = "replay.json"
VIOLATED = "Violated"  # how a sentence begins that says what is wrong, without statistics
FINITE_ALONE = "Only records of finite numbers are protected"


@dataclass(frozen=True)
class Replay:
    """Of one training.

    name: of it. adjacency: of the pairs. unit: what one of the data is. pairs: names of the neighbours that were tried.
    steps: releases of the longest training. queries: that were compared, with the changed record in them. longest: the
    largest distance over its bound. violations: in the order they were met; of one kind and value the first of a pair.
    """

    name: str
    adjacency: ReplayAdjacency
    unit: str
    pairs: tuple[str, ...]
    steps: int
    queries: int
    longest: float
    violations: tuple[Violation, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """For people: what was found, what was tried, and what was not."""
        tried = f"{len(self.pairs)} neighbours ({self.adjacency}, {self.unit}), {times(self.steps, 'release')} each"
        limits = "Other data, the noise itself and the accounting were not checked."
        if self.adjacency == "zero_out":
            limits += " A value of all records at once is compared under replace_one and add_remove alone."
        if self.violations:
            others = [f"{FINITE_ALONE}: {violation}." for violation in self.violations if violation.of_no_number]
            return (*(f"{VIOLATED}: {violation}." for violation in self.of_numbers), *others, f"Tried: {tried}.")
        if not self.queries:
            return f"No violation found in what leaves: {tried}.", f"No query, so no bound was checked. {limits}"
        far = f"largest distance {self.longest:.7g} of its bound, in {self.queries} queries with the changed record"
        return (f"No violation found: {tried}; {far}.", f"That is no proof. {limits}")

    @property
    def of_numbers(self) -> tuple[Violation, ...]:
        """Those that a record of finite numbers shows: a clip that NaN passes protects everybody else."""
        return tuple(violation for violation in self.violations if not violation.of_no_number)

    def assert_none(self) -> None:
        """Raises AssertionError with the sentences where there is a violation, or no bound was reached."""
        assert self.queries and not self.violations, "\n".join(self.sentences)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "longest": repr(self.longest), "sentences": list(self.sentences)}

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes replay.json, whole or not at all. Raises BadInput where it cannot be written."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / FILE, self.document())
        return path / FILE
