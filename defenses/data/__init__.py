"""Data sets by name."""

from __future__ import annotations

from typing import Any

from . import photos
from .dataset import Dataset

NAMES = ("photos",)


def load(
    name: str, *, root: str | None = None, classes: int | None = None, samples: int | None = None, download: bool = False, seed: int = 0, **options: Any
) -> Dataset:
    """The data set `name`."""
    if name == "photos":
        return photos.load(classes=10 if classes is None else classes, samples=samples, seed=seed, **options)
    raise ValueError(f"unknown data set {name!r}; known are {', '.join(NAMES)}")
