"""Who takes part in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

import numpy as np
import torch

from .randomness import Keystream
from .releases import Sampling


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


RARE = 1e-9  # a plan holds for all trainings but this share


class Participation(Protocol):
    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        """The cohort of a round, of the `clients` who can still take part; `rng` is secret, as the cohort may be."""
        ...

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        """In how many rounds any one of `clients` takes part at most, in all trainings but a share `RARE`.

        chance: with which a round that it is asked in counts.
        """
        ...

    def fewest(self, rounds: int, clients: int) -> int:
        """How many take part in each of `rounds` rounds at least, in all trainings but a share `RARE`."""
        ...


def most_of(rounds: int, chance: float, clients: int) -> int:
    """The least k that none of `clients` takes part more often in `rounds` rounds, each with `chance`, in all trainings
    but a share `RARE` (a union bound over binomial tails).

    >>> most_of(100, 1.0, 50), most_of(1000, 0.01, 100), most_of(0, 0.5, 3)
    (100, 37, 0)
    """
    from scipy.stats import binom

    return int(np.argmax(clients * binom.sf(np.arange(rounds + 1), rounds, min(chance, 1.0)) <= RARE))


def fewest_of(rounds: int, asked: int, chance: float) -> int:
    """The most that in each of `rounds` rounds at least so many of `asked` take part, each with `chance`, in all
    trainings but a share `RARE`.

    >>> fewest_of(10, 100, 1.0), fewest_of(10, 3, 0.5)
    (100, 0)
    """
    from scipy.stats import binom

    return int((rounds * binom.cdf(np.arange(asked), asked, chance) <= RARE).sum())


@dataclass(frozen=True)
class Everyone:
    """All clients, every round."""

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del round, rng
        return Cohort(tuple(clients))

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        return most_of(rounds, chance, clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return clients


@dataclass(frozen=True)
class Uniform:
    """A cohort of fixed size drawn without replacement, anew each round. Never priced as Poisson sampling."""

    size: int

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del round
        size = min(self.size, len(clients))
        chosen = rng.permutation(len(clients))[:size].sort().values
        return Cohort(tuple(clients[i] for i in chosen.tolist()), Sampling("without_replacement", len(clients), size))

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        return most_of(rounds, chance * min(1.0, self.size / clients), clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return min(self.size, clients)


@dataclass(frozen=True)
class Poisson:
    """Every client is in a round with probability `rate`, by a coin of its own (McMahan et al. 2018): nobody may be."""

    rate: float

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        del round
        chosen = (rng.uniform(len(clients)) < self.rate).tolist()
        members = tuple(c for c, inside in zip(clients, chosen) if inside)
        return Cohort(members, Sampling("poisson", len(clients), self.rate * len(clients)))

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        return most_of(rounds, chance * self.rate, clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return fewest_of(rounds, clients, self.rate)


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

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        return most_of(min(rounds, ceil(rounds * self.size / clients)), chance, clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return min(self.size, clients)


@dataclass(frozen=True)
class Separated:
    """Clients are dealt into `separation` groups by their numbers, which take turns; of the group whose turn it is,
    `size` clients are drawn by lot. So nobody takes part twice within `separation` rounds (arXiv:2306.08153).

    Whose turn it is everybody knows, and the draw is not taken for amplification.
    """

    size: int
    separation: int

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        own = [client for client in clients if client % self.separation == round % self.separation]
        chosen = rng.permutation(len(own))[: self.size].sort().values
        return Cohort(tuple(own[i] for i in chosen.tolist()))

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        turns, group = ceil(rounds / self.separation), self._least(clients)
        return most_of(turns, chance * min(1.0, self.size / max(group, 1)), clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return min(self.size, self._least(clients))

    def everybody(self, clients: int) -> bool:
        """Whether the draw leaves nobody of a group out, so that all is known beforehand."""
        return self.size >= ceil(clients / self.separation)

    def _least(self, clients: int) -> int:
        """The size of the smallest group."""
        return clients // self.separation


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

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        asked = self.inner.fewest(rounds, clients)
        answers = (1 - self.probability) / (1 - self.probability**asked)  # of one who is asked, as somebody answers
        return self.inner.most(rounds, clients, chance * answers)

    def fewest(self, rounds: int, clients: int) -> int:
        return max(1, fewest_of(rounds, self.inner.fewest(rounds, clients), 1 - self.probability))
