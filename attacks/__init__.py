"""All attacks by name: one line in this list each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .base import Attack
from .inversion.make import make as make_inversions


@dataclass(frozen=True)
class Kind:
    """A line about the attack, and how it is made from its config table: `make(settings, quick, device)`; ValueError in one sentence."""

    about: str
    make: Callable[[Mapping[str, Any], bool, str], list[Attack]]


ATTACKS: dict[str, Kind] = {
    "inversion": Kind("gradient inversion: images out of captured gradients, updates or weights", make_inversions),
}

__all__ = ["ATTACKS", "Kind"]
