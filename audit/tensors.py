"""The one reader of numbers that somebody else's code hands over: dense values, or one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

EXACT = {torch.float32: 2**24, torch.float64: 2**53 - 1}  # whole numbers up to here have no other beside them


def dense_tensor(value: Any, what: str) -> Tensor:
    """The same numbers in a dense tensor on the CPU, of the type that they have: sparse ones with their zeros,
    quantised ones multiplied out, a DTensor's where all of it is here. It may share its memory with `value`.

    Args:
        value: a tensor, an array or what becomes one, or lists of Python's numbers.
        what: the value's name in a sentence.

    Raises:
        ValueError: no real numbers, or none that can be read: nested, on the meta device, of a type without arithmetic.

    >>> dense_tensor(torch.tensor([0.0, 2.0]).to_sparse(), "the update")
    tensor([0., 2.])
    """
    read = _read(value, what)
    kind = str(read.dtype).removeprefix("torch.")
    if read.is_complex():
        raise ValueError(f"{what} is of {kind}; expected real numbers, of a complex one both parts")
    if read.is_nested:
        raise ValueError(f"{what} is a nested tensor; expected one of a single shape, or its parts one by one")
    if read.is_meta:
        raise ValueError(f"{what} is on the meta device, which keeps no numbers; expected it with its values")
    try:
        read = read.dequantize() if read.is_quantized else read
        read = (read.to_dense() if read.layout != torch.strided else read).cpu().resolve_neg()
        read.reshape(-1)[:1].double().numpy()  # a type without arithmetic, or a subclass that hides its numbers, fails
    except Exception as error:  # a subclass of a tensor runs its owner's code
        message = " ".join(str(error).split())[:100]
        raise ValueError(f"{what} is a {type(value).__name__} of {kind}, which cannot be read ({message})") from None
    return read


def real_numbers(value: Any, what: str, dtype: torch.dtype) -> Tensor:
    """The same numbers as `dtype`, torch.float32 or torch.float64, in memory of their own.

    Args:
        value, what: as of `dense_tensor`. dtype: that is wanted.

    Raises:
        ValueError: as `dense_tensor`, or whole numbers that `dtype` cannot tell apart.
    """
    read = dense_tensor(value, what)
    if not read.is_floating_point() and read.numel() and float(read.double().abs().max()) > EXACT[dtype]:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"{what} holds whole numbers beyond {EXACT[dtype]:,}, which {kind} cannot tell apart")
    return read.to(dtype, copy=True)


def _whole(value: Any, what: str) -> Tensor:
    """A DTensor's numbers where this process has all of them: to gather parts, all processes would have to ask."""
    here: Tensor = value.to_local().detach()
    if value.device_mesh.size() > 1 and not all(placement.is_replicate() for placement in value.placements):
        raise ValueError(
            f"{what} is a DTensor of which this process has {tuple(here.shape)} of {tuple(value.shape)}; give its"
            " full_tensor(), called on every process"
        )
    return here


def _read(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor) and hasattr(value, "placements"):
        return _whole(value, what)
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{what} is a masked array; expected one whose numbers all count")
    try:
        if isinstance(value, Tensor):
            return value.detach()
        if not hasattr(value, "__array__"):
            made = torch.as_tensor(value)  # floats of Python become float32, and are read again
            if made.is_floating_point():
                return torch.as_tensor(value, dtype=torch.float64)
            return made
        array = np.asarray(value)
    except Exception:  # an object's own way to become an array runs its owner's code
        raise ValueError(f"{what} is a {type(value).__name__}; expected a tensor or an array of numbers") from None
    if array.dtype.kind not in "fiubc":
        raise ValueError(f"{what} is of {array.dtype}; expected numbers")
    if array.dtype == np.longdouble:
        native = np.dtype(np.float64)
    else:
        native = array.dtype.newbyteorder("=")
    array = np.asarray(array, native, order="C")
    return torch.from_numpy(array if array.flags.writeable else array.copy())
