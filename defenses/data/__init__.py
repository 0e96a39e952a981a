"""Data sets by name: one small file a family, one line in this list each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from typing import Any

from ..nearest import instead
from . import csv_table, femnist, images, notes, npz, photos, sklearn_sets, tabular, text, torchvision_sets
from .dataset import SOURCES, Dataset, Source, standardised

NAMES: dict[str, str] = {
    "photos": "32×32 colour patches of photographs bundled with scikit-image and scikit-learn; label = region",
    "digits": "8×8 handwritten digits, in scikit-learn",
    "breast_cancer": "30 features of cell nuclei, 2 classes, in scikit-learn",
    "mnist": "28×28 handwritten digits, from a root folder",
    "fashion_mnist": "28×28 grey pictures of clothes, from a root folder",
    "cifar10": "32×32 colour photographs, 10 classes, from a root folder",
    "cifar100": "32×32 colour photographs, 100 classes, from a root folder",
    "femnist": "28×28 handwritten characters by writer, 62 classes, from a root folder",
    "adult": "census income, 2 classes, from a root folder",
    "lending_club": "interest rates of loans by regression, from a root folder",
    "images": 'your own pictures: root = "folder" with a folder for every class; options = { size = 64 }',
    "notes": "invented notes of a surgery with names, dates and numbers, 4 classes, bundled",
    "text": 'your own texts: root = "my.csv" (tsv, jsonl) with the columns text and target, and a tokenizer.json',
    "npz": 'your own arrays: root = "my.npz" with inputs and targets',
    "csv": 'your own table: root = "my.csv", target = "outcome", a column of its header',
}


BUNDLED = ("photos", "digits", "breast_cancer", "notes")  # in packages that are installed anyway


def load(
    name: str,
    *,
    root: str | None = None,
    target: str | None = None,
    classes: int | None = None,
    samples: int | None = None,
    spare: int = 0,
    pool: int = 0,
    download: bool = False,
    seed: int = 0,
    statistics: Source | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **options: Any,
) -> Dataset:
    """The data set `name`.

    Args:
        name: in `NAMES`. root: folder (or .npz, .csv) of the sets that are not `BUNDLED`. target: column of a csv.
        classes: for `photos` (regions) and `npz`; elsewhere the set decides.
        samples: for `photos`, how many training patches to cut. spare: how many more, if they fit.
        pool: how many more of each class, if they fit beside the others.
        download: fetch the set into `root` if torchvision can. seed: of what is drawn, such as splits.
        statistics: where mean and std, and a table's encoding, come from; None for the set's own order (`make`).
        mean, std: one number a channel or feature each, instead of `statistics`.
        options: further ones, of the set.

    Raises:
        ValueError: one sentence: unknown name or option, files missing or damaged, more asked for than there is.
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}{instead(name, NAMES)}")
    if statistics is not None and statistics not in SOURCES:
        raise ValueError(f"statistics = {statistics!r}: one of {', '.join(SOURCES)}")
    if target is not None and name not in ("csv", "text"):
        raise ValueError(f"target = {target!r} is a column of a csv table; {name} has its own targets")
    if root is not None and name in BUNDLED:
        raise ValueError(f"root = {root!r}: {name} is bundled and reads no folder; leave the key out")
    read = partial(_read, name, options)
    match name:
        case "photos":
            data = read(
                photos.load,
                classes=10 if classes is None else classes,
                samples=samples,
                spare=spare,
                pool=pool,
                seed=seed,
            )
        case "digits":
            data = read(sklearn_sets.digits, seed=seed)
        case "breast_cancer":
            data = read(sklearn_sets.breast_cancer, seed=seed)
        case "images":
            data = read(images.load, root=root, seed=seed)
        case "notes":
            data = read(notes.load, seed=seed)
        case "text":
            data = read(text.load, root=root, target=target, seed=seed)
        case "npz":
            data = read(npz.load, root=root, classes=classes, seed=seed, statistics=statistics)
        case "csv":
            data = read(csv_table.load, root=root, target=target, seed=seed, statistics=statistics)
        case "adult":
            data = read(tabular.adult, root=root, seed=seed, statistics=statistics)
        case "lending_club":
            data = read(tabular.lending_club, root=root, seed=seed, statistics=statistics)
        case "femnist":
            data = read(femnist.load, root=root, seed=seed)
        case _:
            data = read(torchvision_sets.load, name=name, root=root, download=download, seed=seed)
    if classes is not None and classes != data.classes:
        raise ValueError(
            f"classes = {classes}: {name} has {data.classes} classes; leave the key out (--set data.classes=)"
        )
    return standardised(data, statistics, mean, std)


def _read(name: str, options: Mapping[str, Any], loader: Callable[..., Dataset], /, **given: Any) -> Dataset:
    """What `loader` reads. An option must be a parameter of it that is not given already; one that takes others looks
    at them itself.
    """
    known = signature(loader).parameters
    any_other = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    unknown = [option for option in options if option in given or not (any_other or option in known)]
    if unknown:
        raise ValueError(f"{name} does not know the option {', '.join(unknown)}")
    return loader(**given, **options)


__all__ = ["NAMES", "Dataset", "load"]
