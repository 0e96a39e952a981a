"""Reading other people's weights without running their code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The dictionary in a file written by torch.save, its tensors on the CPU; opened with weights_only=True.

    Raises:
        ValueError: the file cannot be read, or holds something else.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, LookupError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{path} cannot be read as weights ({type(error).__name__}); expected a file of torch.save"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; expected a dictionary of weights")
    return content
