"""The ranges that all formulas share."""

from __future__ import annotations

from math import isfinite


def positive(**values: float) -> None:
    """Raises ValueError naming the first value that is not finite and above 0."""
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}; it must be finite and above 0")


def probability(**values: float) -> None:
    """Raises ValueError naming the first value that is not strictly between 0 and 1."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}; it must lie strictly between 0 and 1")


def count(**values: float) -> None:
    """Raises ValueError naming the first value that is below 0 or not finite."""
    for name, value in values.items():
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}; it must be at least 0")


def rate(value: float) -> None:
    """Raises ValueError where a sampling rate is not in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"the sampling rate is {value}; it must be above 0 and at most 1")
