"""A model's tensors in whatever form they come: a state dict, a list of arrays (Flower's), a flat vector, a safetensors
or npz file. Nothing that runs code is opened: no pickle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from ..errors import BadInput, bad_input
from ..owners_code import owners
from ..setup.reading import regular
from ..tensors import real_numbers
from .dump_files import foreign
from .network import Network
from .wrappers import bare_names, wrappers_in


class NotFiniteTensor(BadInput):
    """A value with a NaN or an infinity in it."""


def names_in(value: object, network: Network, where: str) -> tuple[str, ...]:
    """Which of the network's tensors a value holds, in the state dict's order, but those that are frozen. Raises
    BadInput.
    """
    read = _read(value, network, where)
    if stranger := [n for n in read if n not in network.state]:
        known = first_few(network.state, 4)
        raise BadInput(f"{where}: tensor {stranger[0]!r} is none of the model's, which are {known}")
    if missing := [n for n in network.trained if n not in read]:
        raise BadInput(f"{where}: the model's tensor {missing[0]!r} is missing; what came are {first_few([*read], 4)}")
    return tuple(n for n in network.state if n in read and n not in network.frozen)


def wrapped_by(value: object, network: Network) -> list[str]:
    """Who put parts into the names of a value's tensors that the model's names lack, for people."""
    if isinstance(value, nn.Module):
        value = value.state_dict()
    if not isinstance(value, Mapping):
        return []
    return wrappers_in(bare_names(value, network.state))


def frozen_in(value: object, network: Network, where: str) -> dict[str, Tensor]:
    """What a value holds of the parameters that nobody trains, by name, as float32. Raises BadInput."""
    if not network.frozen:
        return {}
    read = _read(value, network, where)
    with bad_input(where):
        return {n: real_numbers(read[n], f"tensor {n!r}", torch.float32) for n in network.frozen if n in read}


def frozen_moved(held: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> str:
    """The first of `frozen_in` that is not as in `base`; "" for none."""
    return next((n for n, v in held.items() if not bool((v == base[n]).all())), "")


def flat_of(value: object, network: Network, names: Sequence[str], where: str) -> Tensor:
    """A value as one vector (d,) of float32: the tensors `names`, each of its own shape.

    float64 is rounded to float32; whole numbers (counters) are taken where float32 holds them. Of parameters that
    nobody trains nothing is taken.

    Raises:
        BadInput: tensors are missing, or others, or of another shape, in one sentence; NotFiniteTensor for a NaN.
    """
    read = {n: v for n, v in _read(value, network, where, len(names)).items() if n not in network.frozen}
    shapes = dict(zip(network.state, network.shapes))
    if missing := [n for n in names if n not in read]:
        how = f"what came are {first_few([*read], 4)}"
        if missing[0] in network.untrained or missing[0] in network.twins:
            how = "where clients keep it to themselves, broadcast without it, as dict(net.named_parameters())"
        raise BadInput(f"{where}: the tensor {missing[0]!r} is missing; the first broadcast had it; {how}")
    if more := [n for n in read if n not in names]:
        raise BadInput(f"{where}: the tensor {more[0]!r} is new; the first broadcast had {first_few(names, 4)}")
    parts = []
    for name in names:
        with bad_input(where):
            tensor = real_numbers(read[name], f"tensor {name!r}", torch.float32)
        if tuple(tensor.shape) != shapes[name]:
            raise BadInput(
                f"{where}: tensor {name!r} has shape {tuple(tensor.shape)}; the model's has {tuple(shapes[name])}"
            )
        # A sum is finite of finite numbers but very large ones, and a tenth of the work of looking at each.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise NotFiniteTensor(f"{where}: tensor {name!r} holds a value that is not finite")
        parts.append(tensor.reshape(-1))
    return torch.cat(parts)


def _read(value: object, network: Network, where: str, count: int | None = None) -> dict[str, Any]:
    """By the owner's names. count: of tensors, where that is known."""
    if isinstance(value, nn.Module):
        with bad_input(where), owners("its state_dict"):
            return _unwrapped(dict(value.state_dict()), network)
    if isinstance(value, Mapping):
        return _unwrapped(dict(value), network)
    if isinstance(value, bytes | bytearray):
        return _safetensors(bytes(value), where)
    if isinstance(value, str | Path):
        return _file(Path(value), where)
    if isinstance(value, Tensor | np.ndarray):
        return _parted(value, network, where, count)
    if isinstance(value, Sequence):
        for names in network.orders:
            if len(names) == len(value):
                return dict(zip(names, value))
        raise BadInput(
            f"{where}: {len(value)} arrays; the model has {len(network.state)} tensors, {len(network.trained)} of them"
            " trained"
        )
    raise BadInput(
        f"{where} is a {type(value).__name__}: expected a state dict, a list of arrays, a flat vector, or a safetensors"
        " or npz file"
    )


def _unwrapped(read: dict[str, Any], network: Network) -> dict[str, Any]:
    """By the model's names, where wrappers (of Opacus, DDP, torch.compile) put parts into them, or somebody the same
    before all of them.
    """
    first, state = str(next(iter(read), "")), {*network.state}
    if state >= {*read}:
        return read
    if own := bare_names(read, network.state):
        return {own[name]: value for name, value in read.items()}
    saved = {_saved(name): name for name in network.trained}
    if saved.keys() >= {*read}:
        return {saved[name]: value for name, value in read.items()}
    for prefix in (first.removesuffix(name) for name in state if first.endswith(f".{name}")):
        bare = {str(name).removeprefix(prefix): value for name, value in read.items()}
        if all(str(name).startswith(prefix) for name in read) and state >= {*bare}:
            return bare
    parts = [name.removesuffix(first) for name in network.trained if first and name.endswith(f".{first}")]
    whole = [part for part in parts if {*read} == {n.removeprefix(part) for n in state if n.startswith(part)}]
    if len(whole) == 1:  # one module's own state dict, as of a head
        return {whole[0] + str(name): value for name, value in read.items()}
    return read


def _saved(name: str) -> str:
    """What peft's `get_peft_model_state_dict` calls a tensor of the only adapter."""
    return name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def _parted(value: Tensor | np.ndarray, network: Network, where: str, count: int | None) -> dict[str, Any]:
    """A flat vector (d,) as named tensors."""
    shapes = dict(zip(network.state, network.shapes))
    for names in network.orders[::-1]:
        sizes = [int(np.prod(shapes[n])) for n in names]
        if value.ndim == 1 and len(value) == sum(sizes) and count in (None, len(names)):
            ends = np.cumsum([0, *sizes]).tolist()
            return {n: value[a:b].reshape(shapes[n]) for n, a, b in zip(names, ends, ends[1:])}
    raise BadInput(f"{where}: an array of shape {tuple(value.shape)} is not all of the model's numbers in a row")


def _file(path: Path, where: str) -> dict[str, Any]:
    if path.suffix not in (".npz", ".safetensors"):
        raise BadInput(f"{where}: {path} is neither .safetensors nor .npz; a pickle (.pt, .pkl) would run its own code")
    return read_file(path, f"{where}: ")


def _safetensors(content: bytes, where: str) -> dict[str, Any]:
    try:
        return dict(load_safetensors(content))
    except (SafetensorError, ValueError) as error:
        raise BadInput(f"{where}: not whole safetensors ({error})") from None


def read_file(path: Path, where: str = "") -> dict[str, Any]:
    """The arrays of an .npz or .safetensors file by name, and that of an .npy file as "values"; objects, which would be
    pickled, are refused. Raises BadInput.
    """
    if other := foreign(path):
        raise BadInput(f"{path} is {other}")
    if path.suffix not in (".npz", ".npy"):
        return _safetensors(regular(path).read_bytes(), f"{where}{path}")
    try:
        held = np.load(regular(path), allow_pickle=False)
        if isinstance(held, np.ndarray):
            return {"values": held}
        with held as file:
            return {name: file[name] for name in file.files}
    except BadInput:
        raise
    except Exception as error:  # a broken zip, an object array, a wrong header: numpy and zipfile raise many kinds
        why = " ".join(str(error).split())[:120]
        raise BadInput(f"{path}: not a whole {path.suffix} of plain arrays ({why})") from None


def first_few(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> first_few(["a", "b", "c"], 3), first_few(["a", "b", "c"], 1)
    ('a, b, c', 'a and 2 more')
    """
    shown = ", ".join(map(str, names[:most]))
    if len(names) <= most:
        return shown
    return f"{shown} and {len(names) - most} more"
