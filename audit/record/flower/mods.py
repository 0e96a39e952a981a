"""On the client: `AuditMod`, which tells whose reply it is, and what a differentially private mod below it is told.

    ClientApp(mods=[AuditMod("setup"), LocalDpMod(…), AuditMod.raw("setup")])

The first of `mods` is the outermost: it sees the reply as it is sent, the last one as the app made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ...files import write_tensors
from ...tensors import dense_tensor
from .declared import LocalNoise

DECLARED = ("clipping-norm", "sensitivity", "epsilon", "delta")  # of a LocalDpMod, in that record
KEY = "dpfl-audit"  # of the config record that a reply takes along
RecordsOf = Callable[[Any], tuple[Any, Any]]


def clients_folder(folder: str | Path) -> Path:
    """Where clients keep what is theirs alone: beside the setup, on whatever machine a client runs."""
    return Path(f"{Path(folder).absolute()}.clients")


@dataclass(frozen=True)
class AuditMod:
    """A Flower mod. It changes nothing that is trained or sent but for a record of its own, which the server's recorder
    takes off again.

    folder: of the setup; raw values and records go to FOLDER.clients, on the client's own machine.
    records: of a client's context its inputs (n, …), of texts what a tokenizer gives, and targets (n,); None where they
      are not to be had. They are for scoring alone, and no attack gets them.
    inner: whether it stands below a differentially private mod, and keeps what goes into it (`AuditMod.raw`).
    """

    folder: str
    records: RecordsOf | None = None
    inner: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", str(Path(self.folder).absolute()))  # a worker may run elsewhere

    @classmethod
    def raw(cls, folder: str | Path) -> AuditMod:
        """The mod that keeps raw values, to check the noise and the clip by."""
        return cls(str(folder), inner=True)

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        from flwr.app import ConfigRecord

        reply = call_next(message, context)
        evaluated = message.metadata.message_type.startswith("evaluate")
        if reply.has_error() or not (reply.content.array_records or evaluated):
            return reply
        client = int(context.node_config.get("partition-id", -1))
        own = clients_folder(self.folder) / str(client)
        if self.inner:
            if evaluated:
                return reply
            arrays = next(iter(reply.content.array_records.values()))
            with _never_in_the_way():
                kept = {name: torch.from_numpy(array.numpy()) for name, array in arrays.items()}
                # Read once, by the server of a simulation, and removed.
                write_tensors(own / f"round-{round_of(message)}.safetensors", kept, durable=False)
            return reply
        told: dict[str, Any] = {"partition-id": client}
        if (mod := _local_dp(call_next)) is not None:
            told |= dict(zip(DECLARED, mod.values))
        if self.records is not None and not (own / "records.safetensors").exists():
            with _never_in_the_way():
                inputs, targets = self.records(context)
                parts = {**(inputs if isinstance(inputs, Mapping) else {"inputs": inputs}), "targets": targets}
                kept = {str(name): dense_tensor(part, "a part of the records") for name, part in parts.items()}
                write_tensors(own / "records.safetensors", kept)
        reply.content[KEY] = ConfigRecord(told)
        return reply


@contextmanager
def _never_in_the_way() -> Iterator[None]:
    """Around what a client keeps: a full disk, or a function that fails, stops nobody's training."""
    from flwr.common import log

    try:
        yield
    except Exception as error:
        log(WARNING, "dpfl-audit: nothing is kept here (%s: %s)", type(error).__name__, error)


def round_of(message: Any) -> int:
    """The round that a message to train is of, as its config or its group says; 0 where neither does."""
    config: Any = next(iter(message.content.config_records.values()), {})
    group = message.metadata.group_id
    return int(config.get("server-round", group if group.isdecimal() else 0))


def _local_dp(call_next: Any) -> LocalNoise | None:
    """What the LocalDpMod is told that the next calls go through. Flower chains mods as closures, which hold the
    next mod and what it calls.
    """
    todo, seen = [call_next], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in seen or one is None:
            continue
        seen.add(id(one))
        if (known := LocalNoise.of(one)) is not None:
            return known
        for cell in getattr(one, "__closure__", None) or ():
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            if callable(held):
                todo.append(held)
    return None


def raw_of(folder: Path, client: int, round: int) -> dict[str, Tensor] | None:
    """What a client on this machine kept of a round; None where it runs elsewhere, or keeps nothing. It is kept no
    longer.
    """
    path = clients_folder(folder) / str(client) / f"round-{round}.safetensors"
    if not path.exists():
        return None
    held = load_file(path)
    path.unlink()
    return held


def records_kept(folder: Path, client: int) -> tuple[Tensor | dict[str, Tensor], Tensor] | None:
    """A client's records, where it keeps them on this machine: inputs, of texts what a tokenizer gives, and targets."""
    path = clients_folder(folder) / str(client) / "records.safetensors"
    if not path.exists():
        return None
    held = load_file(path)
    targets = held.pop("targets")
    return held.get("inputs", held), targets
