"""A model as a recording keeps it: which tensors it has, and how the network is built again without running its owner's
code, where that can be.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...defenses import models
from ...defenses.hugging_face import LIBRARY, facts_of_network
from ...defenses.layout import Layout, frozen_of
from ..errors import BadInput, bad_input
from ..owners_code import owners
from ..setup.reading import short

RUNNING = ("running_mean", "running_var")  # as torch names a BatchNorm's
UNKNOWN = "unknown"  # the name of a network that cannot be built again


@dataclass(frozen=True)
class Network:
    """The tensors of a model, and how it is built.

    name, options: of `models.build`; "layers" for a stack of torch's own layers, "package.module:Class" for a class,
      which is imported only by the word of whoever runs attacks, `UNKNOWN` where only tensors are known.
    state, shapes: the owner's names of all tensors in a state dict's order. parameters: those that are trained.
    prefix, renamed: how names change in the network that is built again.
    mean, std: of a normalisation that the model itself begins with, () without one.
    layers: as torch prints them.
    untrained: of the state those that training does not step on: buffers, and parameters that are frozen.
    whole: of these those of whole numbers, as a BatchNorm's counter of batches is.
    twins: of a tensor that is another one of the state as well, that one's name, as of tied weights.
    base: digest of the values of `frozen`, "" for none.
    """

    name: str
    options: dict[str, Any]
    state: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    parameters: tuple[str, ...]
    prefix: str = ""
    renamed: dict[str, str] = field(default_factory=dict)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layers: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    twins: dict[str, str] = field(default_factory=dict)
    base: str = ""

    @property
    def known(self) -> bool:
        return self.name != UNKNOWN

    @property
    def frozen(self) -> tuple[str, ...]:
        """Of the parameters those that are not trained, beside others that are; they stay out of what is sent."""
        held = tuple(name for name in self.parameters if name in self.untrained)
        if len(held) < len(self.parameters):
            return held
        return ()

    @property
    def frozen_numbers(self) -> int:
        shapes = dict(zip(self.state, self.shapes))
        return sum(prod(shapes[name]) for name in self.frozen)

    @property
    def trained(self) -> tuple[str, ...]:
        """Of the parameters those that every client sends; all of them, where none is trained."""
        return tuple(name for name in self.parameters if name not in self.untrained) or self.parameters

    @property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """The names of the tensors of a list, where it has as many: the whole state, or parameters alone."""
        return (self.state, self.parameters, self.trained)

    def layout(self, names: Sequence[str]) -> Layout:
        """Of these of its tensors, in the names of the network that is built again."""
        shapes = dict(zip(self.state, self.shapes))
        return Layout(tuple(self.called(n) for n in names), tuple(shapes[n] for n in names))

    def called(self, name: str) -> str:
        """A tensor's name in the network that is built again."""
        return self.renamed.get(name, self.prefix + name)


@dataclass(frozen=True, eq=False)
class NetworkOnBase:
    """A network whose parameters that nobody trains are given as values, by its owner's names."""

    network: Network
    values: dict[str, Tensor]


def base_of(model: object) -> dict[str, Tensor]:
    """Copies of the parameters of a model that nobody trains, by its owner's names."""
    if isinstance(model, NetworkOnBase):
        return model.values
    if not isinstance(model, nn.Module) or not any(p.requires_grad for p in model.parameters()):
        return {}
    return {name: p.to("cpu", torch.float32, copy=True) for name, p in frozen_of(model).items()}


def digest_of_base(values: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes and numbers; "" for none."""
    made = hashlib.sha256()
    for name, value in sorted(values.items()):
        made.update(f"{name} {tuple(value.shape)}".encode())
        made.update(value.contiguous().numpy().data)
    if values:
        return made.hexdigest()
    return ""


def network_of(model: object) -> Network:
    """The network of an nn.Module; of a state dict, or of a list of arrays, the tensors alone. Raises BadInput."""
    if isinstance(model, NetworkOnBase):
        return model.network
    if isinstance(model, Network):
        return model
    if isinstance(model, nn.Module):
        return _of_module(model)
    if isinstance(model, Mapping) and model:
        named = dict(model)
    elif isinstance(model, Sequence) and not isinstance(model, str) and model:
        named = {f"tensor-{i:03d}": value for i, value in enumerate(model)}
    else:
        raise BadInput(f"model is a {type(model).__name__}: expected an nn.Module, a state dict, or a list of arrays")
    _check_tensors(named)
    if not any(0 not in value.shape for value in named.values()):
        raise BadInput("model: no tensor holds a number, so nothing of it can be sent")
    names = tuple(named)
    counters = tuple(n for n, v in named.items() if not _floating(v) and prod(v.shape) == 1)
    buffers = tuple(n for n in names if n in counters or n.endswith(RUNNING))
    trained = tuple(n for n in names if n not in buffers) or names
    shapes = tuple(tuple(v.shape) for v in named.values())
    return Network(UNKNOWN, {}, names, shapes, trained, untrained=buffers, whole=counters)


def _check_tensors(named: Mapping[Any, Any]) -> None:
    """Raises BadInput for what is no tensor of one shape."""
    for name, value in named.items():
        if (
            not isinstance(name, str)
            or not isinstance(value, Tensor | np.ndarray)
            or getattr(value, "is_nested", False)
        ):
            raise BadInput(f"model: {name!r} is no tensor of one shape; a state dict has names, and tensors or arrays")
        if isinstance(value, Tensor) and nn.parameter.is_lazy(value):
            raise BadInput(f"model: {name!r} of a lazy layer has no shape yet; let the network take a record first")


def _place(value: Tensor) -> int:
    """Where its numbers lie; 0 where nobody can tell."""
    if value.numel() and value.layout == torch.strided and not value.is_meta:
        return value.data_ptr()
    return 0


def _floating(value: Tensor | np.ndarray) -> bool:
    if isinstance(value, Tensor):
        return value.is_floating_point()
    return value.dtype.kind == "f"


def _of_module(module: nn.Module) -> Network:
    with bad_input("model"), owners("its state_dict"):
        held = module.state_dict()
    _check_tensors(held)
    state = {n: tuple(v.shape) for n, v in held.items()}
    own = dict(module.named_parameters())
    if not own:
        raise BadInput(f"model: {type(module).__name__} has no parameters, so nothing of it can be sent")
    names = tuple(n for n in state if n in own)
    shapes = tuple(state.values())
    first = {place: n for n in reversed(state) if (place := _place(held[n]))}
    twins = {n: first[_place(v)] for n, v in held.items() if first.get(_place(v), n) != n}
    untrained = tuple(n for n in state if not getattr(own.get(twins.get(n, n)), "requires_grad", False))
    whole = tuple(n for n in untrained if not _floating(held[n]))
    stack = [layer for layer in _stack(module) if layer is not None]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    if stack and isinstance(stack[0], models.Normalise):
        mean, std = (tuple(v.flatten().tolist()) for v in (stack[0].mean, stack[0].std))
    printed = tuple(models.describe(module))
    described = [_described(layer) for layer in stack if not isinstance(layer, models.Normalise)]
    entries = [entry for entry in described if entry is not None]
    beside: dict[str, Any] = {
        "layers": printed,
        "untrained": untrained,
        "whole": whole,
        "twins": twins,
        "base": digest_of_base(base_of(module)),
    }
    if stack and len(entries) == len(described) and len(names) == len(state):
        rebuilt = nn.Sequential(nn.Identity(), *models.layers((), 0, layers=entries))  # the normalisation comes first
        again = Layout.of(rebuilt)
        if again.shapes == tuple(state[n] for n in names):
            renamed = dict(zip(names, again.names))
            known = {"renamed": renamed, "mean": mean, "std": std, **beside}
            return Network("layers", {"layers": entries}, tuple(state), shapes, names, **known)
    if (options := facts_of_network(module)) is not None:
        return Network(LIBRARY, options, tuple(state), shapes, names, prefix="1.network.", **beside)
    return Network(path_of(type(module)), {}, tuple(state), shapes, names, prefix="1.", **beside)


def _stack(module: nn.Module) -> list[nn.Module | None]:
    """The layers of nested Sequentials, one after the other; [None] of anything else."""
    if type(module) is nn.Sequential:
        return [layer for child in module.children() for layer in _stack(child)]
    known = type(module) in (*models.LAYERS.values(), models.Normalise, nn.Dropout)
    return [module if known else _Strange()]


class _Strange(nn.Module):
    """A layer that nobody but its owner can build."""


def _described(layer: nn.Module) -> list[Any] | None:
    """A layer's name and the arguments that make it; an attack reads it as it is after training, so a Dropout does
    nothing. None for a stranger.
    """
    if isinstance(layer, nn.Dropout):
        return ["Identity", {}]
    if type(layer).__name__ not in models.LAYERS:
        return None
    given = {}
    for name in inspect.signature(type(layer).__init__).parameters:
        if name in ("self", "device", "dtype", "args", "kwargs", "inplace"):
            continue
        value = getattr(layer, name, None)
        if isinstance(value, Tensor) or (name == "bias" and not isinstance(value, bool)):
            value = value is not None
        given[name] = list(value) if isinstance(value, tuple) else value
    return [type(layer).__name__, given]


def path_of(builder: Callable[..., Any]) -> str:
    """Where a class or a function is imported from: for one of the script that runs, the script's own name."""
    module = builder.__module__
    if module == "__main__":
        module = _script()
    plain = "." not in builder.__qualname__ and module.partition(".")[0] != "torch"  # of a file of its owner's
    if module and plain:
        return f"{module}:{builder.__qualname__}"
    return UNKNOWN


def _script() -> str:
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file:
        return Path(file).stem
    return ""


def builder_of(build: str | Callable[..., Any]) -> tuple[str, Callable[..., Any]]:
    """What its owner says makes a network: its name, "module:function", and itself, in the owner's process.

    Raises:
        BadInput: it is nothing that can be called, or that could be imported again.
    """
    # "FILE.py:NAME", as other commands take it, is the module that the file is.
    name = build.replace(".py:", ":") if isinstance(build, str) else path_of(build)
    module, colon, function = name.partition(":")
    if not colon or not module or not function.isidentifier():
        raise BadInput(f'build = {short(build)}: expected "module:function", or the function, of a file of yours')
    if not isinstance(build, str):
        return name, build
    with bad_input(f"build = {build!r}"), owners("importing it"), models.from_here():
        space = sys.modules["__main__"]
        if module != _script():
            space = importlib.import_module(module)
        found = getattr(space, function)
    if not callable(found):
        raise BadInput(f"build = {build!r} is a {type(found).__name__}; expected a function that makes the network")
    return name, found


def built_by(network: Network, name: str) -> Network:
    """The network as made by what is imported as `name`: its tensors have their owner's names."""
    return replace(network, name=name, options={}, prefix="1.", renamed={}, mean=(), std=())
