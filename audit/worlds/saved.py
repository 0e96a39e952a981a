"""Finished batches of draws, kept in a folder: a killed audit goes on with them and gives the same bytes.

FOLDER/asked.json             what is asked, of which function: anything else is refused
FOLDER/NAME.safetensors       a batch, whole or not there: what it gave, and what the calls left behind
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from ..errors import BadInput
from ..files import digest_of_json, write_json, write_tensors
from ..setup.reading import left_by_a_killed_run, plain_json, read_text
from .calls import Calls

ASKED = "asked.json"


@dataclass(frozen=True)
class SavedBatches:
    """Batches of one audit. folder: None keeps none."""

    folder: Path | None

    @classmethod
    def of(cls, folder: Path | None, asked: Mapping[str, Any]) -> SavedBatches:
        """Those in `folder`, or none yet.

        Args:
            folder: made where it is missing. asked: all that decides the draws, for JSON.

        Raises:
            BadInput: it holds batches of something else, or is damaged.
        """
        if folder is None:
            return cls(None)
        check_asked(folder, asked)
        write_json(folder / ASKED, {"digest": digest_of_json(asked)})
        return cls(folder)

    def batch(
        self, calls: Calls, name: str, drawn: Callable[[], Sequence[NDArray[np.float64]]]
    ) -> list[NDArray[np.float64]]:
        """What `drawn` gives by calls of the function; from the folder, without a call, where it is there."""
        if self.folder is None:
            return list(drawn())
        path = self.folder / f"{name}.safetensors"
        if path.exists():
            with left_by_a_killed_run(path, "use --force to start anew"):
                held = load_file(path)
                _restore(calls, held)
                return [held[f"given/{i:02d}"].numpy() for i in range(int(held["count"]))]
        known = set(calls.kept)
        given = [np.ascontiguousarray(one, dtype=np.float64) for one in drawn()]
        tensors = {f"given/{i:02d}": torch.from_numpy(one) for i, one in enumerate(given)}
        tensors |= {"count": torch.tensor(len(given)), **_left_behind(calls, set(calls.kept) != known)}
        write_tensors(path, tensors)
        return given


def check_asked(folder: Path, asked: Mapping[str, Any]) -> None:
    """Raises BadInput where `folder` holds batches of something else than `asked`."""
    path = folder / ASKED
    if not path.exists():
        return
    with left_by_a_killed_run(path, "use --force to start anew"):
        digest = plain_json(read_text(path))["digest"]
    if digest != digest_of_json(asked):
        raise BadInput(
            f"{folder.parent} holds unfinished draws of another function or with other options; give the same command"
            " again, choose another folder for -o, or use --force to start anew"
        )


def _left_behind(calls: Calls, kept: bool) -> dict[str, Tensor]:
    """What later calls and checks go by. kept: whether the calls that are made again are others than before."""
    again = calls.kept if kept else {}
    tensors = {
        "made": torch.tensor([calls.made, calls.not_finite]),
        "used": torch.tensor(sorted(calls.used), dtype=torch.int64),
        "steps/0": torch.tensor(calls.steps[0], dtype=torch.int64),
        "steps/1": torch.tensor(calls.steps[1], dtype=torch.int64),
        "kept": torch.tensor([*again], dtype=torch.int64).reshape(-1, 2),
    }
    return tensors | {f"kept/{i}": vector for i, vector in enumerate(again.values())}


def _restore(calls: Calls, held: Mapping[str, Tensor]) -> None:
    calls.made, calls.not_finite = held["made"].tolist()
    calls.used = set(held["used"].tolist())
    for world in (0, 1):
        calls.steps[world][:] = held[f"steps/{world}"].tolist()
    if len(held["kept"]):
        places = [(int(world), int(seed)) for world, seed in held["kept"].tolist()]
        calls.kept = {place: held[f"kept/{i}"] for i, place in enumerate(places)}
