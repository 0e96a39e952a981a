"""Where attacks compute."""

from __future__ import annotations

import torch

from .errors import BadInput
from .options.choices import DeviceName


def device_named(name: str) -> DeviceName:
    """ "cpu" or "cuda". name: as after `--device`; auto is CUDA where there is one. Raises BadInput where it is not."""
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: no CUDA device is available here; use --device cpu")
    if name != "cpu" and torch.cuda.is_available():
        return "cuda"
    return "cpu"


def model_of(device: str) -> str:
    """What a device calls itself, "" of a CPU."""
    if device == "cuda":
        return torch.cuda.get_device_name(device)
    return ""
