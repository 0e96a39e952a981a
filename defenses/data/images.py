"""A folder of pictures, with a folder for every class: PNG, JPEG and other files that Pillow reads, and DICOM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn.functional import interpolate

from .dataset import DEALT_BY_LOT, Dataset, make

DICOM = ".dcm"
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", DICOM)
SPLITS = ("train", "test")  # folders that hold the classes, where both are there
LONGEST = 4_096  # pixels a side: more would be a mistake for pictures that a network trains on
Labelled = tuple[Path, int]


def load(root: str | None, seed: int, *, size: int | None = None, channels: int | None = None) -> Dataset:
    """Pictures by class: `root/CLASS/*.png`, or `root/train/CLASS/…` and `root/test/CLASS/…`.

    The names of the folders are the classes, in alphabetical order; they are public, as an empty one is a class too.
    Without a test folder a tenth each is held out for test and auxiliary, by lot; with one, a tenth of the training
    pictures is auxiliary. Values of 8 bits are divided by 255, of 16 bits by 65,535. Pictures are turned as their EXIF
    says. No training picture decides how others are read: the size and the number of channels are those of the pictures
    held out, or as given.

    Args:
        root: the folder. seed: of which pictures are held out.
        size: pixels a side; the shorter side is scaled to it and the middle is cut out. None: the pictures held out are
            of one height and width, and others are made so.
        channels: 1 for grey, 3 for colour; None: 3 where a picture held out has colour.

    Raises:
        ValueError: one sentence that names the folder or the file: no folder, no classes, no pictures, a damaged file,
            pictures of several sizes, DICOM without pydicom.
    """
    if root is None:
        raise ValueError('images needs a folder with a folder for every class: root = "my-pictures"')
    if size is not None and (not isinstance(size, int) or not 1 <= size <= LONGEST):
        raise ValueError(f"size = {size!r}: expected whole pixels from 1 to {LONGEST}")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels = {channels!r}: 1 for grey or 3 for colour")
    top = Path(root)
    if not top.is_dir():
        raise ValueError(f"there is no folder {root!r}")
    split = all((top / name).is_dir() for name in SPLITS)
    classes = _classes([top / name for name in SPLITS] if split else [top], root)
    pictures = _pictures(top / SPLITS[0] if split else top, classes)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(seed)).tolist()
    dealt, tenth = [pictures[i] for i in order], max(1, len(pictures) // 10)
    auxiliary, rest = dealt[:tenth], dealt[tenth:]
    test, train = (_pictures(top / SPLITS[1], classes), rest) if split else (rest[:tenth], rest[tenth:])
    if not train or not test:
        raise ValueError(f"{root!r} holds {len(pictures)} pictures; some are needed for training, test and auxiliary")
    held = [(_read(path), label) for path, label in (*auxiliary, *test)]
    channels = channels or max(picture.shape[0] for picture, _ in held)
    shape = (size, size) if size is not None else _common_shape([picture for picture, _ in held], root)

    def stacked(labelled: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        fitted = [_fitted(picture, channels, shape) for picture, _ in labelled]
        return torch.stack(fitted), torch.tensor([label for _, label in labelled])

    description = {"source": top.name, "seed": seed}
    if not split:
        description["test"] = DEALT_BY_LOT
    trained = [(_read(path), label) for path, label in train]
    made = make("images", stacked(trained), stacked(held[tenth:]), stacked(held[:tenth]), len(classes), description)
    left_out = _left_out([top / name for name in SPLITS] if split else [top])
    return replace(made, remarks=(*left_out, *_scaled([picture for picture, _ in (*trained, *held)], shape)))


def _scaled(pictures: Sequence[Tensor], shape: tuple[int, int]) -> Iterator[str]:
    """How many pictures were of another size, for their owner."""
    sizes = [(picture.shape[1], picture.shape[2]) for picture in pictures]
    if others := [size for size in sizes if size != shape]:
        highest, widest = max(height for height, _ in others), max(width for _, width in others)
        yield (
            f"{len(others)} of {len(sizes)} pictures were scaled to {shape[0]}×{shape[1]} pixels, of heights up to"
            f" {highest} and widths up to {widest}; options = {{ size = … }} asks for another size"
        )


def _left_out(tops: Sequence[Path]) -> Iterator[str]:
    """What lies beside the pictures, for their owner."""
    others = [
        path.name
        for top in tops
        for path in sorted(top.rglob("*"))
        if path.is_file() and path.suffix.lower() not in SUFFIXES and not path.name.startswith(".")
    ]
    if others:
        listed = ", ".join(others[:3])
        what = "1 file that is no picture is" if len(others) == 1 else f"{len(others)} files that are no pictures are"
        yield f"{what} left out ({listed}{', …' if others[3:] else ''})"


def _classes(tops: Sequence[Path], root: str) -> list[str]:
    names = {path.name for top in tops for path in top.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if len(names) < 2:
        raise ValueError(f"{root!r} needs a folder for every class, and two classes at least; it has {len(names)}")
    return sorted(names)


def _pictures(top: Path, classes: Sequence[str]) -> list[Labelled]:
    """Every picture of a class, in alphabetical order; files of other types are left out."""
    found = [
        (path, label)
        for label, name in enumerate(classes)
        if (top / name).is_dir()
        for path in sorted((top / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    if not found:
        raise ValueError(f"{str(top)!r} has no pictures in its folders; read are {', '.join(SUFFIXES)}")
    return found


def _read(path: Path) -> Tensor:
    """(1 or 3, h, w), values in [0, 1]."""
    values = _dicom(path) if path.suffix.lower() == DICOM else _pixels(path)
    if max(values.shape[:2]) > LONGEST:
        raise ValueError(f"{str(path)!r} is {values.shape[1]}×{values.shape[0]} pixels; at most {LONGEST} a side")
    channels_last = values if values.ndim == 3 else values[:, :, None]
    return torch.from_numpy(np.ascontiguousarray(channels_last.transpose(2, 0, 1), dtype=np.float32))


def _pixels(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I"):  # 16 bits; Pillow opens some of them as 32
                return np.asarray(image, np.float32) / 65_535
            if image.mode == "F":
                raise ValueError("its pixels are floating-point numbers without a range")
            grey = image.mode in ("1", "L", "LA")
            return np.asarray(image.convert("L" if grey else "RGB"), np.float32) / 255
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"{str(path)!r} is no picture that can be read ({error})") from error


def _dicom(path: Path) -> np.ndarray:
    try:
        import pydicom
    except ImportError:
        raise ValueError(f"{str(path)!r} is DICOM; reading it needs pydicom (pip install pydicom)") from None
    try:
        file = pydicom.dcmread(path)
        stored = file.pixel_array.astype(np.float32) / (2**file.BitsStored - 1)
    except Exception as error:  # pydicom's errors have no common class
        raise ValueError(f"{str(path)!r} is no DICOM picture that can be read ({error})") from error
    if stored.ndim != 2 or file.get("PixelRepresentation", 0):
        raise ValueError(f"{str(path)!r}: a DICOM picture of one grey frame with unsigned values is needed")
    return 1 - stored if file.get("PhotometricInterpretation") == "MONOCHROME1" else stored


def _common_shape(held: Sequence[Tensor], root: str) -> tuple[int, int]:
    shapes = sorted({(picture.shape[1], picture.shape[2]) for picture in held})
    if len(shapes) > 1:
        sizes = ", ".join(f"{width}×{height}" for height, width in shapes[:3])
        raise ValueError(f"{root!r} has pictures of several sizes ({sizes}, …); say one by options = {{ size = 64 }}")
    return shapes[0]


def _fitted(picture: Tensor, channels: int, shape: tuple[int, int]) -> Tensor:
    """The middle of the picture at that size (channels, h, w)."""
    if picture.shape[0] != channels:
        picture = picture.expand(3, -1, -1) if channels == 3 else picture.mean(dim=0, keepdim=True)
    height, width = picture.shape[1:]
    if (height, width) != shape:
        scale = max(shape[0] / height, shape[1] / width)
        scaled = max(shape[0], round(height * scale)), max(shape[1], round(width * scale))
        picture = interpolate(picture[None], scaled, mode="bilinear", antialias=True, align_corners=False)[0]
        top, left = (scaled[0] - shape[0]) // 2, (scaled[1] - shape[1]) // 2
        picture = picture[:, top : top + shape[0], left : left + shape[1]]
    return picture.clamp(0, 1)
