"""How far long work is whose stages have speeds of their own, such as a study: one share of time, one time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..defenses.progress import Progress

WHOLE = 100_000  # parts that the time is reported in
KNOWN = 0.05  # of a stage's work of a kind: from then on its speed is the measured one


@dataclass
class Kind:
    """A kind of work, of which every unit takes about as long.

    seconds: what a unit takes, as long as nobody knows better. begins: how the progress of such work begins to tell of
    itself.
    """

    seconds: float
    begins: tuple[str, ...]
    planned: float = field(default=0.0, init=False)  # units, over all stages
    done: float = field(default=0.0, init=False)
    spent: float = field(default=0.0, init=False)  # seconds
    enough: float = field(default=0.0, init=False)  # units from which the measured speed counts

    @property
    def left(self) -> float:
        """Seconds."""
        measured = self.done > 0 and self.done >= self.enough
        return (self.planned - self.done) * (self.spent / self.done if measured else self.seconds)


class Timetable:
    """Tells `progress` of several stages as of one piece of work: the share of time that is over. It never goes back.

    What a unit of work takes is measured where some of it was done, else it is as planned. What a stage had no need to
    do, as an earlier run did it, is taken off the plan and says nothing of the speed.

    Args:
        progress: of the whole, None where nobody asks. kinds: of work, by name. clock: seconds.
    """

    def __init__(
        self, progress: Progress | None, kinds: Mapping[str, Kind], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.progress, self.kinds, self.clock = progress, dict(kinds), clock
        self.began = self.heard = clock()
        self.told = 0

    def plan(self, work: Mapping[str, float], name: str = "") -> Stage:
        """A stage that is to come. work: units, by kind, in the order that they are done. name: said before what it
        tells of itself.
        """
        for kind, units in work.items():
            self.kinds[kind].planned += units
            self.kinds[kind].enough = max(self.kinds[kind].enough, KNOWN * units)
        return Stage(self, dict(work), name)

    @property
    def left(self) -> float:
        """Seconds, by what is known now."""
        return sum(kind.left for kind in self.kinds.values())

    def tell(self, words: str) -> None:
        """How far the whole is now."""
        if self.progress is None:
            return
        over = self.heard - self.began
        self.told = max(self.told, min(WHOLE - 1, int(WHOLE * over / max(over + self.left, 1e-9))))
        self.progress(self.told, WHOLE, words)


@dataclass(eq=False)
class Stage:
    """The `Progress` of a stage. The time since anything was last heard of counts for what it tells of. Work of a kind
    may run from nothing to all several times.
    """

    table: Timetable
    work: dict[str, float]
    name: str
    shares: dict[str, float] = field(default_factory=dict)
    kind: str = ""

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        table, now = self.table, self.table.clock()
        self.kind = next((kind for kind in self.work if words.startswith(table.kinds[kind].begins)), self.kind)
        if self.kind:
            kind, before = table.kinds[self.kind], self.shares.get(self.kind, 0.0)
            self.shares[self.kind] = max(before, min(1.0, done / max(1, total)))
            kind.done += (self.shares[self.kind] - before) * self.work[self.kind]
            kind.spent += now - table.heard
        table.heard = now
        table.tell(f"{self.name}: {words}" if self.name else words)

    def end(self) -> None:
        """Nothing more comes of it: what was not done had no need to be."""
        for name, units in self.work.items():
            self.table.kinds[name].planned -= (1 - self.shares.get(name, 0.0)) * units
            self.shares[name] = 1.0
