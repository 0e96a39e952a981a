"""What each piece of knowledge is worth to an attacker: an attack beside itself without that piece.

Only the attacks with all their knowledge count as tries. Those without a piece are weaker by intent: as tries they
would only raise what all others have to pass (`checks`), so no verdict, gate or p-value sees them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

from ...metrics.intervals import Interval, bootstrap_interval, clopper_pearson_interval
from ..say import knowledge as say
from ..say import words
from .checks import picked
from .format import AttackResult, Results

FULL = "full knowledge"
_VARIES = ("without", "labels")  # of the settings


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval; None: not measured."""

    value: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True)
class WorthRow:
    """An attack on all its messages together. without: what was withheld, "" for nothing. images: of all messages.

    psnr: the images' mean, dB; bootstrapped over the images. margin: over the best control that knows no more, dB; the
    messages' own intervals, taken for independent. reidentified: the share picked out of other images, with what chance
    gives.
    """

    without: str
    images: int
    psnr: Figure
    margin: Figure
    reidentified: Figure
    chance: float | None

    @property
    def name(self) -> str:
        """
        >>> WorthRow("clip", 8, Figure(), Figure(), Figure(), None).name
        'without clip'
        """
        if self.without:
            return f"without {self.without}"
        return FULL


@dataclass(frozen=True)
class WorthTable:
    """Attacks of one observer, manner and objective that differ in their knowledge alone; the whole one first.

    thing: what is rebuilt, "image" or "row".
    """

    observer: str
    manner: str
    objective: str
    rows: tuple[WorthRow, ...]
    thing: str = "image"

    @property
    def name(self) -> str:
        """
        >>> WorthTable("server", "one-round", "cosine", ()).name
        'cosine, one round, seen by the server'
        """
        return words.attack_entry(self.objective, self.manner, self.observer)


def worth(results: Results) -> tuple[WorthTable, ...]:
    """A table for each attack that was also run without something, the one that picks out most images first; none in
    results without such runs.
    """
    groups: dict[tuple[str, str], list[AttackResult]] = {}
    for entry in results.ablated:
        groups.setdefault((_alike(entry), entry.run), []).append(entry)
    tables = []
    for (alike, run), without in groups.items():
        same = [entry for entry in results.attacks if _alike(entry) == alike]
        whole = [entry for entry in same if entry.run == run] or same  # in another run of a report, where both have it
        if not whole:
            continue
        by_what: dict[str, list[AttackResult]] = {"": whole}
        for entry in without:
            by_what.setdefault(str(entry.settings["without"]), []).append(entry)
        line_up = "reidentified"
        if all(picked(e).share == "pool_share" for e in (*whole, *without)):
            line_up = "pool_share"
        first = whole[0]
        tables.append(
            WorthTable(
                first.observer,
                first.manner or "",
                str(first.settings.get("objective", "")),
                tuple(_row(what, entries, line_up) for what, entries in by_what.items()),
                first.thing,
            )
        )
    return tuple(sorted(tables, key=lambda table: _strength(table.rows[0]), reverse=True))


def _strength(row: WorthRow) -> tuple[float, float]:
    return row.reidentified.value or 0.0, row.margin.value or 0.0


def _alike(entry: AttackResult) -> str:
    """What entries have in common that differ in the message and in one piece of knowledge alone."""
    settings = {name: value for name, value in entry.settings.items() if name not in _VARIES}
    return json.dumps([entry.attack, entry.observer, entry.manner, settings], sort_keys=True, default=str)


def _row(what: str, entries: Sequence[AttackResult], line_up: str) -> WorthRow:
    counts = [entry.n or 0 for entry in entries]
    psnrs = [pair.psnr for entry in entries for pair in entry.pairs]
    known = [psnr for psnr in psnrs if psnr is not None]
    psnr = Figure()
    if known and len(known) == len(psnrs):
        psnr = Figure(sum(known) / len(known), bootstrap_interval(known))
    chance = "reidentified_chance"
    if line_up == "pool_share":
        chance = "pool_chance"
    return WorthRow(
        without=what,
        images=sum(counts),
        psnr=psnr,
        margin=_mean(entries, counts, "psnr_margin"),
        reidentified=_share(entries, counts, line_up),
        chance=_mean(entries, counts, chance).value,
    )


def _mean(entries: Sequence[AttackResult], counts: Sequence[int], metric: str) -> Figure:
    """The mean over all images, by what each message has."""
    values, total = [entry.value(metric) for entry in entries], sum(counts)
    known = [value for value in values if value is not None]
    if not total or len(known) < len(values):
        return Figure()
    value = sum(n * own for n, own in zip(counts, known)) / total
    limits = [entry.intervals.get(metric) for entry in entries]
    halves = [(own - pair[0], pair[1] - own) for own, pair in zip(known, limits) if pair is not None]
    if len(halves) < len(values):
        return Figure(value)
    below, above = (hypot(*(n * half[side] for n, half in zip(counts, halves))) / total for side in (0, 1))
    return Figure(value, (value - below, value + above))


def _share(entries: Sequence[AttackResult], counts: Sequence[int], metric: str) -> Figure:
    values, total = [entry.value(metric) for entry in entries], sum(counts)
    hits = [round(value * n) for value, n in zip(values, counts) if value is not None]
    if not total or len(hits) < len(values):
        return Figure()
    return Figure(sum(hits) / total, clopper_pearson_interval(sum(hits), total))


def stronger_without(results: Results) -> list[str]:
    """Where an attack clearly got more without something than with it, so that the whole one is not the strongest. By
    margins nothing is compared: without labels the control is a weaker one.
    """
    sentences = []
    for table in worth(results):
        whole = table.rows[0]
        for row in table.rows[1:]:
            if _above(row.psnr, whole.psnr) or _above(row.reidentified, whole.reidentified):
                sentences.append(say.got_more_without(table.name, row.name))
    return sentences


def _above(one: Figure, other: Figure) -> bool:
    return one.interval is not None and other.interval is not None and one.interval[0] > other.interval[1]


def worth_cells(row: WorthRow) -> dict[str, str]:
    """A row's figures in words."""

    def decibels(figure: Figure) -> str:
        if figure.value is None:
            return words.MISSING
        limits = figure.interval
        # rounded outwards, as all intervals are
        if limits is None:
            between = ""
        else:
            between = f" ({words.at_least(limits[0])} to {words.at_most(limits[1])})"
        return f"{words.number(figure.value)} dB{between}"

    share = words.percent(row.reidentified.value)
    if row.reidentified.interval is not None:
        share += f" ({words.between(row.reidentified.interval)})"
    return {
        "PSNR": decibels(row.psnr),
        "over its control": decibels(row.margin),
        "re-identified": share,
        "by chance": words.percent(row.chance),
    }


def worth_lines(results: Results) -> list[str]:
    """The first table for a terminal, and what was not withheld."""
    lines: list[str] = []
    tables = worth(results)
    for table in tables[:1]:
        grid = [["", *worth_cells(table.rows[0])], *([row.name, *worth_cells(row).values()] for row in table.rows)]
        widths = [max(len(line[k]) for line in grid) for k in range(len(grid[0]))]
        lines.append(say.knowledge_title(table.name, table.rows[0].images, table.thing))
        lines += ["  " + "  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in grid]
        if len(tables) > 1:
            lines.append(say.more_tables(len(tables) - 1))
    if said := say.nothing_said(results.not_withheld):
        lines.append(f"{said[0].upper()}{said[1:]}.")
    return lines


def worth_json(results: Results) -> list[dict[str, Any]]:
    """The tables as plain values."""

    def figure(own: Figure) -> dict[str, Any]:
        return {"value": own.value, "interval": None if own.interval is None else list(own.interval)}

    return [
        {
            "observer": table.observer,
            "manner": table.manner,
            "objective": table.objective,
            "rows": [
                {
                    "without": row.without,
                    "images": row.images,
                    "psnr": figure(row.psnr),
                    "psnr_margin": figure(row.margin),
                    "reidentified": {**figure(row.reidentified), "chance": row.chance},
                }
                for row in table.rows
            ],
        }
        for table in worth(results)
    ]
