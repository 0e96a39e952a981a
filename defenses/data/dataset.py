"""What every loader returns: training, test and auxiliary records as plain tensors, with facts about them.

The mean and std in front of a model go to everybody who gets the model, so whatever they are computed from is released
without noise. They come from a config, from published values or from the auxiliary split; from training rows only where
somebody asked for it or nothing else is there, and then the ledger holds that release (`Federation.disclosed`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

Source = Literal["config", "published", "auxiliary", "none", "training"]
SOURCES: tuple[Source, ...] = get_args(Source)
ENOUGH = 10  # auxiliary records that define a mean and a std unless somebody says otherwise
OWN_TABLE = "csv"  # the name of a table whose columns all of its rows decide

Moments = tuple[Sequence[float], Sequence[float]]  # mean and std, a number each for every channel or feature
PIXELS = (0.5, 0.25)  # mean and std of no images in particular: all that [0, 1] says


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples of one data set. The three splits are disjoint.

    inputs (n, *shape) float32: images (c, h, w) in [0, 1], not normalised (the model's first layer does that), or rows
    of features; of text (n, length) int64 (`vocabulary.PAD`), without mean and std.
    targets (n,): int64 class numbers 0 … classes-1, or float32 for regression (classes = 0).
    test_inputs, test_targets: for measuring accuracy. auxiliary_inputs, auxiliary_targets: for the attacker; data of
      the same kind that nobody trains or tests on; may be empty.
    mean, std: per channel (images) or per feature (tables): the constants of the model's first layer.
    groups (n,): who wrote each training record, for the partition "writer"; None where the set has no writers.
    group_names: of the groups, by number; of somebody's own table alone.
    test_groups (m,): who wrote each test record, where a lot dealt every writer's records to the splits; else None.
    description: JSON-able facts: source, licence, SHA-256 of the inputs, overlap.
    extra: further tensors by name, e.g. where each patch of a photograph comes from.
    statistics_of: what mean, std and whatever else the features went through come from: the config; values that are
      published of the set, or of pixels; the auxiliary split; nothing (0 and 1); or the training rows, which releases
      something of every one of them.
    remarks: what else its owner should know of how it was read, and nobody else.
    """

    name: str
    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    auxiliary_inputs: Tensor
    auxiliary_targets: Tensor
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    description: dict[str, Any]
    groups: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    statistics_of: Source = "training"
    remarks: tuple[str, ...] = ()
    test_groups: Tensor | None = None
    group_names: tuple[str, ...] = ()

    @property
    def holders(self) -> tuple[Tensor, Tensor] | None:
        """Who holds each training and each test record, where a lot dealt every holder's records to both."""
        return None if self.groups is None or self.test_groups is None else (self.groups, self.test_groups)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(c, h, w) of an image, (features,) of a row."""
        return tuple(self.inputs.shape[1:])

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(length,) of next words, () of one target a record."""
        return tuple(self.targets.shape[1:])


# What "test" says in the description where test and training records traded places by lot, and where they are published
# as two parts of one set. Of another test split nothing is known: it may be of a later month, or of other places.
DEALT_BY_LOT = "dealt by lot"
OF_ONE_SET = "published as a part of one set"

Records = tuple[Tensor, Tensor]  # inputs (n, *shape), targets (n,)

CHUNK_NUMBERS = 2**22  # of the inputs are looked at together in float64 (32 MB)


def make(
    name: str,
    train: Records,
    test: Records,
    auxiliary: Records,
    classes: int,
    description: Mapping[str, Any],
    groups: Tensor | None = None,
    extra: Mapping[str, Tensor] | None = None,
    published: Moments | None = None,
) -> Dataset:
    """A checked `Dataset`, with its mean and std and with digests added.

    The mean and std are the published ones; else those of an auxiliary split of at least `ENOUGH` records; else those
    of pixels in [0, 1], for images; else those of the training rows.

    Args:
        name: of the data set, for messages. train, test, auxiliary: (inputs, targets) of each split; train may not be
            empty.
        classes: number of labels, 0 for regression.
        description: facts about the set; the digest and the splits' sizes join them.
        groups: (n,), who wrote each training record. extra: further tensors by name.
        published: the set's own mean and std, where they are known to everybody.

    Raises:
        ValueError: a value is not finite, an image lies outside [0, 1], a target is no class number, or shapes
            disagree.
    """
    kind = torch.float32 if classes == 0 else torch.int64
    splits = {}
    for split, (inputs, targets) in {"training": train, "test": test, "auxiliary": auxiliary}.items():
        x, y = inputs.to(torch.float32).contiguous(), targets.to(kind).contiguous()
        if classes and targets.is_floating_point() and not torch.equal(y.to(targets.dtype), targets):
            raise ValueError(
                f"the {split} split of {name} has targets that are no whole numbers; class numbers are 0 to"
                f" {classes - 1}"
            )
        _check(f"{split} split of {name}", x, y, train[0].shape[1:], classes)
        splits[split] = (x, y)
    x, y = splits["training"]
    if len(x) == 0:
        raise ValueError(f"the training split of {name} is empty; at least one record is needed")
    # NumPy asks for huge pages: rows taken here and there come 5 % faster.
    x = torch.from_numpy(np.empty(tuple(x.shape), np.float32)).copy_(x)
    facts = {
        **description,
        "sha256": digest(x, y),
        "test_sha256": digest(*splits["test"]),
        "auxiliary_sha256": digest(*splits["auxiliary"]),
        "sizes": {split: len(inputs) for split, (inputs, _) in splits.items()},
    }
    data = Dataset(name, x, y, *splits["test"], *splits["auxiliary"], classes, (), (), facts, groups, extra or {})
    if published is not None:
        return _having(data, "published", *published)
    if len(data.auxiliary_inputs) >= ENOUGH:
        return standardised(data, "auxiliary")
    return standardised(data, "published" if x.ndim == 4 else "training")


def standardised(
    data: Dataset, source: Source | None = None, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Dataset:
    """`data` with the mean and std that somebody asks for.

    Args:
        data: with those it has by itself.
        source: where they are to come from; None leaves them as they are. mean, std: given ones, with source None.

    Raises:
        ValueError: mean without std or with a source, the wrong number of numbers, or a source that the set does not
            have.
    """
    if data.inputs.dtype == torch.int64 and not (source is mean is std is None):
        raise ValueError(f"{data.name} is text, which has no mean and no std; leave out mean, std and statistics")
    if mean is not None or std is not None:
        if mean is None or std is None or source not in (None, "config"):
            raise ValueError("mean and std are given together, and then without statistics")
        channels = data.input_shape[0]
        if not len(mean) == len(std) == channels or not all(isfinite(m) for m in mean) or not all(s > 0 for s in std):
            raise ValueError(
                f"mean = {list(mean)}, std = {list(std)}: {data.name} needs {channels} finite numbers each, one a"
                f" {'channel' if data.inputs.ndim == 4 else 'feature'}, every std above 0"
            )
        return _having(data, "config", mean, std)
    match source:
        case None:
            return data
        case "training":
            return _having(data, source, *statistics(data.inputs))
        case "auxiliary" if len(data.auxiliary_inputs) > 1:
            return _having(data, source, *statistics(data.auxiliary_inputs))
        case "published" if data.statistics_of == "published":
            return data
        case "published" if data.inputs.ndim == 4:
            return _having(data, source, *([number] * data.input_shape[0] for number in PIXELS))
        case "none":
            return _having(data, source, *([number] * data.input_shape[0] for number in (0.0, 1.0)))
    missing = {
        "auxiliary": f"{data.name} has {len(data.auxiliary_inputs)} auxiliary records, and two are the least",
        "published": f"nothing is published of {data.name}",
    }
    raise ValueError(f'statistics = "{source}": {missing.get(source, "give the numbers as mean and std")}')


def _having(data: Dataset, source: Source, mean: Sequence[float], std: Sequence[float]) -> Dataset:
    """`data` with these constants; its description says where they are from."""
    facts = {**data.description, "statistics_of": source}
    return replace(data, mean=tuple(mean), std=tuple(std), statistics_of=source, description=facts)


def _check(what: str, inputs: Tensor, targets: Tensor, shape: torch.Size, classes: int) -> None:
    if inputs.shape[1:] != shape or targets.shape != inputs.shape[:1]:
        raise ValueError(
            f"the {what} has inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)}; expected (n,"
            f" {str(tuple(shape))[1:-1]}) and (n,)"
        )
    # NaN if any value is; isfinite() would make a copy
    low, high = (value.item() for value in inputs.aminmax()) if inputs.numel() else (0.0, 0.0)
    if not (isfinite(low) and isfinite(high) and torch.isfinite(targets).all()):
        raise ValueError(f"the {what} holds NaN or infinite values; every value must be finite")
    if inputs.ndim == 4 and (low < 0 or high > 1):
        raise ValueError(f"the {what} has pixels from {low:.4g} to {high:.4g}; images must lie in [0, 1]")
    if classes and len(targets) and (targets.min() < 0 or targets.max() >= classes):
        expected = "they begin at 0" if targets.min() < 0 else f"expected 0 to {classes - 1}"
        raise ValueError(f"the {what} has class numbers from {targets.min()} to {targets.max()}; {expected}")


def statistics(inputs: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of images (n, c, h, w), or per feature of rows (n, features).

    A constant channel or feature gets the standard deviation 1, so that (x - mean)/std is defined.

    >>> statistics(torch.tensor([[0.0, 5.0], [2.0, 5.0]]))
    ((1.0, 5.0), (1.0, 1.0))
    """
    axes = [d for d in range(inputs.ndim) if d != 1]
    rows = max(1, min(len(inputs), CHUNK_NUMBERS // max(1, inputs[:1].numel())))
    piece = torch.empty(rows, *inputs.shape[1:], dtype=torch.float64)
    count = len(inputs) * prod(inputs.shape[2:])

    def total(of: Callable[[Tensor], Tensor]) -> Tensor:
        """By channel or feature; in float64, a piece at a time, so that no float64 copy of everything is needed."""
        sums = [of(piece[: len(part)].copy_(part)).sum(axes) for part in inputs.split(rows)]
        return torch.stack(sums).sum(0)

    mean = total(lambda x: x) / count
    centre = mean.reshape(1, -1, *[1] * (inputs.ndim - 2))
    std = (total(lambda x: x.sub_(centre).square_()) / count).sqrt()
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def digest(*tensors: Tensor) -> str:
    """SHA-256 over the shapes, types and bytes of `tensors`, in hexadecimal."""
    h = hashlib.sha256()
    for tensor in tensors:
        array = tensor.contiguous().numpy()
        h.update(repr((array.shape, array.dtype.str)).encode())
        h.update(array.data)
    return h.hexdigest()
