"""How a flat parameter vector maps to a model's named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor, nn


def frozen_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters that `module` does not train, by name: what everybody has before training, and nobody sends."""
    return {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}


def freeze(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Gives parameters of `module` values that training does not change. Raises ValueError where it has no such one."""
    named = dict(module.named_parameters())
    for name, value in values.items():
        if name not in named or named[name].shape != value.shape:
            raise ValueError(f"the network has no parameter {name!r} of shape {tuple(value.shape)}")
        named[name].requires_grad_(False).copy_(value)


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's parameters, in order; a flat vector of `dim` numbers is their concatenation.

    >>> layout = Layout(("w", "b"), ((2, 3), (2,)))
    >>> layout.dim, layout.slices
    (8, (slice(0, 6, None), slice(6, 8, None)))
    >>> layout.split(torch.arange(8.0))["b"]
    tensor([6., 7.])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of what `module` trains (`requires_grad`), in `named_parameters()` order."""
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        return cls(tuple(name for name, _ in named), tuple(tuple(p.shape) for _, p in named))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def dim(self) -> int:
        return sum(self.sizes)

    @property
    def numbers(self) -> int:
        """How many numbers a real value has, where this layout only stands in for a larger one."""
        return self.dim

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each tensor lies in the flat vector."""
        ends = [0]
        for size in self.sizes:
            ends.append(ends[-1] + size)
        return tuple(slice(a, b) for a, b in zip(ends, ends[1:]))

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of `flat` (..., d) as named tensors (..., *shape)."""
        lead = flat.shape[:-1]
        return {n: flat[..., s].reshape((*lead, *shape)) for n, s, shape in zip(self.names, self.slices, self.shapes)}

    def join(self, named: Mapping[str, Tensor]) -> Tensor:
        """The flat vector (d,) of named tensors; the inverse of `split`."""
        return torch.cat([named[n].reshape(-1) for n in self.names])
