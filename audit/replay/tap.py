"""What a training tells of its releases, recorded on one data set and held on its neighbour."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..owners_code import line_of_call
from .equal import ORDERS, Norm, differs, distance, flat_parts
from .records import NO_NUMBERS, ReplayRecords

ROUNDING = 1e-5  # of a bound, that float32 sums of some 60 clipped records exceed it by at most 3e-7
ViolationKind = Literal["sensitivity", "invariance"]


@dataclass(frozen=True)
class Violation:
    """What cannot be if the training is as private as it says.

    kind: "sensitivity": a query moved by more than its bound; "invariance": something else that leaves differs.
    step: releases before it. name: of the query or value. how: a clause. place: FILE:LINE of the owner's code.
    distance, bound: of a query, in the mechanism's norm. pair: the neighbours that show it.
    """

    kind: ViolationKind
    step: int
    name: str
    how: str
    place: str
    pair: str
    distance: float | None = None
    bound: float | None = None

    @property
    def of_no_number(self) -> bool:
        """Whether the record that shows it is NaN or infinite."""
        return any(repr(name) in self.pair for name in NO_NUMBERS)

    def __str__(self) -> str:
        where = "the first step"
        if self.step:
            where = f"step {self.step}"
        place = ""
        if self.place:
            place = f" ({self.place})"
        return f"{self.kind}, {where}{place}: {self.pair}: {self.how}"


@dataclass(frozen=True, eq=False)
class Event:
    """One thing that a training told. parts: of a query. value: of a public value or a release. states: of the
    generators after a release.
    """

    kind: Literal["query", "release", "public"]
    name: str
    value: Any = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    bound: float = 0.0
    norm: Norm = "l2"
    drawn: bool = True
    states: tuple[Any, ...] = ()


@dataclass(eq=False)
class Tap:
    """Handed to a training as its second argument: it tells the tap of what noise is added to, of what is released and
    of what else leaves, and goes on with what the tap gives back.

    records: that it trains on. seed: of all coins. recorded: what the training on the neighbour told, None for the
    first of the two. pair: their name.
    """

    records: ReplayRecords
    seed: int
    recorded: Sequence[Event] | None = None
    pair: str = ""
    events: list[Event] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    steps: int = 0
    draws: int = 0
    longest: float = 0.0  # of all distances, over their bounds
    moved: int = 0  # queries that the changed record was drawn for
    result: Any = None  # what the training returned
    _drawn: bool = True

    def drawn(self, rate: float) -> list[int]:
        """The places of the records that take part in the next step, each by a coin of its own.

        Args:
            rate: the chance of each; what is not equal on both data sets is a violation.
        """
        if not 0 < rate <= 1:
            raise ValueError(f"tap.drawn({rate}): expected a chance above 0 and at most 1")
        rate = self.public("sampling rate", rate)
        places = self.records.drawn(self.seed, self.draws, rate)
        self._drawn = self.records.falls(self.seed, self.draws, rate)
        self.draws += 1
        return places

    def query(self, name: str, value: Any, sensitivity: float, norm: Norm = "l2") -> Any:
        """What noise is about to be added to. Gives `value` back.

        Args:
            value: a tensor, an array or a number, or a list or a dict of them, clipped and summed, before noise.
            sensitivity: by how much one record may move it at most, under the adjacency that is asked about, in `norm`
                over all tensors jointly.

        Raises:
            ValueError: no numbers, or no bound.
        """
        bound = float(sensitivity)
        if norm not in ORDERS or not bound >= 0:
            raise ValueError(f"query {name!r}: sensitivity {sensitivity} in norm {norm!r}; expected a bound from 0 on")
        parts = {key: part.clone() for key, part in flat_parts(value).items()}
        held = self._told(Event("query", name, parts=parts, bound=bound, norm=norm, drawn=self._drawn))
        if held is not None:
            self._compare(held, parts)
        return value

    def release(self, name: str, value: Any) -> Any:
        """What noise was added to, as an observer gets it; on the neighbour, what was released before."""
        states = (torch.get_rng_state(), np.random.get_state(), random.getstate())
        held = self._told(Event("release", name, value=copy.deepcopy(value), states=states))
        self.steps += 1
        self._drawn = True
        if held is None:
            return value
        torch.set_rng_state(held.states[0])
        np.random.set_state(held.states[1])
        random.setstate(held.states[2])
        return copy.deepcopy(held.value)

    def public(self, name: str, value: Any) -> Any:
        """Anything else that leaves or that noise hangs on: a divisor, a count, a noise multiplier, a metric. It must
        be the same on both data sets. Gives it back; on the neighbour, the first one's.
        """
        held = self._told(Event("public", name, value=copy.deepcopy(value)))
        if held is None:
            return value
        if how := differs(held.value, value, name):
            self._violated("invariance", name, how)
        return copy.deepcopy(held.value)

    def ended(self) -> None:
        """The training is over: what the first one told more is a violation."""
        if self.recorded is not None and len(self.events) < len(self.recorded):
            left = self.recorded[len(self.events)]
            self._violated("invariance", left.name, f"{left.kind} {left.name!r} leaves on one data set alone")

    def _told(self, event: Event) -> Event | None:
        """What the first training told in this place, None where it is the first; ends the second where they part."""
        self.events.append(event)
        if self.recorded is None:
            return None
        held = None
        if len(self.events) <= len(self.recorded):
            held = self.recorded[len(self.events) - 1]
        if held is None or (held.kind, held.name) != (event.kind, event.name):
            other = "nothing" if held is None else f"{held.kind} {held.name!r}"
            here = f"{event.kind} {event.name!r}"
            self._violated("invariance", event.name, f"{here} leaves where on the other data {other} does")
            raise Parted
        return held

    def _compare(self, held: Event, parts: Mapping[str, Tensor]) -> None:
        shapes = [{name: len(part) for name, part in one.items()} for one in (held.parts, parts)]
        if shapes[0] != shapes[1]:
            self._violated("invariance", held.name, f"its tensors have {shapes[0]} and {shapes[1]} numbers")
            raise Parted
        apart, most = distance(held.parts, parts, held.norm)
        drawn = held.drawn or self._drawn
        self.moved += drawn
        if how := differs(held.bound, self.events[-1].bound, "its bound"):
            self._violated("invariance", held.name, how)
        tensor = ""
        if most:
            tensor = f" (most: tensor {most!r})"
        if not drawn and apart > 0:
            how = f"it moves by {apart:.6g} though the record is not drawn{tensor}"
            self._violated("sensitivity", held.name, how, apart, 0.0)
        elif not apart <= held.bound * (1 + ROUNDING):
            how = f"what noise is added to moves by {apart:.6g}, its bound is {held.bound:.6g}{tensor}"
            self._violated("sensitivity", held.name, how, apart, held.bound)
        elif held.bound:
            self.longest = max(self.longest, apart / held.bound)

    def _violated(
        self, kind: ViolationKind, name: str, how: str, distance: float | None = None, bound: float | None = None
    ) -> None:
        place = line_of_call()
        self.violations.append(Violation(kind, self.steps, name, how, place, self.pair, distance, bound))


class Parted(BaseException):
    """The two trainings tell of different things from here on: nothing more can be compared. No handler of the owner's
    code for errors is to catch it.
    """
