"""A federated loop replayed by the calls of its recorder: each upload is a release, its raw value what noise is added
to, and everything else that the recorder is told of leaves as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .adjacency import PAIRS
from .equal import Norm
from .outcome import Replay
from .records import pairs
from .replay import AskedReplay, replay_pairs
from .tap import Tap

Loop = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class DeclaredBound:
    """By what a raw value may move under replace_one, in parameter units: twice the clip; None where no clip of a
    client's is declared, and only what leaves is compared.
    """

    size: float | None
    norm: Norm = "l2"


def replay_loop(
    loop: Loop,
    clients: Any,
    bound: DeclaredBound,
    *,
    neighbours: int = PAIRS,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Replay:
    """Looks for a client whose data move what noise is added to by more than its bound, or anything else that leaves.

    Args:
        loop: (clients' data, recorder) → anything: the rounds of a training. On a neighbour its recorder puts what was
            sent before into the tensors that it is handed, so that the loop goes on with these.
        clients: the data of each, map-style. bound: as declared. neighbours, seed, folder: as of `replay`.

    Raises:
        BadInput: as of `replay`.
    """

    def told(data: Any, tap: Tap) -> Any:
        return loop(data, LoopTap(tap, bound))

    asked = AskedReplay(getattr(loop, "__name__", "loop"), "replace_one", "client", seed, folder=folder)
    return replay_pairs(told, pairs(clients, "replace_one", neighbours, seed, unit="client"), asked)


@dataclass(frozen=True, eq=False)
class LoopTap:
    """Stands in a loop where its recorder does, and writes nothing."""

    tap: Tap
    bound: DeclaredBound

    def broadcast(self, round: int, model: Any, **_: Any) -> None:
        """The model of a round, which follows from what was released before."""
        _hold(model, self.tap.public(f"model of round {round}", _plain(model)))

    def upload(self, round: int, client: int, tensors: Any, num_examples: int, **_: Any) -> None:
        self.tap.public(f"num_examples of client {client}", num_examples)
        _hold(tensors, self.tap.release(f"client {client}", _plain(tensors)))

    def raw(self, round: int, client: int, tensors: Any) -> None:
        if self.bound.size is not None:
            self.tap.query(f"raw value of client {client}", _plain(tensors), self.bound.size, self.bound.norm)

    def noisy_mean(self, round: int, tensors: Any) -> None:
        _hold(tensors, self.tap.release("noisy mean", _plain(tensors)))

    def unnoised(self, round: int, client: int, what: str) -> None:
        self.tap.public(f"unnoised of client {client}", what)

    def figures(self, round: int, **values: float) -> None:
        self.tap.public("figures", dict(values))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """What tells of nothing that is sent: again, candidates, declare, defect, note."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: None


def _plain(value: Any) -> Any:
    """Copies of a value's tensors, by name or in order."""
    if isinstance(value, nn.Module):
        value = value.state_dict()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.copy()
    return value


def _hold(value: Any, held: Any) -> None:
    """Puts what was sent before into the tensors that a loop goes on with."""
    if isinstance(value, nn.Module):
        value = value.state_dict()
    if isinstance(value, Mapping):
        for name, part in value.items():
            _hold(part, held[str(name)])
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for part, own in zip(value, held):
            _hold(part, own)
    elif isinstance(value, Tensor):
        with torch.no_grad():
            value.copy_(held)
    elif isinstance(value, np.ndarray):
        value[...] = held
