"""What is run of an attack: one piece of work, done whole or again, and what it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .base import Attack, Evidence, Part, View


@dataclass(frozen=True, eq=False)
class ChosenAttack:
    """An attack to run. name: as typed after --attack; settings: as they go into the results."""

    name: str
    attack: Attack
    settings: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """One piece of work that is done whole or again: an attack on one observer's message (or messages)."""

    key: str
    attack: Attack
    settings: Mapping[str, Any]
    view: View
    part: Part


@dataclass(frozen=True, eq=False)
class CellEvidence:
    """A cell and what it brought."""

    cell: Cell
    evidence: Evidence
