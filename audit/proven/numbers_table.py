"""The three-number table as data and as text; of bare numbers all of it, without torch, in less than a second."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...defenses.ranges import LEAST_SIZE
from ...defenses.terms import ADJACENCIES, UNITS, Adjacency, Unit
from ..errors import BadInput
from ..results.format import Epsilon
from ..say.words import NO_SECRET, at_least, at_most, chosen_briefly, listed, number, on_condition, spent_said
from .numbers import Numbers, noise_for, number_rows

NUMBERS = "numbers"  # the source of a table without a config
MOST_TARGET = 1e50  # an ε above it needs noise that float64 does not tell from none
HEAD = ("observer", "unit", "adjacency", "claimed", "proven", "demonstrated", "multiplier", "accountant")


@dataclass(frozen=True)
class NoiseTarget:
    """By how much all noise must grow for a proven ε of `target_epsilon` in one row. noise_factor: None where no noise
    was given, or no amount helps, and `why`; noise_std: in parameter units, None where noises differ.
    """

    observer: str
    unit: str
    adjacency: str
    delta: float | None
    target_epsilon: float
    noise_factor: float | None
    noise_std: float | None
    why: str


@dataclass(frozen=True)
class EpsilonTable:
    """Rows as in results.json; targets: one a row, where a target was asked for. unseen: a claim that is about none of
    the rows, in a sentence; "" where there is none. spent: the ε of earlier trainings on the same records, as the
    config says; ∞ where no ε bounds it. spent_delta: its δ.
    """

    source: str
    delta: float
    rows: tuple[Epsilon, ...]
    targets: tuple[NoiseTarget, ...] | None = None
    unseen: str = ""
    spent: float = 0.0
    spent_delta: float = 0.0

    @property
    def secret(self) -> bool:
        """Whether the noise's key is; what is proven holds for such a one alone."""
        return all(row.secret_key for row in self.rows)

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        if self.targets is None:
            targets = {}
        else:
            targets = {"targets": [vars(target) for target in self.targets]}
        return {
            "source": self.source,
            "delta": self.delta,
            "rows": [row.model_dump() for row in self.rows],
            **({"unseen": self.unseen} if self.unseen else {}),
            **({"spent": self.spent} if self.spent else {}),
            **({} if self.secret else {"noise_key": "published"}),
            **targets,
        }


def numbers_table(
    numbers: Numbers,
    *,
    claimed: float | None = None,
    delta: float | None = None,
    unit: str = "both",
    adjacency: str = "both",
    target_epsilon: float | None = None,
    noise_given: bool = True,
) -> EpsilonTable:
    """The table of bare numbers, without a config.

    Args:
        numbers: clip, noise and rounds. noise_given: whether that noise is somebody's, which the rows then have, and a
            factor on it says anything. claimed: the ε that somebody states of them.
        delta: None for 1e-5. unit, adjacency: as for `table`.
        target_epsilon: also which noise proves this ε; rows without a given noise have the most that any of them takes.

    Raises:
        BadInput: a number out of its range.
    """
    check_delta(delta)
    at = 1e-5 if delta is None else delta
    units, adjacencies = row_places(unit, adjacency)
    if numbers.records is not None and "record" in units:
        units = ("record",)
    if target_epsilon is None:
        return EpsilonTable(NUMBERS, at, tuple(number_rows(numbers, claimed, at, units, adjacencies)))
    check_target(target_epsilon)
    noise = {(u, a): noise_for(numbers, target_epsilon, at, u, a) for u in units for a in adjacencies}
    if noise_given:
        priced = numbers
    else:
        priced = replace(numbers, noise_std=max(noise.values()))
    rows = number_rows(priced, claimed, at, units, adjacencies)
    targets = tuple(
        NoiseTarget(
            row.observer,
            row.unit,
            row.adjacency,
            at,
            target_epsilon,
            noise[row.unit, row.adjacency] / numbers.noise_std if noise_given else None,
            noise[row.unit, row.adjacency],
            "",
        )
        for row in rows
    )
    return EpsilonTable(NUMBERS, at, tuple(rows), targets)


def check_delta(delta: float | None, name: str = "--delta") -> None:
    """Raises BadInput for a δ that is none; None for no δ. name: what it was given as."""
    if delta is not None and not LEAST_SIZE <= delta < 1:
        raise BadInput(f"{name} {delta}: δ must lie between {LEAST_SIZE:g} and 1")


def check_target(target: float) -> None:
    """Raises BadInput for an ε that no noise can be computed for."""
    if not 0 < target < math.inf:
        raise BadInput(f"--target-epsilon {target}: a target must be above 0 and finite")
    if target > MOST_TARGET:
        raise BadInput(f"--target-epsilon {target:g}: a target above {MOST_TARGET:g} asks for no noise at all")


def row_places(unit: str, adjacency: str) -> tuple[tuple[Unit, ...], tuple[Adjacency, ...]]:
    """The units and adjacencies of two options, each of which may say "both"."""
    units = tuple(u for u in UNITS if unit in ("both", u))
    return units, tuple(a for a in ADJACENCIES if adjacency in ("both", a))


def text(table: EpsilonTable) -> str:
    """The table for a terminal, with the reasons below."""
    lines = [HEAD] + [tuple(_cell(row, name) for name in HEAD) for row in table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    out = [f"ε at δ = {table.delta:g}; - is not claimed or not measured"]
    out += ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]
    about: dict[str, list[Epsilon]] = {}  # note -> the rows that it is about
    for row in table.rows:
        for note in dict.fromkeys(row.notes):
            about.setdefault(note, []).append(row)
    out += [f"{_about(own, table.rows)}: {note}" for note, own in about.items()]
    if not table.secret:
        out.insert(1, f"{NO_SECRET} What is proven would hold with a secret one.")
    out += filter(None, [table.unseen, spent_said(table.spent, table.spent_delta)])
    for target in table.targets or ():
        place = f"{target.observer}, {target.unit}, {target.adjacency}"
        if target.why:
            out.append(f"{place}: no noise factor gives a proven ε of {target.target_epsilon:g}: {target.why}")
        else:
            std = ""
            if target.noise_std:
                std = f" (noise_std {at_most(target.noise_std, 6)})"
            needed = f"{at_most(target.noise_factor, 6)} times the noise{std}"
            if table.source == NUMBERS:
                needed = f"noise_std {at_most(target.noise_std, 4)}"
            out.append(f"{place}: proven ε = {target.target_epsilon:g} at δ = {table.delta:g} needs {needed}")
    return "\n".join(out)


def _about(some: Sequence[Epsilon], every: Sequence[Epsilon]) -> str:
    """Which rows, in as few words as can be: an observer's name alone stands for all of its rows."""
    if len(some) == len(every) > 1:
        return "all rows"
    of_observer: dict[str, list[str]] = {}
    for row in some:
        of_observer.setdefault(row.observer, []).append(f"{row.unit} {row.adjacency}")
    alike: dict[str, list[str]] = {}
    for observer, own in of_observer.items():
        whole = len(own) == sum(row.observer == observer for row in every) > 1
        alike.setdefault("" if whole else f" ({', '.join(own)})", []).append(observer)
    return "; ".join(f"{listed(names)}{place}" for place, names in alike.items())


def _said(value: float, rounded: Callable[[float, int], str] = number) -> str:
    """An ε to the second decimal, or to four digits where it is huge or tiny."""
    digits = 4
    if 1e-2 <= value < 1e5:
        digits = max(3, math.floor(math.log10(value)) + 3)
    return rounded(value, digits)


def _cell(row: Epsilon, name: str) -> str:
    value = getattr(row, name)
    if name == "demonstrated" and (both := (on_condition(row), chosen_briefly(row))) != (None, ""):
        return ", ".join(filter(None, ("" if value is None else _said(value, at_least), *both)))
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        if value == math.inf:
            return "∞"
        said = f"{value:.4g}"  # a multiplier
        if name == "demonstrated":
            said = _said(value, at_least)
        elif name != "multiplier":
            said = _said(value, number if name == "claimed" and row.claimed_by != "accountant" else at_most)
        if name == "claimed" and row.claimed_by:
            return f"{said} ({row.claimed_by})"
        return said
    return str(value)
