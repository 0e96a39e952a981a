"""`photos`: real 32×32 colour patches without any download, cut from photographs inside scikit-image and scikit-learn.

A photograph is cut into parallel strips, for training, for testing and for the attacker (auxiliary) in turn, 32 pixels
apart:

    │ train │ guard │ test │ guard │ auxiliary │ guard │ train │ guard │ test │ guard │ auxiliary │

A class is a region: the whole photograph, or where more classes are wanted a piece of it, cut across its strips. Every
patch lies in one strip, so no pixel is shared between splits, within a class or between classes, and patches of
different splits are at least 32 pixels apart. Within a strip patches lie on a grid whose stride is the largest of 32 …
8 pixels at which enough of them fit; the description records how much they overlap.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ..randomness import generator
from .dataset import Dataset, Records, make

PATCH = 32  # side of a patch and width of a guard, in pixels
STRIDES = range(PATCH, 7, -1)  # the largest that fits is used: the less overlap the better
FLOOR = 0.03  # a patch whose pixels have a smaller standard deviation shows nothing and is never used
SPLITS = ("train", "test", "auxiliary")
SHARES = (2, 1, 1)  # how the splits share the room beyond the least width of a strip

# Colour photographs that every wheel contains, one class each before any is cut up. Left out: motorcycle_right, the
# same scene as motorcycle_left.
PHOTOS = (
    ("skimage", "data/astronaut.png", "NASA, public domain"),
    ("skimage", "data/coffee.png", "Rachel Michetti, CC0"),
    ("skimage", "data/motorcycle_left.png", "Middlebury stereo data 2014 (Scharstein et al.)"),
    ("sklearn", "datasets/images/china.jpg", "danielbuechele, CC BY 2.0"),
    ("sklearn", "datasets/images/flower.jpg", "vultilion, CC BY 2.0"),
    ("skimage", "data/chelsea.png", "Stefan van der Walt, CC0"),
    ("skimage", "data/rocket.jpg", "SpaceX, CC0"),
    ("skimage", "data/ihc.png", "Institut Necker, no known restrictions"),
    ("skimage", "data/hubble_deep_field.jpg", "NASA, public domain"),
    ("skimage", "data/retina.jpg", "Mikael Häggström, CC0"),
)

Box = tuple[int, int, int, int]  # top, left, bottom, right, in pixels of the photograph
# The columns (or rows, if the strips lie) of a train, a test and an auxiliary strip.
Triple = tuple[tuple[int, int], ...]
Triples = tuple[Triple, ...]


@dataclass(frozen=True)
class Region:
    """One class: a photograph's number and the strips of each split (train, test, auxiliary)."""

    photo: int
    strips: tuple[tuple[Box, ...], ...]


def load(
    *,
    classes: int = 10,
    samples: int | None = None,
    spare: int = 0,
    pool: int = 0,
    seed: int = 0,
    test_samples: int | None = None,
    auxiliary_samples: int | None = None,
) -> Dataset:
    """`samples` training patches of `classes` regions, equally many of each as far as possible, in a seeded order.

    `extra` holds "train", "test" and "auxiliary": photograph, top and left (n, 3) of each patch.

    Args:
        classes: 2 … as many regions as fit. Up to 10 a class is a photograph; more classes mean smaller regions.
        samples: None takes as many of each class as fit without overlap. spare: so many more, or as many as fit.
        pool: so many training patches of each class more, or as many as fit at the stride of the others.
        seed: of the places and the order.
        test_samples, auxiliary_samples: None takes as many as `samples` but at least ten a class, or all that fit.

    Raises:
        ValueError: more classes or samples than fit; the sentence says the capacity.
    """
    if classes < 2:
        raise ValueError(f"photos: classes = {classes} was asked for; at least 2 are needed")
    regions = layout(classes)
    room = capacity(classes)
    if samples is None:
        samples = max(classes, classes * min(len(_places(region, 0, PATCH)) for region in regions))
    wanted = {
        "train": max(samples, min(samples + spare, room["train"])),
        "test": min(max(samples, 10 * classes), room["test"]) if test_samples is None else test_samples,
        "auxiliary": (
            min(max(samples, 10 * classes), room["auxiliary"]) if auxiliary_samples is None else auxiliary_samples
        ),
    }
    parts: dict[str, Records] = {}
    places: dict[str, Tensor] = {}
    strides: dict[str, int] = {}
    for split, n in wanted.items():
        if not 1 <= n <= room[split]:
            raise ValueError(
                f"photos: {n} {split} samples of {classes} classes were asked for; between 1 and {room[split]} fit"
            )
        counts = [n // classes + (c < n % classes) for c in range(classes)]
        strides[split], grids = next(_fitting(regions, SPLITS.index(split), counts))
        if split == "train":
            more = min(pool, *(len(grid) - k for grid, k in zip(grids, counts)))
            counts = [k + more for k in counts]
        parts[split], places[split] = _draw(grids, counts, seed, split)
    description: dict[str, Any] = {
        "source": "patches of photographs distributed with scikit-image and scikit-learn",
        "licence": {path: note for _, path, note in PHOTOS},
        "patch": PATCH,
        "guard": PATCH,
        "regions": [region.photo for region in regions],
        "stride": strides,
        "overlap": {split: overlap(places[split]) for split in SPLITS},
        "capacity": room,
        "seed": seed,
    }
    return make("photos", parts["train"], parts["test"], parts["auxiliary"], classes, description, extra=places)


def _fitting(regions: tuple[Region, ...], split: int, counts: list[int]) -> Iterator[tuple[int, list[Tensor]]]:
    """Strides at which every class has enough patches, with each region's grid, largest stride first."""
    for stride in STRIDES:
        grids = [_places(region, split, stride) for region in regions]
        if all(k <= len(grid) for k, grid in zip(counts, grids)):
            yield stride, grids


def capacity(classes: int) -> dict[str, int]:
    """How many patches of each split fit with the classes balanced, at the smallest stride.

    Raises:
        ValueError: more classes than fit.
    """
    room = {}
    for number, split in enumerate(SPLITS):
        sizes = [len(_places(region, number, STRIDES[-1])) for region in layout(classes)]
        least = min(sizes)
        room[split] = least * classes + next(c for c, size in enumerate([*sizes, least]) if size == least)
    return room


def overlap(places: Tensor) -> dict[str, float | int]:
    """How much the patches at `places` (n, 3) overlap.

    The share of a patch's pixels that lie in another patch too, on average over patches; the same for the one other
    patch that shares most with it; and how many patches share any pixel.

    >>> overlap(torch.tensor([[0, 0, 0], [0, 0, 16], [1, 0, 0]]))     # two patches out of three share a half
    {'shared_pixels': 0.3333, 'shared_with_nearest': 0.3333, 'patches': 2}
    """
    counts = [np.zeros(photo.shape[:2], dtype=np.int32) for photo in photographs()]
    windows = [(photo, slice(top, top + PATCH), slice(left, left + PATCH)) for photo, top, left in places.tolist()]
    for photo, rows, columns in windows:
        counts[photo][rows, columns] += 1
    shared = [float((counts[photo][rows, columns] > 1).mean()) for photo, rows, columns in windows]
    nearest = torch.zeros(len(places))
    for photo in places[:, 0].unique():
        mine = places[:, 0] == photo
        corners = places[mine, 1:]
        common = (PATCH - (corners[:, None] - corners[None]).abs()).clamp(min=0).prod(-1).fill_diagonal_(0)
        nearest[mine] = common.max(1).values / PATCH**2
    return {
        "shared_pixels": round(float(np.mean(shared)), 4),
        "shared_with_nearest": round(float(nearest.mean()), 4),
        "patches": sum(s > 0 for s in shared),
    }


@functools.cache
def photographs() -> tuple[NDArray[np.uint8], ...]:
    """The photographs, each (height, width, 3).

    Raises:
        ValueError: the installed scikit-image or scikit-learn lacks one.
    """
    images = []
    for package, path, _ in PHOTOS:
        file = importlib.resources.files(package).joinpath(*path.split("/"))
        if not file.is_file():
            raise ValueError(f"photos: the installed {package} lacks {path}; reinstall it from its wheel")
        with file.open("rb") as stream:
            images.append(np.asarray(Image.open(stream).convert("RGB")))
    return tuple(images)


@functools.cache
def layout(classes: int) -> tuple[Region, ...]:
    """The regions of `classes` classes: each photograph once, then again and again the one whose pieces stay largest; a
    photograph with 1.5 times its even share of the classes waits for the others, so that one large photograph does not
    make up the data set.

    Raises:
        ValueError: more classes than there are regions with usable patches in every split.
    """
    pieces = [0] * len(PHOTOS)
    for done in range(classes):
        room = [_room(_regions(photo, k + 1)) for photo, k in enumerate(pieces)]
        if max(room) == 0:
            raise ValueError(f"photos: {classes} classes were asked for; at most {done} regions fit")
        share = 1 if done < len(PHOTOS) else 1.5 * classes / len(PHOTOS)
        pieces[
            max(range(len(PHOTOS)), key=lambda p: (room[p] > 0, pieces[p] < share, room[p] if share > 1 else -p))
        ] += 1
    return tuple(region for photo, k in enumerate(pieces) if k for region in _regions(photo, k))


def _room(regions: tuple[Region, ...]) -> float:
    """Patches of the poorest region in its poorest split, each split counted by its share."""
    counts = (
        sum(map(np.count_nonzero, _usable(region, split, STRIDES[-1])))
        for region in regions
        for split in range(len(SPLITS))
    )
    return min(count / share for count, share in zip(counts, itertools.cycle(SHARES)))


@functools.cache
def _regions(photo: int, pieces: int) -> tuple[Region, ...]:
    """The photograph cut into `pieces` regions of about equally many usable patches.

    Many narrow strips make the splits alike (a classifier trained on one should work on another), few wide ones hold
    more patches: taken is the largest number of triples that keeps half of the patches.
    """
    choices = [(_cut(photo, lying, triples, pieces), len(triples)) for lying, triples in _strips(photo)]
    rooms = [_room(regions) for regions, _ in choices]
    enough = max(rooms) / 2
    return max(zip(rooms, choices), key=lambda c: (c[0] >= enough, c[1][1], c[0]))[1][0]


def _strips(photo: int) -> list[tuple[bool, Triples]]:
    """Ways to cut a photograph: whether its strips lie, and where across the photograph each triple's three are."""
    rows, columns = photographs()[photo].shape[:2]
    least = len(SPLITS) * 2 * PATCH  # three strips of least width, and their guards
    ways = []
    for lying, across in ((False, columns), (True, rows)):
        for number in range(1, (across + PATCH) // least + 1):
            spare = (across + PATCH - number * least) // number
            widths = [PATCH + spare * share // sum(SHARES) for share in SHARES] * number
            starts = np.cumsum([0] + [width + PATCH for width in widths]).tolist()
            spans = [(start, start + width) for start, width in zip(starts, widths)]
            ways.append((lying, tuple(tuple(spans[k : k + 3]) for k in range(0, len(spans), 3))))
    return ways


def _cut(photo: int, lying: bool, triples: Triples, pieces: int) -> tuple[Region, ...]:
    length = photographs()[photo].shape[1 if lying else 0]
    # Down the first triple of strips, up the second, and so on: pieces of this path are connected regions.
    path = np.concatenate([_usable_rows(photo, lying, t, length)[:: 1 - k % 2 * 2] for k, t in enumerate(triples)])
    passed = path.cumsum()
    cuts = [0, *np.searchsorted(passed, passed[-1] * np.arange(1, pieces) / pieces).tolist(), len(path)]
    regions = []
    for start, end in itertools.pairwise(cuts):
        strips: tuple[list[Box], ...] = ([], [], [])
        for k in range(start // length, (end - 1) // length + 1):
            first, last = max(start - k * length, 0), min(end - k * length, length)
            top, bottom = (first, last) if k % 2 == 0 else (length - last, length - first)
            for mine, (low, high) in zip(strips, triples[k]):
                mine.append((low, top, high, bottom) if lying else (top, low, bottom, high))
        regions.append(Region(photo, tuple(map(tuple, strips))))
    return tuple(regions)


@functools.cache  # the same for every number of pieces
def _usable_rows(photo: int, lying: bool, triple: Triple, length: int) -> NDArray[np.float64]:
    """How many usable patches begin in each row (length,), in the split that has fewest for its share."""
    contrast = _contrast(photo).T if lying else _contrast(photo)
    usable = np.pad(contrast >= FLOOR, ((0, length - len(contrast)), (0, 0)))
    counts = [usable[:, low : high - PATCH + 1].sum(1) / share for (low, high), share in zip(triple, SHARES)]
    return np.min(counts, axis=0) + 1e-9  # never all zero, so that a path can always be cut


@functools.cache
def _contrast(photo: int) -> NDArray[np.float64]:
    """Standard deviation of the pixels (root mean over channels) of the patch at each top left corner: (rows, cols)."""
    image = photographs()[photo].astype(np.float64) / 255

    def box_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        c = np.pad(values.cumsum(0).cumsum(1), ((1, 0), (1, 0), (0, 0)))
        return (c[PATCH:, PATCH:] - c[:-PATCH, PATCH:] - c[PATCH:, :-PATCH] + c[:-PATCH, :-PATCH]) / PATCH**2

    return np.sqrt(np.maximum((box_mean(image**2) - box_mean(image) ** 2).mean(2), 0))


@functools.cache
def _places(region: Region, split: int, stride: int) -> Tensor:
    """Photograph, top and left (k, 3) of the usable patches on the grid of one split's strips."""
    corners = [
        torch.from_numpy(np.argwhere(usable)) * stride + torch.tensor([top, left])
        for usable, (top, left, _, _) in zip(_usable(region, split, stride), region.strips[split])
    ]
    places = torch.cat(corners)
    return torch.cat([torch.full((len(places), 1), region.photo), places], dim=1)


def _usable(region: Region, split: int, stride: int) -> list[NDArray[np.bool_]]:
    """Which patches on the grid of each strip of one split show enough: (rows, columns) each."""
    contrast = _contrast(region.photo)
    ends = (
        (top, left, max(0, bottom - PATCH + 1), max(0, right - PATCH + 1))
        for top, left, bottom, right in region.strips[split]
    )
    return [contrast[top:bottom:stride, left:right:stride] >= FLOOR for top, left, bottom, right in ends]


def _draw(grids: list[Tensor], counts: list[int], seed: int, split: str) -> tuple[Records, Tensor]:
    """`counts[c]` patches of class c at random places of its grid, in random order: (inputs, targets) and places."""
    rng = generator(seed, "photos", split)
    chosen = torch.cat([grid[torch.randperm(len(grid), generator=rng)[:k]] for grid, k in zip(grids, counts)])
    targets = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    order = torch.randperm(len(targets), generator=rng)
    return (cut(chosen[order]), targets[order]), chosen[order]


def cut(places: Tensor) -> Tensor:
    """The patches (n, 3, 32, 32) in [0, 1] at `places` (n, 3): photograph, top, left."""
    patches = [photographs()[p][top : top + PATCH, left : left + PATCH] for p, top, left in places.tolist()]
    return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).to(torch.float32) / 255
