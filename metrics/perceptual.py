"""LPIPS, the learned perceptual distance (Zhang et al. 2018, arXiv:1801.03924), with ImageNet weights from a file.

Nothing is downloaded here: without the weights a metric is `NotMeasured`, with the reason and the remedy.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from .checkpoint import read_checkpoint

Net = Literal["alex", "squeeze", "vgg"]

# The smallest side of an image each backbone can take: its pooling leaves nothing of a smaller one.
SMALLEST: dict[Net, int] = {"alex": 31, "squeeze": 17, "vgg": 16}
# As torchvision names its files, with the first digits of their SHA-256; importing it would take a second and a half.
WEIGHTS: dict[Net, str] = {
    "alex": "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth",
    "squeeze": "https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth",
    "vgg": "https://download.pytorch.org/models/vgg16-397923af.pth",
}
ARCHITECTURES = {"alex": "alexnet", "squeeze": "squeezenet1_1", "vgg": "vgg16"}
PREFERRED: tuple[Net, ...] = ("alex", "squeeze")  # which to use where there are both: most papers report AlexNet's
BATCH = 256


@dataclass(frozen=True)
class NotMeasured:
    """Why a metric could not be measured and what would help, in one sentence for the report."""

    reason: str


@dataclass(frozen=True, eq=False)
class Perceptual:
    """LPIPS v0.1 with one backbone; `source` is the file its weights came from."""

    net: Net
    source: str
    module: nn.Module

    def unable(self, shape: tuple[int, ...]) -> str:
        """Why images (…, c, h, w) of this shape cannot be measured, "" if they can. They are never enlarged to fit."""
        channels, height, width = shape[-3:]
        if channels not in (1, 3):
            return f"LPIPS takes grey or colour images, these have {channels} channels"
        if min(height, width) < SMALLEST[self.net]:
            side = SMALLEST[self.net]
            return f"LPIPS with {self.net} needs images of {side}×{side} pixels or more, these are {height}×{width}"
        return ""

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """LPIPS (n,) between images (n, c, h, w) in [0, 1]: 0 for identical ones, higher is less alike.

        Grey images are repeated to three channels.

        Raises:
            ValueError: the shapes differ, or the backbone cannot take them (see `unable`).
        """
        if a.shape != b.shape:
            raise ValueError(
                f"images have shapes {tuple(a.shape)} and {tuple(b.shape)}, both must be the same (n, c, h, w)"
            )
        if reason := self.unable(tuple(a.shape)):
            raise ValueError(reason)
        with torch.no_grad():
            values = [
                self.module(*(2 * x.float().expand(-1, 3, -1, -1) - 1 for x in pair)).flatten()
                for pair in zip(a.split(BATCH), b.split(BATCH))
            ]
        return torch.cat(values).double() if values else torch.empty(0, dtype=torch.float64)


def cache() -> Path:
    """The folder of torch's own cache (TORCH_HOME) where torchvision's weights lie."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def find(path: str | Path | None = None) -> tuple[Net, Path] | NotMeasured:
    """Which backbone's weights there are, and in which file: the first of `PREFERRED` in the folder `path`, else in
    torch's cache; a file is AlexNet's unless it is named as torchvision names SqueezeNet's.

    Raises:
        ValueError: the path does not exist.
    """
    if path is not None and Path(path).is_file():
        squeeze = Path(path).name.startswith(ARCHITECTURES["squeeze"])
        return ("squeeze" if squeeze else "alex"), Path(path)
    for net in PREFERRED:
        if (file := _file(net, path)) is not None:
            return net, file
    return _lacking(PREFERRED[0], path)


def load(net: Net = "alex", path: str | Path | None = None) -> Perceptual | NotMeasured:
    """LPIPS with the backbone's weights from `path`, else from torch.hub's cache (TORCH_HOME), else `NotMeasured`.

    path: a state dict of torchvision's network, whole or only its `features.…` tensors, or a folder that holds one
      under torchvision's own file name or as `<architecture>-features.pth`. Opened with weights_only=True: it runs no
      code.

    Raises:
        ValueError: the net is unknown, the path does not exist, or the file does not hold the backbone's weights.
    """
    if net not in SMALLEST:
        raise ValueError(f"the LPIPS net is {net!r}, it must be one of {', '.join(SMALLEST)}")
    file = _file(net, path)
    return _lacking(net, path) if file is None else Perceptual(net, str(file), _build(net, file))


def _file(net: Net, path: str | Path | None) -> Path | None:
    """Raises ValueError where `path` does not exist."""
    folder = Path(path) if path is not None else cache()
    if path is not None and not folder.exists():
        raise ValueError(
            f"the LPIPS weights {folder} do not exist; give a file or folder with torchvision's {ARCHITECTURES[net]}"
        )
    names = (Path(WEIGHTS[net]).name, f"{ARCHITECTURES[net]}-features.pth")
    candidates = (folder,) if folder.is_file() else tuple(folder / name for name in names)
    return next((file for file in candidates if file.is_file()), None)


def _lacking(net: Net, path: str | Path | None) -> NotMeasured:
    published = WEIGHTS[net]
    place = "torch's cache (TORCH_HOME/hub/checkpoints)" if path is None else f"the folder {Path(path).name!r}"
    return NotMeasured(
        f"{place} has no weights {Path(published).name} for LPIPS; `audit weights` fetches SqueezeNet's (5 MB), `audit"
        f" weights alex` AlexNet's (233 MB); or download {published} into it, or name the weights' file or folder"
    )


def _build(net: Net, file: Path) -> nn.Module:
    import lpips  # here, for importing it takes seconds

    weights = read_checkpoint(file)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # lpips calls torchvision with arguments it has deprecated
        module = lpips.LPIPS(net=net, pnet_rand=True, verbose=False)  # the linear heads come with the package
    with torch.no_grad():
        for name, parameter in module.net.named_parameters():  # slice2.3.weight is torchvision's features.3.weight
            key = "features." + name.split(".", 1)[1]
            tensor = weights.get(key)
            if not isinstance(tensor, Tensor) or tensor.shape != parameter.shape:
                shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else None
                raise ValueError(
                    f"the LPIPS weights {file} have {shape or 'nothing'} for {key}, {ARCHITECTURES[net]} needs"
                    f" {tuple(parameter.shape)}"
                )
            parameter.copy_(tensor)
    return module.eval().requires_grad_(False)
