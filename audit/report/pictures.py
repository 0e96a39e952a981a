"""Images of a RESULTS folder: originals and reconstructions, as PNG data URIs."""

from __future__ import annotations

import base64
import hashlib
import io
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors import SafetensorError
from safetensors.numpy import load_file

from ..errors import BadInput
from ..results.format import AttackResult, Pair


@dataclass(frozen=True, eq=False)
class Pictures:
    """One attack's reconstructions, with the originals where the truth was there.

    Arrays (n, c, h, w) in [0, 1]; None: not in the folder.
    """

    attack: AttackResult
    rebuilt: np.ndarray | None
    originals: np.ndarray | None

    @property
    def worst_first(self) -> list[Pair]:
        """Pairs by falling PSNR: the image that leaked most comes first."""
        return sorted(
            self.attack.pairs,
            key=lambda pair: (-(pair.psnr if pair.psnr is not None else float("-inf")), pair.original),
        )


def read_pictures(folder: Path, attack: AttackResult) -> Pictures:
    """The pictures of one attack.

    Raises:
        BadInput: a file is there but does not hold the images that results.json speaks of.
    """
    if attack.key is None:
        return Pictures(attack, None, None)
    rebuilt = _images(Path(folder) / "evidence" / f"{attack.key}.safetensors")
    originals = _images(Path(folder) / "originals" / f"{attack.key}.safetensors")
    for images, index, what in ((rebuilt, "reconstruction", "evidence"), (originals, "original", "originals")):
        largest = max((getattr(pair, index) for pair in attack.pairs), default=-1)
        if images is not None and largest >= len(images):
            raise BadInput(
                f"{folder}: pairs of {attack.key} name {index} {largest}, expected below {len(images)}, the number of"
                f" images in {what}/"
            )
    return Pictures(attack, rebuilt, originals)


def _images(path: Path) -> np.ndarray | None:
    if not path.is_file():
        return None
    try:
        images = load_file(path).get("images")
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read as safetensors: {error}") from None
    if images is None or images.ndim != 4 or images.dtype.kind != "f" or 0 in images.shape:
        if images is None:
            shown = "missing"
        else:
            shown = f"{images.dtype} of shape {images.shape}"
        raise BadInput(f"{path}: images is {shown}, expected floats of shape (n, c, h, w)")
    if not np.isfinite(images).all():
        raise BadInput(f"{path}: images holds values that are not finite, expected values in [0, 1]")
    return images


def fingerprint(image: np.ndarray) -> str:
    """Equal exactly for images with the same pixels; (c, h, w)."""
    return hashlib.sha256(
        repr(image.shape).encode() + np.ascontiguousarray(image, dtype=np.float32).tobytes()
    ).hexdigest()


def data_uri(image: np.ndarray) -> str:
    """A PNG of one image (c, h, w) in [0, 1], at its own size; three channels are colour, any other number is averaged
    to grey; a row of a table, one pixel of many channels, has a grey square for each feature.

    >>> data_uri(np.zeros((1, 2, 2)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    if image.shape[1:] == (1, 1) and len(image) > 3:
        side = ceil(len(image) ** 0.5)
        image = np.concatenate([image.ravel(), np.full(side * side - len(image), 0.5)]).reshape(1, side, side)
    if image.shape[0] == 3:
        pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    else:
        pixels = np.rint(np.clip(image.mean(0), 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
