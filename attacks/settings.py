"""Settings come from files, where a value may be of any type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..defenses.complaint import first_complaint
from ..defenses.nearest import instead


def check_keys(settings: Mapping[str, Any], known: Iterable[str], gone: Collection[str] = ()) -> None:
    """That every setting is one that there is. Raises ValueError in one sentence.

    gone: settings that there were, which stored configs may have.
    """
    unknown = sorted(set(settings) - set(known))
    if not unknown:
        return
    if unknown[0] in gone:
        raise ValueError(f"the key {unknown[0]!r} was taken out; leave it out")
    raise ValueError(f"unknown key {unknown[0]!r}{instead(unknown[0], sorted(known)) or '; known are none'}")


def check_types(kind: type, settings: Mapping[str, Any]) -> None:
    """That every setting has the type of its field of `kind`, before anything computes with it; lists stand for tuples.

    >>> check_types(type("A", (), {"__annotations__": {"lr": float}}), {"lr": "fast"})
    Traceback (most recent call last):
    ...
    ValueError: lr = 'fast': expected a number

    Raises ValueError.
    """
    hints = get_type_hints(kind)
    for name, value in settings.items():
        try:
            TypeAdapter(hints[name], config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(
                tuple(value) if isinstance(value, list) else value
            )
        except ValidationError as error:
            right = first_complaint(error, value).expected
            raise ValueError(f"{name} = {str(repr(value))[:60]}: expected {right}") from None
