"""One record as its input and its label, in whatever form a data set gives it, and another one of the same form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

LABELS = ("label", "labels", "target", "targets", "y", "class", "outcome")  # a mapping's names for it


@dataclass(frozen=True, eq=False)
class LabelledRecord:
    """inputs: float64, of images 0 to 255; None where they are no real numbers, as token ids. label: as it came.
    whole: whether inputs are pixels of 8 bits. remade: of inputs, None for the record's own, and of a label in the form
    of some record, a record in this one's form.
    """

    inputs: Tensor | None
    label: Any
    whole: bool
    remade: Callable[[Tensor | None, Any], Any]

    @property
    def key(self) -> tuple[float | str, ...]:
        """The label's values; equal labels have equal ones, in whatever form.

        >>> labelled_record((torch.zeros(2), np.int64(3))).key, labelled_record({"x": [0.5], "y": "cat"}).key
        ((3.0,), ('cat',))
        """
        if isinstance(self.label, str):
            return (self.label,)
        return tuple(np.asarray(self.label, dtype=np.float64).reshape(-1).tolist())


def labelled_record(record: Any) -> LabelledRecord | None:
    """A pair of an input and a label, with what stands behind them; or a mapping of one array and a label. None of any
    other record.

    Inputs are tensors, arrays, pictures or lists of numbers; labels numbers, words, or rows of 0 and 1.
    """
    if isinstance(record, Mapping):
        names: list[Any] = [name for name in LABELS if name in record]
        names = names or [n for n, v in record.items() if not isinstance(v, str) and _is_label(v) and np.ndim(v) == 0]
        if len(names) != 1 or not _is_label(record[names[0]]):
            return None
        label = names[0]
        arrays = [name for name, value in record.items() if name != label and _values(value) is not None]
        if len(arrays) > 1:
            return None
        return _of_parts(record, next(iter(arrays), None), label, lambda changed: {**record, **changed})
    if isinstance(record, tuple | list) and len(record) >= 2 and _is_label(record[1]):
        return _of_parts(record, 0, 1, lambda changed: _of_sequence(record, changed))
    return None


def _of_parts(record: Any, place: Any, label: Any, put: Callable[[dict[Any, Any]], Any]) -> LabelledRecord | None:
    held = None if place is None else _values(record[place])

    def remade(inputs: Tensor | None, other: Any) -> Any:
        changed = {label: other}
        if inputs is not None:
            changed[place] = _as(record[place], inputs)
        return put(changed)

    pixels = held is not None and np.asarray(record[place]).dtype == np.uint8
    return LabelledRecord(held, record[label], pixels, remade)


def _of_sequence(record: Any, changed: Mapping[int, Any]) -> Any:
    parts = [changed.get(i, part) for i, part in enumerate(record)]
    if hasattr(record, "_fields"):
        return type(record)(*parts)
    return type(record)(parts)


def _values(value: Any) -> Tensor | None:
    """float64 of real numbers or pixels of 8 bits; None of anything else."""
    if isinstance(value, Tensor):
        held = value.detach().cpu()
        if held.is_floating_point() or held.dtype == torch.uint8:
            return held.double()
        return None
    if not isinstance(value, np.ndarray | Image.Image | list):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        return None
    whole = isinstance(value, list) and array.dtype.kind == "i"  # token ids
    if whole or not (array.dtype.kind == "f" or array.dtype == np.uint8) or array.ndim == 0:
        return None
    return torch.from_numpy(array.astype(np.float64))


def _as(like: Any, inputs: Tensor) -> Any:
    """These numbers in the form of `like`."""
    if isinstance(like, Tensor):
        return inputs.to(like.dtype)
    array = inputs.numpy()
    if isinstance(like, Image.Image):
        return Image.fromarray(array.astype(np.uint8), like.mode)
    if isinstance(like, np.ndarray):
        return array.astype(like.dtype)
    return array.tolist()


def _is_label(value: Any) -> bool:
    """A number or a word, or a row of 0 and 1."""
    if isinstance(value, str | bool | int | float | np.generic):
        return True
    if not isinstance(value, Tensor | np.ndarray | list):
        return False
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except ValueError:
        return False
    if array.dtype.kind not in "biuf" or array.ndim > 1 or array.size == 0:
        return False
    return array.size == 1 or bool(np.isin(array, (0, 1)).all())
