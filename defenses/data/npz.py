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
from .pixels import axes_of, divided, pixel_notes, turned, whites

PREFIXES = ("", "test_", "auxiliary_")  # of a split's two arrays
QUANTITY = "say regression = true in [data] options if they are quantities"


def load(
    root: str | None,
    classes: int | None,
    seed: int,
    statistics: Source | None = None,
    *,
    order: str | None = None,
    pixels: str | float | None = None,
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
    (n, h, w). Those of 8 or 16 bits are divided by 255 or 65535, whatever they hold, as one record must not decide how
    all are read, and other numbers by 255 where most images go beyond 1. The description says under "read_as" what was
    changed.

    Args:
        root: the archive.
        classes: how many classes; None counts them from the whole targets that nobody trains on, as the size of the
            model is seen by everybody, and takes others as regression.
        seed: of which rows are held out.
        statistics: where mean and std come from, None for `make`'s order.
        order: "chw" or "hwc", for images whose shape does not show it; None reads it off the shape.
        pixels: what white is, where it is another number; "as they are" where pixels are not to be divided, as of masks
            of 0 and 1; "none" where records are no images, as time series (n, times, values).
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
    read_as = _as_images(arrays, given, root, order, pixels)
    labels = _numbered(arrays, given)
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
    if labels:
        shown = {labels[int(number)] for number in torch.cat([test[1], auxiliary[1]]).unique()}
        if set(labels) - shown:
            raise ValueError(
                f"{root!r} has a class that no test or auxiliary target has, and everybody sees which classes a model"
                " has; give class numbers, and how many there are by classes in [data]"
            )
        description["labels"] = labels
        read_as.append("targets that are words taken as classes in their order")
    if by_lot:
        description["test"] = DEALT_BY_LOT
    if read_as:
        description["read_as"] = "; ".join(read_as)
    return make("npz", train, test, auxiliary, classes, description)


def _numbered(arrays: dict[str, np.ndarray], given: list[str]) -> list[str]:
    """The classes of targets that are words, in their order, whose numbers go in their places; [] of others."""
    names = [prefix + "targets" for prefix in given]
    if not any(arrays[name].dtype.kind == "U" for name in names):
        return []
    labels = sorted({str(word) for name in names for word in arrays[name]})
    place = {word: number for number, word in enumerate(labels)}
    for name in names:
        arrays[name] = np.array([place[str(word)] for word in arrays[name]], dtype=np.int64)
    return labels


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
        if arrays[name].dtype.kind not in ("fiubU" if name.endswith("targets") else "fiub"):
            raise ValueError(f"{root!r}: {name} is of type {arrays[name].dtype}; numbers are needed")
    inputs, targets = (arrays[name].shape for name in names)
    if len(inputs) < 2:
        raise ValueError(f"{root!r}: {names[0]} has shape {inputs}; expected (n, features) or (n, c, h, w)")
    if targets != inputs[:1]:
        raise ValueError(
            f"{root!r}: {names[1]} has shape {targets}; expected ({inputs[0]},), one for each of the {names[0]}"
        )
    return True


def _as_images(
    arrays: dict[str, np.ndarray], given: list[str], root: str, order: str | None, pixels: str | float | None
) -> list[str]:
    """Gives images their channels in front and pixels from 0 to 1; in words what was done."""
    names, notes = [prefix + "inputs" for prefix in given], dict[str, None]()
    shape = arrays["inputs"].shape[1:]
    try:
        white = whites([arrays[name] for name in names], pixels) if len(shape) in (2, 3) else None
        axes = axes_of(shape, order, white is not None)
    except ValueError as error:
        raise ValueError(f"{root!r}: {error} in [data] options") from None
    if white is None and len(shape) == 2:
        return [f"records of shape {shape} as they are, as their numbers are no pixels"]
    for name, one in zip(names, white or [1.0] * len(names)):
        kind, array = arrays[name].dtype, divided(arrays[name], one)
        notes |= dict.fromkeys(pixel_notes(axes, one, kind))
        arrays[name] = turned(array, axes) if array.ndim == len(shape) + 1 else array
    return list(notes)


def _split(arrays: dict[str, np.ndarray], prefix: str) -> Records:
    """A split's inputs as float32, targets as float64 or int64, of any width and byte order; takes them out of
    `arrays`, so that no second copy stays in memory.
    """
    inputs, targets = arrays.pop(prefix + "inputs"), arrays.pop(prefix + "targets")
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which `make` refuses
        x = np.ascontiguousarray(inputs, np.float32)
    return torch.from_numpy(x), torch.from_numpy(targets.astype(np.float64 if targets.dtype.kind == "f" else np.int64))
