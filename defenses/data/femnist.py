"""FEMNIST: handwritten characters by writer, from LEAF's JSON files, or torchvision's EMNIST (which has no writers)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .dataset import Dataset, Records, make
from .torchvision_sets import _idx

CLASSES = 62


def load(root: str | None, seed: int) -> Dataset:
    """28×28 grey images of 62 characters (Caldas et al. 2018, arXiv:1812.01097).

    root: a folder with LEAF's train/*.json and test/*.json (keys users, user_data with x in [0, 1] and y), or with
    EMNIST/raw of torchvision's "byclass" split. With LEAF, `groups` holds the writer of every training image. The test
    images are dealt into test (4/5) and auxiliary (1/5).
    """
    if root is None:
        raise ValueError('femnist is read from a folder; give [data] root = "…"')
    folder = Path(root)
    groups: Tensor | None = None
    if (folder / "train").is_dir():
        train, groups = _leaf(folder / "train")
        held, _ = _leaf(folder / "test")
        source = "LEAF FEMNIST"
    elif (folder / "EMNIST" / "raw").is_dir():
        train, held = (_emnist(folder / "EMNIST" / "raw", part) for part in ("train", "test"))
        source = "EMNIST byclass (no writers)"
    else:
        raise ValueError(f"{root!r} holds neither LEAF's train/ and test/ nor EMNIST/raw")
    order = torch.randperm(len(held[0]), generator=torch.Generator().manual_seed(seed))
    cut = len(order) * 4 // 5
    test, auxiliary = ((held[0][i], held[1][i]) for i in (order[:cut], order[cut:]))
    return make("femnist", train, test, auxiliary, CLASSES, {"source": source, "seed": seed}, groups)


def _leaf(folder: Path) -> tuple[Records, Tensor]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"{folder} holds no LEAF .json files")
    images, labels, writers = [], [], []
    known: dict[str, int] = {}
    for file in files:
        try:
            content: dict[str, Any] = json.loads(file.read_text())
            for user in content["users"]:
                x = torch.tensor(content["user_data"][user]["x"], dtype=torch.float32)
                y = torch.tensor(content["user_data"][user]["y"])
                images.append(x.reshape(-1, 1, 28, 28))
                labels.append(y)
                writers.append(torch.full((len(y),), known.setdefault(str(user), len(known))))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{file} is not a LEAF file of 28×28 images ({type(error).__name__}: {error})") from error
    return (torch.cat(images), torch.cat(labels)), torch.cat(writers)


def _emnist(folder: Path, part: str) -> Records:
    images = _idx(folder, f"emnist-byclass-{part}-images-idx3-ubyte", 3)
    return (
        images.transpose(1, 2).unsqueeze(1).float() / 255,
        _idx(folder, f"emnist-byclass-{part}-labels-idx1-ubyte", 1).long(),
    )
