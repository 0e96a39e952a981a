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

from ..errors import BadInput
from ..setup.reading import regular
from .network import Network

MOST_EXACT = 2**24  # integers up to here are float32 numbers


class NotFiniteTensor(BadInput):
    """A value with a NaN or an infinity in it."""


def names_in(value: object, network: Network, where: str) -> tuple[str, ...]:
    """Which of the network's tensors a value holds, in the state dict's order. Raises BadInput."""
    read = _read(value, network, where)
    if stranger := [n for n in read if n not in network.state]:
        raise BadInput(f"{where}: tensor {stranger[0]!r} is none of the model's, which are {_few(network.state)}")
    if missing := [n for n in network.parameters if n not in read]:
        raise BadInput(f"{where}: the model's tensor {missing[0]!r} is missing")
    return tuple(n for n in network.state if n in read)


def flat_of(value: object, network: Network, names: Sequence[str], where: str) -> Tensor:
    """A value as one vector (d,) of float32: the tensors `names`, each of its own shape.

    float64 is rounded to float32; whole numbers (counters) are taken where float32 holds them.

    Raises:
        BadInput: tensors are missing, or others, or of another shape, in one sentence; NotFiniteTensor for a NaN.
    """
    read = _read(value, network, where, len(names))
    shapes = dict(zip(network.state, network.shapes))
    if missing := [n for n in names if n not in read]:
        kept = missing[0] in network.untrained
        how = (
            "; where clients keep it to themselves, broadcast without it, as dict(net.named_parameters())"
            if kept
            else ""
        )
        raise BadInput(f"{where}: the tensor {missing[0]!r} is missing; the first broadcast had it{how}")
    if more := [n for n in read if n not in names]:
        raise BadInput(f"{where}: the tensor {more[0]!r} is new; the first broadcast had {_few(names)}")
    parts = []
    for name in names:
        tensor = _tensor(read[name], f"{where}: tensor {name!r}")
        if tuple(tensor.shape) != shapes[name]:
            raise BadInput(
                f"{where}: tensor {name!r} has shape {tuple(tensor.shape)}; the model's has {tuple(shapes[name])}"
            )
        # A sum is finite of finite numbers but very large ones, and a tenth of the work of looking at each.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise NotFiniteTensor(f"{where}: tensor {name!r} holds a value that is not finite")
        parts.append(tensor.reshape(-1))
    return torch.cat(parts)


def _tensor(value: Any, where: str) -> Tensor:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise BadInput(f"{where} is of {value.dtype}; expected numbers")
        whole = np.ascontiguousarray(value)
        value = torch.from_numpy(whole if whole.flags.writeable else whole.copy()).reshape(value.shape)
    if not isinstance(value, Tensor):
        raise BadInput(f"{where} is a {type(value).__name__}; expected a tensor or an array")
    value = value.detach().cpu()
    if value.is_complex():
        raise BadInput(f"{where} is of {value.dtype}; expected real numbers")
    value = value.to_dense() if value.layout != torch.strided else value
    if not value.is_floating_point() and value.numel() and float(value.double().abs().max()) > MOST_EXACT:
        raise BadInput(f"{where} holds whole numbers beyond {MOST_EXACT}, which float32 cannot; leave it out")
    return value.to(torch.float32)


def _read(value: object, network: Network, where: str, count: int | None = None) -> dict[str, Any]:
    """By the owner's names. count: of tensors, where that is known."""
    if isinstance(value, nn.Module):
        return dict(value.state_dict())
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray):
        return _safetensors(bytes(value), where)
    if isinstance(value, str | Path):
        return _file(Path(value), where)
    if isinstance(value, Tensor | np.ndarray):
        return _parted(value, network, where, count)
    if isinstance(value, Sequence):
        for names in (network.state, network.parameters):
            if len(names) == len(value):
                return dict(zip(names, value))
        raise BadInput(
            f"{where}: {len(value)} arrays; the model has {len(network.state)} tensors, {len(network.parameters)} of"
            " them trained"
        )
    raise BadInput(
        f"{where} is a {type(value).__name__}: expected a state dict, a list of arrays, a flat vector, or a safetensors"
        " or npz file"
    )


def _parted(value: Tensor | np.ndarray, network: Network, where: str, count: int | None) -> dict[str, Any]:
    """A flat vector (d,) as named tensors."""
    shapes = dict(zip(network.state, network.shapes))
    for names in (network.parameters, network.state):
        sizes = [int(np.prod(shapes[n])) for n in names]
        if value.ndim == 1 and len(value) == sum(sizes) and count in (None, len(names)):
            ends = np.cumsum([0, *sizes]).tolist()
            return {n: value[a:b].reshape(shapes[n]) for n, a, b in zip(names, ends, ends[1:])}
    raise BadInput(f"{where}: an array of shape {tuple(value.shape)} is not all of the model's numbers in a row")


def _file(path: Path, where: str) -> dict[str, Any]:
    if path.suffix == ".npz":
        return dict(read_npz(path))
    if path.suffix == ".safetensors":
        return _safetensors(regular(path).read_bytes(), f"{where}: {path}")
    raise BadInput(f"{where}: {path} is neither .safetensors nor .npz; a pickle (.pt, .pkl) would run its own code")


def _safetensors(content: bytes, where: str) -> dict[str, Any]:
    try:
        return dict(load_safetensors(content))
    except (SafetensorError, ValueError) as error:
        raise BadInput(f"{where}: not whole safetensors ({error})") from None


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; objects, which would be pickled, are refused. Raises BadInput."""
    try:
        with np.load(regular(path), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except BadInput:
        raise
    except Exception as error:  # a broken zip, an object array, a wrong header: numpy and zipfile raise many kinds
        raise BadInput(f"{path}: not a whole .npz of plain arrays ({' '.join(str(error).split())[:120]})") from None


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
