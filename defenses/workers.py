"""Where work is done: a list of units, each done whole or again, and their results in order.

A unit, and what comes of it, follow from seeds and shapes alone. So results are the same, byte for byte, whoever works:
this process (`Here`), or those of a cluster (`audit.cluster`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .progress import Progress

Task = TypeVar("Task")
Brought = TypeVar("Brought")


class Workers(Protocol):
    """Whoever does units of work."""

    def map(
        self,
        function: Callable[[Task, Progress | None], Brought],
        units: Iterable[Task],
        watch: Callable[[int], Progress | None] | None = None,
    ) -> Iterator[Brought]:
        """function(unit, progress) of every unit, in the units' order, as far as the results are asked for.

        Args:
            function: of a unit and who hears how far it is, if anybody does. What it raises is raised here.
            units: taken one by one, not long before their results are asked for. watch: who hears of the n-th.
        """
        ...


@dataclass(frozen=True)
class Here:
    """This process: one unit after the other, each as its result is asked for."""

    def map(
        self,
        function: Callable[[Task, Progress | None], Brought],
        units: Iterable[Task],
        watch: Callable[[int], Progress | None] | None = None,
    ) -> Iterator[Brought]:
        for n, unit in enumerate(units):
            yield function(unit, None if watch is None else watch(n))


HERE = Here()
