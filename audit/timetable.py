"""How far long work is whose stages have speeds of their own, such as a study: one share of time, one time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..defenses.progress import Progress

WHOLE = 100_000  # parts that the time is reported in
KNOWN = 0.05  # of the largest stage's work of a kind: from then on its speed is the measured one


@dataclass(frozen=True)
class WorkKind:
    """A kind of work, of which every unit takes about as long.

    seconds: what a unit takes, as long as nobody knows better. begins: how the progress of such work begins to tell of
    itself.
    """

    seconds: float
    begins: tuple[str, ...]


class Timetable:
    """Tells `progress` of several stages as of one piece of work: the share of time that is over. It never goes back.

    What a unit of work takes is measured where some of it was done, else it is as planned. What a stage had no need to
    do, as an earlier run did it, is taken off the plan and says nothing of the speed; so is what was done of a kind
    when a stage first tells of it.

    Args:
        progress: of the whole, None where nobody asks. kinds: of work, by name. clock: seconds.
    """

    def __init__(
        self, progress: Progress | None, kinds: Mapping[str, WorkKind], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.progress, self.clock = progress, clock
        self.tallies = {name: _Tally(kind) for name, kind in kinds.items()}
        self.began = self.heard = clock()
        self.reported = 0

    def plan(self, work: Mapping[str, float], name: str = "") -> PlannedStage:
        """A stage that is to come. work: units, by kind. name: said before what it tells of itself."""
        for kind, units in work.items():
            self.tallies[kind].plan(units)
        return PlannedStage(self, work, name)

    @property
    def left(self) -> float:
        """Seconds, by what is known now."""
        return sum(tally.left for tally in self.tallies.values())

    def tell(self, words: str) -> None:
        """How far the whole is now."""
        if self.progress is None:
            return
        over = self.heard - self.began
        share = int(WHOLE * over / max(over + self.left, 1e-9))
        self.reported = max(self.reported, min(WHOLE - 1, share))
        self.progress(self.reported, WHOLE, words)


class PlannedStage:
    """The `Progress` of a stage. The time since anything was last heard of counts for what it tells of. Work of a kind
    may run from nothing to all several times.

    Args:
        table: that it is a stage of. work: units, by kind. name: said before what it tells of itself.
    """

    def __init__(self, table: Timetable, work: Mapping[str, float], name: str) -> None:
        self.table, self.work, self.name = table, dict(work), name
        self.shares: dict[str, float] = {}
        self.kind = ""

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        table, now = self.table, self.table.clock()
        self.kind = next((k for k in self.work if words.startswith(table.tallies[k].kind.begins)), self.kind)
        if self.kind:
            share, before, tally = min(1.0, done / max(1, total)), self.shares.get(self.kind), table.tallies[self.kind]
            self.shares[self.kind] = max(share, before or 0.0)
            if before is None:
                tally.planned -= share * self.work[self.kind]
            else:
                tally.count((self.shares[self.kind] - before) * self.work[self.kind], now - table.heard)
        table.heard = now
        table.tell(f"{self.name}: {words}" if self.name else words)

    def has(self, kind: str, units: float) -> None:
        """Fewer units of a kind, of which nothing was heard yet, than were planned."""
        self.table.tallies[kind].planned -= self.work[kind] - units
        self.work[kind] = units

    def end(self) -> None:
        """Nothing more comes of it: what was not done had no need to be."""
        for kind, units in self.work.items():
            self.table.tallies[kind].planned -= (1 - self.shares.get(kind, 0.0)) * units
            self.shares[kind] = 1.0


class _Tally:
    """Of one kind of work, over all stages: units planned and done, and seconds spent on them."""

    def __init__(self, kind: WorkKind) -> None:
        self.kind = kind
        self.planned = self.done = self.spent = 0.0
        self.enough = 0.0  # units from which the measured speed counts

    def plan(self, units: float) -> None:
        self.planned += units
        self.enough = max(self.enough, KNOWN * units)

    def count(self, units: float, seconds: float) -> None:
        self.done += units
        self.spent += seconds

    @property
    def left(self) -> float:
        """Seconds."""
        measured = self.done > 0 and self.done >= self.enough
        return (self.planned - self.done) * (self.spent / self.done if measured else self.kind.seconds)
