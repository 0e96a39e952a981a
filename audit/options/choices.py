"""What an option of a command, or a parameter of `dpfl_audit.train`, `run` and `choose`, can be. Nothing heavy is
imported.
"""

from __future__ import annotations

from typing import Literal, get_args

EngineName = Literal["batched", "looped", "sliced"]
DeviceName = Literal["auto", "cpu", "cuda"]
Best = Literal["accuracy", "privacy"]
Rows = Literal["auxiliary", "training"]
Search = Literal["auto", "random"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)
BESTS: tuple[Best, ...] = get_args(Best)
ROWS: tuple[Rows, ...] = get_args(Rows)
SEARCHES: tuple[Search, ...] = get_args(Search)
NETS = ("squeeze", "alex")  # what LPIPS can look through; the first is the smaller one
