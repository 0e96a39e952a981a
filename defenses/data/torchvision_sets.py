"""Downloaded image sets in torchvision's own on-disk formats: `mnist`, `fashion_mnist`, `cifar10`, `cifar100`.

Files are read where they lie, packed (.gz, .xz) or not, and checked against the MD5 sums torchvision publishes (for
MNIST it publishes those of the .gz archives only, so unpacked files are checked for their form); nothing is written
into the folder. CIFAR's files are pickles: only those whose MD5 is the published one are opened, and only plain
containers and arrays come out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import pickle
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .dataset import OF_ONE_SET, Dataset, Moments, Records, make

FOLDERS = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
}

# Mean and std of the training images by channel, as thousands of programs have them: PyTorch's own example of MNIST
# (pytorch/examples), Fashion-MNIST's and CIFAR's to the same four digits in their users' transforms.Normalize.
PUBLISHED: dict[str, Moments] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def load(name: str, root: str | None, download: bool, seed: int) -> Dataset:
    """The set under `root`; its published test split is dealt into test (4/5) and auxiliary (1/5).

    Raises:
        ValueError: no root, files missing, or not the published ones.
    """
    if root is None:
        raise ValueError(
            f'{name} is read from a folder; give [data] root = "…" (and download = true to fetch it there)'
        )
    folder = Path(root)
    if download:
        _download(name, folder)
    if not folder.is_dir():
        raise ValueError(f"root = {root!r} is not a folder; it should hold {FOLDERS[name]}/")
    train, held = _mnist(name, folder) if "mnist" in name else _cifar(name, folder)
    order = torch.randperm(len(held[0]), generator=torch.Generator().manual_seed(seed))
    cut = len(order) * 4 // 5
    test, auxiliary = ((held[0][i], held[1][i]) for i in (order[:cut], order[cut:]))
    return make(
        name,
        train,
        test,
        auxiliary,
        100 if name == "cifar100" else 10,
        {"source": f"torchvision.datasets, {FOLDERS[name]}", "seed": seed, "test": OF_ONE_SET},
        published=PUBLISHED[name],
    )


def _download(name: str, folder: Path) -> None:
    import torchvision.datasets as sets

    kind = {
        "mnist": sets.MNIST,
        "fashion_mnist": sets.FashionMNIST,
        "cifar10": sets.CIFAR10,
        "cifar100": sets.CIFAR100,
    }[name]
    try:
        kind(str(folder), download=True)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{name} could not be downloaded into {folder} ({error})") from error


def _mnist(name: str, folder: Path) -> tuple[Records, Records]:
    import torchvision.datasets as sets

    raw = folder / FOLDERS[name] / "raw"
    for file, md5 in (sets.MNIST if name == "mnist" else sets.FashionMNIST).resources:
        if _find(raw, file.removesuffix(".gz")) == raw / file:
            _check_md5(raw / file, (raw / file).read_bytes(), md5)
    return tuple(
        (
            _idx(raw, f"{part}-images-idx3-ubyte", 3).unsqueeze(1).float() / 255,
            _idx(raw, f"{part}-labels-idx1-ubyte", 1).long(),
        )
        for part in ("train", "t10k")
    )  # type: ignore[return-value]


def _idx(folder: Path, name: str, dimensions: int) -> Tensor:
    """One file of the IDX format: big-endian magic number and sizes, then bytes."""
    content = _unpacked(folder, name)
    header = 4 + 4 * dimensions
    shape = [int.from_bytes(content[k : k + 4], "big") for k in range(4, header, 4)]
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != header + prod(shape):
        raise ValueError(f"{folder / name} is not a whole IDX file of {dimensions} dimensions")
    return torch.from_numpy(np.frombuffer(content[header:], np.uint8).reshape(shape).copy())


def _cifar(name: str, folder: Path) -> tuple[Records, Records]:
    import torchvision.datasets as sets

    kind = sets.CIFAR10 if name == "cifar10" else sets.CIFAR100
    home = folder / FOLDERS[name]
    present = [(file, md5) for file, md5 in kind.train_list if _find(home, file)]
    if not present:
        raise ValueError(
            f"{home} holds none of {', '.join(f for f, _ in kind.train_list)} (plain, .gz or .xz); download = true"
            " fetches them"
        )
    key = b"labels" if name == "cifar10" else b"fine_labels"
    return _batches(home, present, key), _batches(home, kind.test_list, key)


def _batches(home: Path, files: Any, key: bytes) -> Records:
    images, labels = [], []
    for file, md5 in files:
        content = _unpacked(home, file)
        _check_md5(home / file, content, md5)
        batch = _Plain(io.BytesIO(content), encoding="bytes").load()
        images.append(torch.from_numpy(batch[b"data"].reshape(-1, 3, 32, 32).copy()))
        labels.append(torch.tensor(batch[key]))
    return torch.cat(images).float() / 255, torch.cat(labels)


def _check_md5(path: Path, content: bytes, md5: str) -> None:
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{path} is not the published file (its MD5 differs); fetch it again")


class _Plain(pickle.Unpickler):
    """Only containers, numbers and numpy arrays; anything else in the file is refused."""

    ALLOWED = frozenset({"_reconstruct", "ndarray", "dtype", "scalar"})

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self.ALLOWED:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise ValueError(f"the file asks for {module}.{name}, which a data file has no need of")


def _find(folder: Path, name: str) -> Path | None:
    return next((folder / (name + end) for end in ("", ".gz", ".xz") if (folder / (name + end)).is_file()), None)


def _unpacked(folder: Path, name: str) -> bytes:
    path = _find(folder, name)
    if path is None:
        raise ValueError(f"{folder / name} is missing (plain, .gz or .xz); download = true fetches it")
    try:
        match path.suffix:
            case ".gz":
                return gzip.decompress(path.read_bytes())
            case ".xz":
                return lzma.decompress(path.read_bytes())
        return path.read_bytes()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} cannot be unpacked ({error})") from error
