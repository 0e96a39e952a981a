"""Whether two values that leave a training are the same, to the last bit, and how far apart two queries are."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isnan
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..tensors import real_numbers

Norm = Literal["l1", "l2", "linf"]
ORDERS: dict[Norm, float] = {"l1": 1.0, "l2": 2.0, "linf": inf}


def differs(first: Any, second: Any, where: str = "") -> str | None:
    """In which part, and how, two values differ, as a clause; None where they are the same or cannot be compared.

    Values of classes without an equality of their own cannot be.

    >>> differs({"loss": 1.0}, {"loss": 1.5})
    "'loss' is 1.0 and 1.5"
    >>> differs([1, float("nan")], [1, float("nan")]) is None
    True
    """
    name = where or "it"
    if isinstance(first, nn.Module) and isinstance(second, nn.Module):
        return differs(first.state_dict(), second.state_dict(), where)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return _arrays_differ(first.detach().cpu(), second.detach().cpu(), name)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.dtype.kind in "fiub":
        if second.dtype != first.dtype:
            return f"{name} is of {first.dtype} and {second.dtype}"
        return _arrays_differ(torch.from_numpy(first.copy()), torch.from_numpy(second.copy()), name)
    if type(first) is not type(second):
        return f"{name} is a {type(first).__name__} and a {type(second).__name__}"
    if isinstance(first, Mapping):
        if list(first) != list(second):
            return f"{name} has the keys {list(first)} and {list(second)}"
        parts = (differs(first[key], second[key], f"{where + '.' if where else ''}{key!r}") for key in first)
        return next((part for part in parts if part), None)
    if isinstance(first, list | tuple):
        if len(first) != len(second):
            return f"{name} has {len(first)} and {len(second)} parts"
        parts = (differs(a, b, f"{name}[{i}]") for i, (a, b) in enumerate(zip(first, second)))
        return next((part for part in parts if part), None)
    if isinstance(first, float) and isnan(first) and isnan(second):
        return None
    if type(first).__eq__ is object.__eq__ or bool(first == second):
        return None
    return f"{name} is {first!r:.60} and {second!r:.60}"


def _arrays_differ(first: Tensor, second: Tensor, name: str) -> str | None:
    if first.shape != second.shape or first.dtype != second.dtype:
        shapes = (f"{tuple(one.shape)} of {str(one.dtype).removeprefix('torch.')}" for one in (first, second))
        return f"{name} has shape " + " and ".join(shapes)
    equal = (first == second) | (first != first) & (second != second)
    if bool(equal.all()):
        return None
    if first.numel() == 1:
        return f"{name} is {first.item():.6g} and {second.item():.6g}"
    return f"{name} differs in {int((~equal).sum())} of {first.numel()} numbers"


def flat_parts(value: Any) -> dict[str, Tensor]:
    """A query's tensors by name, float64, flat.

    Args:
        value: a number, a tensor or an array, or a list or a dict of them.

    Raises:
        ValueError: it is none of these.
    """
    named = {"": value}
    if isinstance(value, Mapping):
        named = {str(name): part for name, part in value.items()}
    elif isinstance(value, list | tuple) and any(isinstance(part, Tensor | np.ndarray) for part in value):
        named = {str(i): part for i, part in enumerate(value)}
    what = {name: f"tensor {name!r} of the query" if name else "the query" for name in named}
    return {name: real_numbers(part, what[name], torch.float64).reshape(-1) for name, part in named.items()}


def distance(first: Mapping[str, Tensor], second: Mapping[str, Tensor], norm: Norm) -> tuple[float, str]:
    """Between two queries of equal shapes, of all tensors jointly; and the tensor that moved most. Not finite numbers
    that are the same in both are no distance, any other is inf.
    """
    moved = {}
    for name, value in first.items():
        other = second[name]
        same = (value == other) | (value != value) & (other != other)
        apart = torch.where(same, 0.0, value - other)
        moved[name] = float(torch.linalg.vector_norm(torch.nan_to_num(apart, inf, inf, inf), ORDERS[norm]))
    parts = torch.tensor(list(moved.values()), dtype=torch.float64)
    return float(torch.linalg.vector_norm(parts, ORDERS[norm])), max(moved, key=lambda name: moved[name])
