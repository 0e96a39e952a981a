"""The user's own arrays: a NumPy archive with `inputs` and `targets`."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .dataset import Dataset, Split, make


def load(root: str | None, classes: int | None, seed: int) -> Dataset:
    """An .npz with inputs (n, c, h, w) in [0, 1] or (n, features) and targets (n,); optionally test_inputs,
    test_targets, auxiliary_inputs, auxiliary_targets. Without a test split, a tenth each is held out for test and
    auxiliary. Nothing is unpickled.

    classes: how many classes; None counts them from integer targets, and takes real targets as regression.

    Raises:
        ValueError: no such file, not an archive of plain arrays, arrays missing or not fitting.
    """
    if root is None:
        raise ValueError('npz needs the archive: root = "my.npz" with arrays inputs and targets')
    path = Path(root)
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise ValueError(f"there is no archive {root!r}") from None
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{root!r} is not an .npz of plain arrays ({error})") from error
    train = _split(arrays, "", root)
    if train is None:
        raise ValueError(f"{root!r} has no arrays inputs and targets (it has {', '.join(arrays) or 'none'})")
    test, auxiliary = _split(arrays, "test_", root), _split(arrays, "auxiliary_", root)
    if test is None:
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(seed))
        tenth = max(1, len(order) // 10)
        parts = [(train[0][i], train[1][i]) for i in (order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth])]
        train, test, auxiliary = parts[0], parts[1], auxiliary or parts[2]
    auxiliary = auxiliary or (train[0][:0], train[1][:0])
    if classes is None:
        classes = 0 if train[1].is_floating_point() else int(max(t.max() for t in (train[1], test[1]) if len(t))) + 1
    return make("npz", train, test, auxiliary, classes, {"source": path.name, "seed": seed})


def _split(arrays: dict[str, np.ndarray], prefix: str, root: str) -> Split | None:
    names = [prefix + "inputs", prefix + "targets"]
    if not set(names) & set(arrays):
        return None
    found: list[Tensor] = []
    for name in names:
        if name not in arrays:
            raise ValueError(f"{root!r} has no array {name!r}; inputs and targets come in pairs")
        if arrays[name].dtype.kind not in "fiub":
            raise ValueError(f"{root!r}: {name} is of type {arrays[name].dtype}; numbers are needed")
        kind = arrays[name].dtype.kind
        found.append(
            torch.from_numpy(arrays[name].astype(np.float64 if kind == "f" else np.int64))
        )  # any width and byte order
    if found[0].ndim < 2:
        raise ValueError(
            f"{root!r}: {names[0]} has shape {tuple(found[0].shape)}; expected (n, features) or (n, c, h, w)"
        )
    if found[1].shape != found[0].shape[:1]:
        raise ValueError(
            f"{root!r}: {names[1]} has shape {tuple(found[1].shape)}; expected ({len(found[0])},), one for each of the"
            f" {names[0]}"
        )
    return found[0], found[1]
