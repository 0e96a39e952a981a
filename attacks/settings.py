"""Settings come from files, where a value may be of any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError


def check_types(kind: type, settings: Mapping[str, Any]) -> None:
    """That every setting has the type of its field of `kind`, before anything computes with it; lists stand for tuples.

    >>> check_types(type("A", (), {"__annotations__": {"lr": float}}), {"lr": "fast"})
    Traceback (most recent call last):
    ...
    ValueError: lr = 'fast': expected float

    Raises ValueError.
    """
    hints = get_type_hints(kind)
    for name, value in settings.items():
        try:
            TypeAdapter(hints[name], config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(
                tuple(value) if isinstance(value, list) else value
            )
        except ValidationError:
            expected = (
                getattr(hints[name], "__name__", "")
                if isinstance(hints[name], type)
                else str(hints[name]).replace("typing.", "")
            )
            raise ValueError(
                f"{name} = {str(repr(value))[:60]}: expected"
                f" {expected or hints[name]}{' (finite)' if hints[name] is float and isinstance(value, float) else ''}"
            ) from None
