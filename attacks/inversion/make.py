"""Inversion attacks from their config table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..base import Attack
from .attack import Inversion


def make(settings: Mapping[str, Any], quick: bool, device: str) -> list[Attack]:
    """One attack per objective named in `objective` (a name or a list of names); `quick` runs a third of the iterations.

    Raises ValueError in one sentence for an unknown key or a value out of range.
    """
    known = {f.name for f in fields(Inversion) if f.init} - {"device"}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    objectives = settings.get("objective", "cosine")
    made: list[Attack] = []
    for objective in [objectives] if isinstance(objectives, str) else objectives:
        values = {**settings, "objective": objective, "device": device}
        if "manners" in values:
            values["manners"] = tuple(values["manners"])
        attack = Inversion(**values)
        if quick:
            attack = Inversion(**{**values, "iterations": max(1, attack.iterations // 3)})
        made.append(attack)
    return made
