"""Canary updates: a client that sends what it likes."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from ...defenses.randomness import generator


@dataclass(frozen=True)
class RandomUpdate:
    """A random direction (Andrew et al., arXiv:2302.03098): nearly orthogonal to everything else in many dimensions.

    >>> update = RandomUpdate().update(1000, 2.0, 2, seed=1)
    >>> round(update.norm().item(), 4), torch.equal(update, RandomUpdate().update(1000, 2.0, 2, seed=1))
    (2.0, True)
    """

    name: str = "random-update"

    def update(self, dim: int, norm: float, order: int, seed: int) -> Tensor:
        direction = torch.randn(dim, generator=generator(seed, "canary update"))
        return direction * (norm / float(torch.linalg.vector_norm(direction, order)))


@dataclass(frozen=True)
class DiracUpdate:
    """All of the norm on one coordinate, which follows from the seed."""

    name: str = "dirac-update"

    def update(self, dim: int, norm: float, order: int, seed: int) -> Tensor:
        update = torch.zeros(dim)
        update[int(torch.randint(dim, (1,), generator=generator(seed, "canary coordinate")))] = norm
        return update


@dataclass(frozen=True)
class NotFinite:
    """A random update with one component that is not a number: what a clip that compares norms lets through."""

    name: str = "not-finite"

    def update(self, dim: int, norm: float, order: int, seed: int) -> Tensor:
        update = RandomUpdate().update(dim, norm, order, seed)
        update[0] = nan
        return update
