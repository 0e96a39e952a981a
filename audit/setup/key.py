"""The key that noise and everything secret is drawn with, beside the public seed (`Federation.key`).

It lies in SETUP/auditor/noise-key: 64 hex digits and a line end. setup.json only says whether it is published;
auditor/seal.json has its SHA-256, from which nobody can come back to 256 random bits.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

from ..errors import BadInput
from ..files import write_bytes
from .format import KeyKind
from .reading import present, read_text

FILE = "auditor/noise-key"
PUBLISHED = "7075626c6973686564206b65793a206e6f697365206e6f742073656372657421"  # "published key: noise not secret!"
PUBLISHED_NAME = "published"


def given_key(text: str | None) -> str | None:
    """The key that `--noise-key` names: "published", or a file of 64 hex digits; None for none. Raises BadInput."""
    if text is None:
        return None
    if text == PUBLISHED_NAME:
        return PUBLISHED
    return read_key(Path(text))


def read_key(path: Path, root: Path | None = None) -> str:
    """The key in a file. Raises BadInput, without what the file holds."""
    content = read_text(path, root).strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", content):
        raise BadInput(f"{path}: expected a noise key, 64 hex digits, and nothing else")
    return content


def kind_of(key: str) -> KeyKind:
    if key == PUBLISHED:
        return "published"
    return "secret"


def keyed(digest: str, key: str) -> str:
    """A digest of private data as setup.json shows it: whoever lacks the key cannot try records until one fits."""
    return hashlib.sha256(f"dpfl-audit data {key} {digest}".encode()).hexdigest()


def drawn_with(key: str, digest: str, values: str) -> str:
    """What a training draws with: its own streams for every config, all rows and every engine, so that a key that is
    used again never draws the same noise around another value, which the difference of two messages would show. The
    published key hides nothing and stays as it is.

    Args:
        key: of the training. digest: of its config, versions and public data.
        values: what else decides the values (`description.values_of`).
    """
    if key == PUBLISHED:
        return key
    return hashlib.sha256(f"dpfl-audit streams {key} {digest} {values}".encode()).hexdigest()


def key_for(folder: Path, wanted: str | None, begun: bool) -> str:
    """The key of a training into `folder`: the one it began with, else the wanted one, else a fresh one.

    Args:
        folder: of the setup. wanted: None for whichever there is. begun: training into it has begun before.

    Raises:
        BadInput: it began with another key than the wanted one, or its key is gone or damaged.
    """
    path = folder / FILE
    if begun and present(path):
        held = read_key(path, folder)
        if wanted not in (None, held):
            raise BadInput(f"{folder} was begun with another noise key than the one given; use --force to replace it")
        return held
    if begun and present(folder / ".work" / "state.safetensors"):
        raise BadInput(f"{path} is missing, so what was trained with it cannot go on; use --force to start anew")
    return wanted or secrets.token_hex(32)


def keep_key(folder: Path, key: str) -> None:
    """Written before anything that is drawn with it, for its owner's eyes."""
    write_bytes(folder / FILE, f"{key}\n".encode())
    (folder / FILE).chmod(0o600)
