"""How two data sets are neighbours, and how many pairs are tried. Imported by the command line: no torch here."""

from __future__ import annotations

from typing import Literal

ReplayAdjacency = Literal["add_remove", "zero_out", "replace_one"]
ADJACENCIES: tuple[ReplayAdjacency, ...] = ("add_remove", "zero_out", "replace_one")
PAIRS = 12  # a record, the six canaries that are made of one, and five records more: seconds for a small training
