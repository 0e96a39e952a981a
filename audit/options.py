"""What an option of a command, or a parameter of `dpfl_audit.train` and `run`, can be. Nothing heavy is imported."""

from __future__ import annotations

from typing import Literal, get_args

EngineName = Literal["batched", "looped", "sliced"]
DeviceName = Literal["auto", "cpu", "cuda"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)
