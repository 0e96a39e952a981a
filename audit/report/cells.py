"""Rows of a table beside what an attack made of them, cell by cell, in the table's own words."""

from __future__ import annotations

from typing import Any

import torch

from ...defenses.data.columns import TableColumn, described_columns
from ...defenses.data.unit_scale import UnitScale
from ...metrics.cells import cells_right
from ..results.format import AuditedSetup
from .pictures import Pictures

SHOWN_ROWS, SHOWN_COLUMNS = 4, 40


def columns_shown(setup: AuditedSetup, features: int) -> tuple[TableColumn, ...]:
    """The columns by whose ends the attack's images were made, () where it is no table, or another one."""
    try:
        return described_columns(setup.data.get("columns") or [], features)
    except (TypeError, ValueError):
        return ()


def cell_table(pictures: Pictures, setup: AuditedSetup) -> dict[str, Any] | None:
    """The rows with the most cells right, None for images, without originals, or without columns: names of the columns,
    and of each row pairs of (original, rebuilt, right) cells. right: of the first row, every cell's.
    """
    if pictures.rebuilt is None or pictures.originals is None or pictures.rebuilt.shape[2:] != (1, 1):
        return None
    columns = columns_shown(setup, pictures.rebuilt.shape[1])
    pairs = pictures.worst_first
    if not columns or not pairs:
        return None
    scale, kinds = UnitScale.of(columns), [(column.width, column.spread) for column in columns]
    own = scale.rows(torch.from_numpy(pictures.originals[[pair.original for pair in pairs]]))
    made = scale.rows(torch.from_numpy(pictures.rebuilt[[pair.reconstruction for pair in pairs]]))
    best = cells_right(own, made, kinds).argsort(descending=True, stable=True)[:SHOWN_ROWS]
    own, made, pairs = own[best], made[best], [pairs[i] for i in best.tolist()]
    lines, place = [], 0
    for column in columns:
        cell = [(column.width, column.spread)]
        a, b = own[:, place : place + column.width], made[:, place : place + column.width]
        right = cells_right(a, b, cell).bool().tolist()
        said = zip(a.tolist(), b.tolist(), right, strict=True)
        lines.append({"name": column.name, "cells": [(column.cell(x), column.cell(y), ok) for x, y, ok in said]})
        place += column.width
    return {
        "numbers": [pair.original + 1 for pair in pairs],
        "lines": lines[:SHOWN_COLUMNS],
        "right": [line["cells"][0][2] for line in lines],
        "cut": max(0, len(lines) - SHOWN_COLUMNS),
    }
