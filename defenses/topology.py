"""Who sends to whom, and under which address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import networkx
import torch

from .wire import SERVER


@dataclass(frozen=True)
class Group:
    """`members` send to `hub`, who merges their values into its model and sends that model to the `receivers`, if any.

    A hub that is among its own members keeps its value to itself.
    """

    hub: int
    members: tuple[int, ...]
    receivers: tuple[int, ...] = ()


class Topology(Protocol):
    @property
    def central(self) -> bool:
        """Whether there is one global model, kept by a server and sent to everybody at the start of a round."""
        ...

    @property
    def anonymous(self) -> bool:
        """Whether a proxy hands out a fresh address to every party each round."""
        ...

    def groups(
        self, round: int, cohort: Sequence[int], clients: Sequence[int], rng: torch.Generator
    ) -> list[Group]: ...


@dataclass(frozen=True)
class Star:
    """Everybody sends to the server."""

    central: bool = True
    anonymous: bool = False

    def groups(self, round: int, cohort: Sequence[int], clients: Sequence[int], rng: torch.Generator) -> list[Group]:
        del round, clients, rng
        return [Group(SERVER, tuple(cohort))]


@dataclass(frozen=True)
class Gossip:
    """Everybody sends to `degree` others over a random regular graph drawn each round (THESIS Alg. 5.2).

    Each merges what it received. A graph needs degree < members and an even degree·members; the degree is lowered by
    one where a round's cohort does not allow it.
    own: a member's own value counts among those it merges (the text of THESIS 5.2; the algorithm leaves it out).
    """

    degree: int
    own: bool = False
    central: bool = False
    anonymous: bool = True

    def groups(self, round: int, cohort: Sequence[int], clients: Sequence[int], rng: torch.Generator) -> list[Group]:
        del round, clients
        degree = min(self.degree, len(cohort) - 1)
        degree -= degree * len(cohort) % 2
        graph = networkx.random_regular_graph(degree, len(cohort), seed=int(torch.randint(2**31, (1,), generator=rng)))
        groups = []
        for place, hub in enumerate(cohort):
            senders = sorted(cohort[other] for other in graph.neighbors(place))
            groups.append(Group(hub, tuple(senders) + ((hub,) if self.own else ())))
        return groups


@dataclass(frozen=True)
class Leader:
    """A random member collects the others' values, merges them into its model and answers with it (THESIS Alg. 5.2)."""

    central: bool = False
    anonymous: bool = True

    def groups(self, round: int, cohort: Sequence[int], clients: Sequence[int], rng: torch.Generator) -> list[Group]:
        del round, clients
        hub = cohort[int(torch.randint(len(cohort), (1,), generator=rng))]
        others = tuple(member for member in cohort if member != hub)
        return [Group(hub, others, others)]
