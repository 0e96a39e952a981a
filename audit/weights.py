"""`audit weights`: the one thing that this tool fetches from the internet, and only when it is asked to."""

from __future__ import annotations

import re
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from ..defenses.progress import Progress
from ..metrics.perceptual import WEIGHTS, Net, cache
from .errors import BadInput
from .files import digest_of_file
from .lock import writing_file

PIECE = 1 << 16  # bytes
PATIENCE = 30  # seconds without a byte


def fetch(net: Net, progress: Progress | None = None) -> Path:
    """torchvision's own file of a backbone of LPIPS in torch's cache, fetched from torchvision's own address where it
    is missing or damaged. The first digits of its SHA-256 stand in its name, and are checked before it gets that name.

    Raises:
        BadInput: it cannot be fetched, or is not the file that it should be; nothing is left behind.
    """
    url = WEIGHTS[net]
    file = cache() / Path(url).name
    found = re.search(r"-([0-9a-f]{8,64})\.[^.]+$", file.name)
    assert found is not None, f"torchvision's name {file.name} has no digest"
    with writing_file(file):
        if file.is_file() and digest_of_file(file).startswith(found[1]):
            return file
        part = file.with_name(f"{file.name}.part")
        try:
            _download(url, part, progress)
            if not (digest := digest_of_file(part)).startswith(found[1]):
                raise BadInput(
                    f"{url} gave {part.stat().st_size:,} bytes with SHA-256 {digest[:16]}…, expected {found[1]}…; try"
                    " again, or get the file elsewhere and name it with --lpips-weights"
                )
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    return file


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """Raises BadInput where the network fails, OSError where the disk does."""
    with part.open("wb") as file:
        try:
            with urlopen(url, timeout=PATIENCE) as answer:
                total = int(answer.headers.get("Content-Length") or 0)
                while piece := answer.read(PIECE):
                    try:
                        file.write(piece)
                    except OSError as error:  # not the network's
                        raise BadInput(f"{part.parent}: {error.strerror or error}") from None
                    if progress is not None:
                        progress(file.tell(), total, f"fetching {part.stem}")
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            raise BadInput(
                f"{url} cannot be fetched ({getattr(error, 'reason', None) or error}); where there is no network, put"
                f" the file into {part.parent} or name it with --lpips-weights"
            ) from None
