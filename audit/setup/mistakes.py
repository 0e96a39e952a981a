"""A config that pydantic refuses, as one sentence: where, what, and what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ...defenses.complaint import first_complaint
from ...defenses.nearest import instead


def sentence(error: ValidationError, raw: Any, where: str, model: type[BaseModel], also: Sequence[str] = ()) -> str:
    """The first complaint about what was read, in a sentence.

    Args:
        error: all complaints. raw: what was read. where: it stands. model: as what it was read.
        also: further known keys.
    """
    wrong = first_complaint(error, raw)
    name = ".".join(map(str, wrong.path))
    if wrong.kind == "extra_forbidden":
        return f"{where}: unknown key {name!r}{instead(str(wrong.path[-1]), [*also, *keys(model, wrong.path[:-1])])}"
    at = f"{where}: {name}" if name else where
    if wrong.kind == "missing":
        return f"{at} is missing"
    if wrong.kind == "value_error":
        return f"{at}: {wrong.expected}"
    value = repr(wrong.value)
    return f"{at} = {value if len(value) < 80 else value[:77] + '...'}: expected {wrong.expected}"


def keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The keys of the table at `path` in a `model`; none where there is no such table, or it takes any key."""
    for name in path:
        field = model.model_fields.get(str(name))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))  # a table, or none
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not tables:
            return []
        model = tables[0]
    return list(model.model_fields)
