"""What torch, Opacus and others put round a network, and into the names of its tensors: taken off, and named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ..errors import BadInput

PARTS = {  # of a name, as the wrapper puts it in, with who does
    "module": "DistributedDataParallel",
    "_orig_mod": "torch.compile",
    "_module": "Opacus",
    "_fsdp_wrapped_module": "FSDP",
    "_checkpoint_wrapped_module": "checkpointing",
}
INNER = {  # a wrapper's class -> where it holds the network
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "AbstractGradSampleModule": "_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}
SHARDED = {"FullyShardedDataParallel": "FullyShardedDataParallel", "FSDPModule": "fully_shard"}  # a class -> its name
OWNERS = ("torch", "opacus")  # packages whose classes these are


def bare_module(model: Any) -> Any:
    """A network without what is wrapped round it; anything else as it is.

    Raises:
        BadInput: it is sharded, so that its tensors are parts.

    >>> bare_module(nn.DataParallel(nn.Linear(2, 1)))
    Linear(in_features=2, out_features=1, bias=True)
    """
    while isinstance(model, nn.Module):
        kinds = {kind.__name__ for kind in type(model).__mro__ if kind.__module__.partition(".")[0] in OWNERS}
        if sharded := [SHARDED[kind] for kind in SHARDED if kind in kinds]:
            raise BadInput(
                f"model is wrapped by {sharded[0]}, which keeps parts of its tensors; give the network as it is before,"
                " and of each round the whole state dict"
            )
        inner = next((INNER[kind] for kind in INNER if kind in kinds), None)
        if inner is None:
            return model
        model = getattr(model, inner)
    return model


def bare_names(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Names -> the model's own of them, where nothing but wrappers' parts tells them apart; {} where something does.

    >>> bare_names(["_module.0.weight"], ["0.weight", "0.bias"])
    {'_module.0.weight': '0.weight'}
    >>> bare_names(["other.0.weight"], ["0.weight", "0.bias"])
    {}
    """
    listed = list(known)
    own = {_bare(name): name for name in listed}
    made = {name: own.get(_bare(str(name)), "") for name in names}
    if len(own) == len(listed) and all(made.values()):
        return made
    return {}


def wrappers_in(names: Mapping[str, str]) -> list[str]:
    """Who wrapped, by what `bare_names` gives, for people.

    >>> wrappers_in({"module._orig_mod.1.weight": "1.weight"})
    ["DistributedDataParallel's 'module.'", "torch.compile's '_orig_mod.'"]
    """
    more = {part for name, own in names.items() for part in PARTS if part in {*name.split(".")} - {*own.split(".")}}
    return [f"{who}'s '{part}.'" for part, who in PARTS.items() if part in more]


def _bare(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in PARTS)
