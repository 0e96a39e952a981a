"""The ranges that formulas share. Each check names the first value outside, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

LEAST_SIZE, MOST_SIZE = 1e-100, 1e100  # of norms and noises: float64 holds their squares, quotients and products


def require_positive(**values: float) -> None:
    """Raises ValueError unless every value is above 0 and finite."""
    for name, value in values.items():
        if not 0 < value < inf:
            raise ValueError(f"{name} is {value}; it must be finite and above 0")


def require_above_zero(**values: float) -> None:
    """Raises ValueError unless every value is above 0; ∞, as of an ε without noise, is."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}; it must be above 0")


def require_nonnegative(**values: float) -> None:
    """Raises ValueError unless every value is at least 0 and finite."""
    for name, value in values.items():
        if not 0 <= value < inf:
            raise ValueError(f"{name} is {value}; it must be finite and at least 0")


def require_probability(**values: float) -> None:
    """Raises ValueError unless every value lies strictly between 0 and 1."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}; it must lie strictly between 0 and 1")


def require_count(**values: float | None) -> None:
    """Raises ValueError unless every value is a whole number, 1 or more, or None, for not given."""
    for name, value in values.items():
        if value is not None and not (isfinite(value) and value >= 1 and float(value).is_integer()):
            raise ValueError(f"{name} is {value}; it must be a whole number of at least 1")


def require_at_most(part: str, value: float, whole: str, limit: float) -> None:
    """Raises ValueError if a part is larger than its whole."""
    if value > limit:
        raise ValueError(f"{part} is {value}; it must be at most {whole} = {limit}")


def require_one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raises ValueError unless `value` is among `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
