"""Who takes part in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from .randomness import Keystream
from .wire import Sampling


@dataclass(frozen=True)
class Cohort:
    """The clients of a round.

    sampling: how they were drawn where that stays secret to somebody, None where everybody knows who takes part. A
    secret draw may amplify a central mechanism's guarantee towards those who do not see single uploads.
    """

    members: tuple[int, ...]
    sampling: Sampling | None = None

    @property
    def size_is_secret(self) -> bool:
        """Whether how many take part tells of who does: the round then takes place even with nobody."""
        return self.sampling is not None and self.sampling.kind == "poisson"


class Participation(Protocol):
    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        """The cohort of a round, of the `clients` who can still take part; `rng` is secret, as the cohort may be."""
        ...


@dataclass(frozen=True)
class Everyone:
    """All clients, every round."""

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del round, rng
        return Cohort(tuple(clients))


@dataclass(frozen=True)
class Uniform:
    """A cohort of fixed size drawn without replacement, anew each round. Never priced as Poisson sampling."""

    size: int

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del round
        size = min(self.size, len(clients))
        chosen = rng.permutation(len(clients))[:size].sort().values
        return Cohort(tuple(clients[i] for i in chosen.tolist()), Sampling("without_replacement", len(clients), size))


@dataclass(frozen=True)
class Poisson:
    """Every client is in a round with probability `rate`, by a coin of its own (McMahan et al. 2018): nobody may be."""

    rate: float

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del round
        chosen = (rng.uniform(len(clients)) < self.rate).tolist()
        members = tuple(c for c, inside in zip(clients, chosen) if inside)
        return Cohort(members, Sampling("poisson", len(clients), self.rate * len(clients)))


def drawn(size: int | None, clients: int) -> Participation:
    """`size` clients of all by lot each round, or everybody (None). Raises ValueError where there are not so many."""
    if size is not None and size > clients:
        raise ValueError(f"participants = {size}: there are only {clients} clients")
    return Everyone() if size is None or size == clients else Uniform(size)


@dataclass(frozen=True)
class RoundRobin:
    """`size` clients in turn: everybody knows whose turn it is, so nothing is amplified."""

    size: int

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del rng
        start = round * self.size
        return Cohort(tuple(sorted({clients[(start + i) % len(clients)] for i in range(self.size)})))


@dataclass(frozen=True)
class Dropout:
    """`inner`'s cohort without the clients who fail to answer, each with `probability`.

    The server sees who answers: no amplification. A round in which nobody answers is asked again.
    """

    inner: Participation
    probability: float

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        cohort = self.inner.select(round, clients, rng)
        keep = torch.zeros(len(cohort.members), dtype=torch.bool)
        while len(keep) and not keep.any():
            keep = rng.uniform(len(keep)) >= self.probability
        return Cohort(tuple(c for c, k in zip(cohort.members, keep.tolist()) if k))
