"""How arrays are read as images: their axes and what white is, by shapes, types and values; each decision in words.

A type decides where it can (whole numbers of 8 or 16 bits). Else the values of all records do, by more than half of
them, so that no single record decides how the others are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Axes = Literal["as given", "grey", "hwc"]

ORDERS = ("chw", "hwc")
AS_THEY_ARE, NO_PIXELS = "as they are", "none"
CHANNELS = (1, 3)  # grey or colour
OF_TYPE = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0, np.dtype(np.bool_): 1.0}  # what white is
WHITE = 255.0  # of other numbers from 0 on, most of whose images go beyond 1


def whites(arrays: Sequence[Array], pixels: str | float | None) -> list[float] | None:
    """What pixels of each array are divided by; None where these are no pixels.

    Args:
        arrays: (n, …) of one kind of records, such as splits. pixels: the owner's word: what white is, `AS_THEY_ARE`
            or `NO_PIXELS`.

    Raises:
        ValueError: `pixels` is neither, or some records of an array go beyond 1, and fewer than half.
    """
    if pixels == AS_THEY_ARE:
        return [1.0] * len(arrays)
    if pixels == NO_PIXELS:
        return None
    if isinstance(pixels, bool) or not (pixels is None or (isinstance(pixels, int | float) and pixels > 0)):
        raise ValueError(
            f"pixels = {pixels!r} is no way to read pixels; known are {AS_THEY_ARE!r}, {NO_PIXELS!r} and what white"
            " is, such as 255"
        )
    found = [float(pixels) if pixels is not None else _white(array) for array in arrays]
    return None if None in found else [white for white in found if white is not None]


def _white(array: Array) -> float | None:
    if array.dtype in OF_TYPE:
        return OF_TYPE[array.dtype]
    if array.size == 0:
        return 1.0
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= WHITE):
        return None
    beyond = float((array.reshape(len(array), -1).max(1) > 1).mean())
    if 0 < beyond < 0.5:
        raise ValueError(
            f"{beyond:.2g} of the images go beyond 1, up to {high:.4g}, and the others do not; say what white is by"
            " pixels, such as pixels = 255"
        )
    return WHITE if beyond else 1.0


def axes_of(shape: Sequence[int], order: str | None, pixels: bool) -> Axes:
    """Of arrays (n, *shape).

    Args:
        shape: of a record. order: its owner's word, in `ORDERS`. pixels: whether the numbers are pixels.

    Raises:
        ValueError: they are images of four axes whose order nobody can tell, or `order` is none or of other arrays.
    """
    if order is not None and order not in ORDERS:
        raise ValueError(f"order = {order!r} is no order of an image's axes; known are {', '.join(ORDERS)}")
    if len(shape) != 3:
        if order is not None:
            raise ValueError(f"order = {order!r} is for images of four axes; these are (n, {str(tuple(shape))[1:]}")
        return "grey" if len(shape) == 2 and pixels else "as given"
    first, last = shape[0] in CHANNELS, shape[2] in CHANNELS
    if order is None and not first and not last:
        raise ValueError(
            f"images of shape {tuple(shape)}, in which neither the first nor the last axis has 1 or 3 channels; say"
            ' their order by order = "chw" or "hwc"'
        )
    if order is None and first and last and set(shape) != {1}:
        raise ValueError(
            f"images of shape {tuple(shape)}, which can be channel-height-width or height-width-channel; say which by"
            ' order = "chw" or "hwc"'
        )
    return "hwc" if order == "hwc" or (order is None and last and not first) else "as given"


def turned(array: Array, axes: Axes) -> Array:
    """(n, c, h, w) of an array whose axes are so."""
    if axes == "grey":
        return array[:, None]
    return array.transpose(0, 3, 1, 2) if axes == "hwc" else array


def divided(array: Array, white: float) -> Array:
    """Pixels from 0 to 1, float32."""
    return array if white == 1 else np.divide(array, np.float32(white), dtype=np.float32)


def pixel_notes(axes: Axes, white: float, kind: object) -> list[str]:
    """What was decided, for whoever reads the setup.

    >>> pixel_notes("hwc", 255.0, np.dtype(np.uint8))
    ['uint8 pixels divided by 255', 'height-width-channel order turned to channel-height-width']
    """
    notes = [f"{kind} pixels divided by {white:g}"] if white != 1 else []
    notes += ["grey images given one channel"] if axes == "grey" else []
    return notes + (["height-width-channel order turned to channel-height-width"] if axes == "hwc" else [])
