"""Records as owners hand them over: as torch's, NumPy's or pictures, as lists, mappings or a data set; and how their
values are read as images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...defenses.data.pixels import CHANNELS, OF_TYPE, Axes, divided, pixel_notes, turned, whites
from ..errors import BadInput, bad_input
from ..labelled import LABELS, labelled_record
from ..tensors import dense_tensor
from .recording import DataFacts

MODES = {"1": "L", "P": "RGB", "RGBA": "RGB", "LA": "L", "CMYK": "RGB"}  # of pictures whose numbers are no pixels


def parted(given: Any, where: str) -> tuple[Any, Any]:
    """Inputs and targets of records in any form, each side as one array, or as its owner has it.

    Args:
        given: (inputs, targets); a mapping of inputs and a label; or a data set, or a list, of single records.
        where: for a sentence.

    Raises:
        BadInput: no labels, or inputs of several shapes.
    """
    if isinstance(given, Mapping):
        inputs, targets = _of_mapping(given, where)
    elif isinstance(given, tuple | list) and len(given) == 2 and not all(_is_record(one) for one in given):
        inputs, targets = given
    elif _has_records(given):
        records = [given[i] for i in range(len(given))]
        sides = [_of_mapping(one, where) if isinstance(one, Mapping) else tuple(one[:2]) for one in records]
        inputs, targets = [one for one, _ in sides], [label for _, label in sides]
        if not isinstance(targets[0], str | bool | int | float):
            targets = _stacked(targets, "targets", where)
    else:
        raise BadInput(f"{where}: records = {type(given).__name__}: expected (inputs, targets)")
    if isinstance(inputs, list | tuple) and inputs and isinstance(inputs[0], Tensor | np.ndarray | Image.Image):
        inputs = _stacked(inputs, "inputs", where)
    return inputs, targets


def _is_record(value: Any) -> bool:
    one = labelled_record(value)
    return one is not None and one.inputs is not None


def _has_records(given: Any) -> bool:
    if isinstance(given, str | Tensor | np.ndarray) or not (
        hasattr(given, "__len__") and hasattr(given, "__getitem__")
    ):
        return False
    return len(given) > 0 and labelled_record(given[0]) is not None


def _of_mapping(given: Mapping[Any, Any], where: str) -> tuple[Any, Any]:
    names = [name for name in LABELS if name in given]
    if len(names) != 1:
        held = ", ".join(map(repr, given))
        raise BadInput(f"{where}: records are a mapping of {held}; expected inputs and one of {', '.join(LABELS)}")
    inputs = {name: value for name, value in given.items() if name != names[0]}
    return (next(iter(inputs.values())) if len(inputs) == 1 else inputs), given[names[0]]


def _stacked(values: Sequence[Any], what: str, where: str) -> Any:
    """Values one by one as an array (n, …)."""
    arrays: list[Any] = [_picture(one) if isinstance(one, Image.Image) else one for one in values]
    shapes = {tuple(one.shape) for one in arrays if hasattr(one, "shape")}
    if len(shapes) > 1:
        listed = " and ".join(map(str, sorted(shapes)[:2]))
        raise BadInput(f"{where}: records' {what} have several shapes ({listed}); bring them to one")
    if all(isinstance(one, Tensor) for one in arrays):
        return torch.stack(arrays)
    with bad_input(where):
        return np.stack([dense_tensor(one, f"records' {what}").numpy() for one in arrays])


def _picture(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert(MODES[image.mode]) if image.mode in MODES else image)


def class_numbers(targets: Any, labels: Sequence[str] | None) -> tuple[Any, tuple[str, ...]]:
    """Targets whose words became the numbers of classes, and the classes in their order; others as they are, and ().

    Args:
        targets: (n,). labels: the classes, None where nobody said: then those that are seen, by the alphabet.

    Raises:
        ValueError: a word is none of the classes.
    """
    held = targets
    if isinstance(targets, np.ndarray) and targets.dtype.kind in "US":
        held = targets.tolist()
    if not isinstance(held, list | tuple) or not held or not all(isinstance(one, str | bytes) for one in held):
        return targets, ()
    words = [str(one, "utf-8") for one in held if isinstance(one, bytes)] or [*held]
    names = tuple(labels or sorted(set(words)))
    if strange := sorted(set(words) - set(names)):
        raise ValueError(f"the target {strange[0]!r} is none of data['labels'], which are {', '.join(names[:5])}")
    place = {name: number for number, name in enumerate(names)}
    return torch.tensor([place[word] for word in words]), names


def axes_to_try(shape: Sequence[int], pixels: bool) -> list[Axes]:
    """How records of that shape may be turned, the likeliest first."""
    if len(shape) == 2:
        if pixels:
            return ["grey", "as given"]
        return ["as given", "grey"]
    if len(shape) == 3:
        behind = shape[2] in CHANNELS and shape[0] not in CHANNELS
        if behind:
            return ["hwc", "as given"]
        return ["as given", "hwc"]
    return ["as given"]


def white_of(array: np.ndarray, data: DataFacts) -> float | None:
    """What pixels of an array are divided by, by its type or as those before it; None where these are no pixels.

    Raises:
        ValueError: some records go beyond 1, and fewer than half.
    """
    if data.normalised or array.ndim not in (3, 4):
        return None
    if array.dtype not in OF_TYPE and data.white is not None:
        return data.white
    found = whites([array], None)
    if found is None:
        return None
    return found[0]


def as_read(array: np.ndarray, axes: Axes, white: float | None) -> tuple[Tensor, list[str]]:
    """Inputs (n, …) float32, and what was decided, in words."""
    read = turned(divided(array, white or 1.0), axes)
    return torch.from_numpy(np.ascontiguousarray(read, np.float32)), pixel_notes(axes, white or 1.0, array.dtype)


def shape_as(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    """Of a record, after it is turned."""
    return turned(np.empty((0, *shape)), axes).shape[1:]
