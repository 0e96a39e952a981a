"""The user's own arrays: a NumPy archive with `inputs` and `targets`."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .dataset import DEALT_BY_LOT, Dataset, Records, Source, make

PREFIXES = ("", "test_", "auxiliary_")  # of a split's two arrays
ORDERS = ("chw", "hwc")
QUANTITY = "say regression = true in [data] options if they are quantities"
AS_THEY_ARE = "as they are"
CHANNELS = (1, 3)  # grey or colour


def load(
    root: str | None,
    classes: int | None,
    seed: int,
    statistics: Source | None = None,
    *,
    order: str | None = None,
    pixels: str | None = None,
    regression: bool = False,
) -> Dataset:
    """A data set from an .npz archive of plain arrays; nothing is unpickled.

    It holds inputs (n, c, h, w) in [0, 1] or (n, features) and targets (n,); optionally test_inputs, test_targets,
    auxiliary_inputs, auxiliary_targets. Without a test split, a tenth each is held out for test and auxiliary, by lot.

    A given test split may be of another time or place than the training rows, so its records are not comparable with
    them: a membership attack that takes its outsiders from it says nothing of single records and has no control. It is
    comparable where enough training records are left over for outsiders, with no client.

    A table with a test split of its own and fewer auxiliary rows than `dataset.ENOUGH` has no mean and std but those of
    its training rows, of which nothing can then be proven. No row is taken from training without being asked for:
    statistics = "auxiliary" holds out a tenth.

    Images may also be (n, h, w, c), which shows where the last axis is 1 or 3 long and the second is not, and grey ones
    of uint8 pixels (n, h, w). Images of uint8 are divided by 255, whatever they hold, as one record must not decide how
    all are read; pixels = "as they are" is for masks of 0 and 1. The description says under "read_as" what was changed.

    Args:
        root: the archive.
        classes: how many classes; None counts them from the whole targets that nobody trains on, as the size of the
            model is seen by everybody, and takes others as regression.
        seed: of which rows are held out.
        statistics: where mean and std come from, None for `make`'s order.
        order: "chw" or "hwc", for images whose shape does not show it; None reads it off the shape.
        pixels: "as they are" for images of uint8 that are not to be divided by 255.
        regression: for whole numbers stored as floats that are quantities, and no classes.

    Raises:
        ValueError: no such file, not an archive of plain arrays, arrays missing or not fitting, images of either order,
            classes that only training rows have.
    """
    if root is None:
        raise ValueError('npz needs the archive: root = "my.npz" with arrays inputs and targets')
    arrays = _read(root)
    given = [prefix for prefix in PREFIXES if _given(arrays, prefix, root)]
    if "" not in given:
        raise ValueError(f"{root!r} has no arrays inputs and targets (it has {', '.join(arrays) or 'none'})")
    read_as = _as_pixels(arrays, given, pixels) + _as_channels_first(arrays, given, root, order)
    splits = {prefix: _split(arrays, prefix) for prefix in given}
    train, test, auxiliary = splits.pop(""), splits.get("test_"), splits.get("auxiliary_")
    shuffled = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(seed))
    tenth = max(1, len(shuffled) // 10)
    by_lot = test is None
    if test is None:
        rows = shuffled[2 * tenth :], shuffled[:tenth], shuffled[tenth : 2 * tenth]
        train, test, spare = ((train[0][i], train[1][i]) for i in rows)
        auxiliary = auxiliary or spare
    elif auxiliary is None and statistics == "auxiliary":
        train, auxiliary = ((train[0][i], train[1][i]) for i in (shuffled[tenth:], shuffled[:tenth]))
    auxiliary = auxiliary or (train[0][:0], train[1][:0])
    if not regression and (classes is not None or _whole(test[1], auxiliary[1])):
        floats = any(targets.is_floating_point() for _, targets in (train, test, auxiliary))
        train, test, auxiliary = (_of_classes(split, root) for split in (train, test, auxiliary))
        read_as += [f"targets that are whole numbers taken as classes ({QUANTITY})"] * floats
    if regression:
        classes = 0
    if classes is None:
        classes = _classes(root, train[1], test[1], auxiliary[1])
    description: dict[str, Any] = {"source": Path(root).name, "seed": seed}
    if by_lot:
        description["test"] = DEALT_BY_LOT
    if read_as:
        description["read_as"] = "; ".join(read_as)
    return make("npz", train, test, auxiliary, classes, description)


def _whole(*held: Tensor) -> bool:
    """Whether the targets that nobody trains on are whole numbers from 0 on."""
    return all(bool(((targets >= 0) & (targets % 1 == 0)).all()) for targets in held)


def _of_classes(split: Records, root: str) -> Records:
    """With class numbers that were stored as floats. Raises ValueError for a target that is none."""
    inputs, targets = split
    if not _whole(targets):
        raise ValueError(f"{root!r} has targets that are no class numbers, as whole numbers from 0 on are; {QUANTITY}")
    return inputs, targets.long()


def _classes(root: str, train: Tensor, *held: Tensor) -> int:
    """How many classes the targets that nobody trains on show, 0 for regression. Raises ValueError if there are
    more.
    """
    if train.is_floating_point():
        return 0
    shown = max((int(targets.max()) + 1 for targets in held if len(targets)), default=0)
    if len(train) and int(train.max()) >= shown:
        raise ValueError(
            f"{root!r} has class numbers among the training targets that no test or auxiliary target has, and everybody"
            " sees how many classes a model has; say how many by classes in [data]"
        )
    return shown


def _read(root: str) -> dict[str, np.ndarray]:
    try:
        with Path(root).open("rb") as file:
            if file.read(2) not in (b"PK", b"\x93N"):  # else numpy takes it for a pickle, and advises to open it as one
                raise ValueError("it is no NumPy file")
            file.seek(0)
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise ValueError(f"there is no archive {root!r}") from None
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        if Path(root).suffix.lower() == ".csv":
            raise ValueError(f"{root!r} is a table; name = 'csv' in [data] reads it") from error
        raise ValueError(f"{root!r} is not an .npz of plain arrays ({error})") from error


def _given(arrays: dict[str, np.ndarray], prefix: str, root: str) -> bool:
    """Whether the archive has this split. Raises ValueError where its two arrays do not fit each other."""
    names = [prefix + "inputs", prefix + "targets"]
    if not set(names) & set(arrays):
        return False
    for name in names:
        if name not in arrays:
            raise ValueError(f"{root!r} has no array {name!r}; inputs and targets come in pairs")
        if arrays[name].dtype.kind not in "fiub":
            raise ValueError(f"{root!r}: {name} is of type {arrays[name].dtype}; numbers are needed")
    inputs, targets = (arrays[name].shape for name in names)
    if len(inputs) < 2:
        raise ValueError(f"{root!r}: {names[0]} has shape {inputs}; expected (n, features) or (n, c, h, w)")
    if targets != inputs[:1]:
        raise ValueError(
            f"{root!r}: {names[1]} has shape {targets}; expected ({inputs[0]},), one for each of the {names[0]}"
        )
    return True


def _as_pixels(arrays: dict[str, np.ndarray], given: list[str], pixels: str | None) -> list[str]:
    """Divides images of uint8 numbers by 255, unless asked not to, and gives grey ones a channel; in words what was
    done.
    """
    if pixels not in (None, AS_THEY_ARE):
        raise ValueError(f"pixels = {pixels!r} is no way to read pixels; known is {AS_THEY_ARE!r}")
    names = [prefix + "inputs" for prefix in given]
    names = [name for name in names if arrays[name].ndim in (3, 4) and arrays[name].dtype == np.uint8]
    grey = [name for name in names if arrays[name].ndim == 3]
    divided = names if pixels is None else []
    for name in divided:
        arrays[name] = np.divide(arrays[name], np.float32(255), dtype=np.float32)
    for name in grey:
        arrays[name] = arrays[name][:, None]
    return ["uint8 pixels divided by 255"] * bool(divided) + ["grey images given one channel"] * bool(grey)


def _as_channels_first(arrays: dict[str, np.ndarray], given: list[str], root: str, order: str | None) -> list[str]:
    """Turns images (n, h, w, c) into (n, c, h, w); in words what was done."""
    if order is not None and order not in ORDERS:
        raise ValueError(f"order = {order!r} is no order of an image's axes; known are {', '.join(ORDERS)}")
    shape = arrays["inputs"].shape
    if len(shape) != 4:
        if order is not None:
            raise ValueError(f"order = {order!r} is for images of four axes; {root!r} has inputs of shape {shape}")
        return []
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if order is None and not first and not last:
        raise ValueError(
            f"{root!r} has images of shape {shape[1:]}, in which neither the first nor the last axis has 1 or 3"
            ' channels; say their order by order = "chw" or "hwc" in [data] options'
        )
    if order is None and first and last and set(shape[1:]) != {1}:
        raise ValueError(
            f"{root!r} has images of shape {shape[1:]}, which can be channel-height-width or height-width-channel; say"
            ' which by order = "chw" or "hwc" in [data] options'
        )
    if not (order == "hwc" or (order is None and last and not first)):
        return []
    for prefix in given:
        images = arrays[prefix + "inputs"]
        if images.ndim == 4:
            arrays[prefix + "inputs"] = images.transpose(0, 3, 1, 2)
    return ["height-width-channel order turned to channel-height-width"]


def _split(arrays: dict[str, np.ndarray], prefix: str) -> Records:
    """A split's inputs as float32, targets as float64 or int64, of any width and byte order; takes them out of
    `arrays`, so that no second copy stays in memory.
    """
    inputs, targets = arrays.pop(prefix + "inputs"), arrays.pop(prefix + "targets")
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which `make` refuses
        x = np.ascontiguousarray(inputs, np.float32)
    return torch.from_numpy(x), torch.from_numpy(targets.astype(np.float64 if targets.dtype.kind == "f" else np.int64))
