"""What is wrong with a value, in the words of the file it stands in. pydantic's own sentences name its inner types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from .nearest import instead, nearest

Fault = Mapping[str, Any]  # one of pydantic's `errors()`

_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "extra_forbidden": "nothing under this name",
}
_LIMITS = {
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_short": "at least {min_length} of them",
}


@dataclass(frozen=True)
class Complaint:
    """What is wrong first of all.

    kind: pydantic's name of the fault. path: keys and numbers of entries that lead to the value. value: what stands
    there. expected: what would be right.
    """

    kind: str
    path: tuple[str | int, ...]
    value: Any
    expected: str


def first_complaint(error: ValidationError, raw: Any) -> Complaint:
    """pydantic's first complaint about `raw`, joined with the others about the same value: each says one of the kinds
    of value that are allowed there. A word that is nearly an allowed one is asked about.

    >>> from pydantic import TypeAdapter
    >>> from typing import Literal
    >>> try:
    ...     _ = TypeAdapter(dict[str, float | Literal["median"]]).validate_python({"clip": "meadian"}, strict=True)
    ... except ValidationError as error:
    ...     complaint = first_complaint(error, {"clip": "meadian"})
    >>> complaint.path, complaint.expected
    (('clip',), "a number or 'median'; did you mean 'median'?")
    """
    faults = error.errors(include_url=False)
    first, path = faults[0], _path(faults[0], raw)
    same = [fault for fault in faults if _path(fault, raw) == path]
    choices = [word for fault in same if fault["type"] == "literal_error" for word in _choices(fault)]
    near = nearest(first["input"], choices) if isinstance(first["input"], str) else None
    right = " or ".join(dict.fromkeys(map(_right, same)))
    return Complaint(first["type"], path, first["input"], right if near is None else f"{right}; did you mean {near!r}?")


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """A sentence that refuses a value of a setting for which there are only a few.

    >>> one_of("labels", "know", ("known", "inferred"))
    "labels = 'know'; did you mean 'known'?"
    """
    return f"{name} = {repr(value)[:80]}{instead(str(value), allowed)}"


def _path(fault: Fault, raw: Any) -> tuple[str | int, ...]:
    """Without the names of types that pydantic tried: those are in no file."""
    here, path = raw, []
    for part in fault["loc"]:
        if part in (here if isinstance(here, Mapping) else range(len(here)) if isinstance(here, list | tuple) else ()):
            here = here[part]
        elif not (fault["type"] == "missing" and part == fault["loc"][-1]):
            continue
        path.append(part)
    return tuple(path)


def _choices(fault: Fault) -> Sequence[str]:
    return re.findall(r"'([^']*)'", fault["ctx"]["expected"])


def _right(fault: Fault) -> str:
    kind, given = fault["type"], fault.get("ctx") or {}
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _LIMITS:
        return _LIMITS[kind].format(**given)
    if kind == "literal_error":
        return str(given["expected"])
    text = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return text[:1].lower() + text[1:]
