"""A DP-FL scheme is data: a frozen composition of small frozen steps. Plain FedAvg is the empty scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from .aggregate import Aggregate, Mean
from .layout import Layout
from .local import LocalResult, LocalTraining
from .participation import Everyone, Participation
from .releases import Release, Sampling
from .schedule import FixedRounds, RoundPlan, Schedule
from .terms import Adjacency, Claimant, Observer, Unit
from .topology import Star, Topology
from .update import Add, Update
from .wire import Kind, Parcel


@dataclass(frozen=True, eq=False)
class Context:
    """What a step may use. `memory` (JSON-able values) and `kept` (tensors) are the party's own lasting state, changed
    by name; everything else is read only.

    seed: of the noise and of opaque ids, a secret (`Federation.secret`).
    party: for names and random streams alone; what a step bounds or draws may differ with all else here, but not with
    whose it is (`audit epsilon` plans one client's round and takes it for all that are alike).
    start: (d,) the model the party started the round from. result: what local training left (None on a hub).
    num_examples: the party's records (on a hub: of all its senders). senders: how many values a hub received (at most,
    if that is secret). hub: whether the value was merged. subjects: whom it is about.
    told: numbers that came along with the model.
    log: public figures of the step, averaged over the cohort into rounds.csv.
    """

    seed: int
    round: int
    party: int
    plan: RoundPlan
    layout: Layout
    num_examples: int
    subjects: frozenset[int]
    start: Tensor
    result: LocalResult | None = None
    senders: int = 1
    hub: bool = False
    sampling: Sampling | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    log: dict[str, float] = field(default_factory=dict)

    @property
    def of_several(self) -> bool:
        """Whether the value holds those of several subjects, as a hub's mean does."""
        return len(self.subjects) > 1


class Step(Protocol):
    """One thing done to a value before it leaves a party. Parameters are fields; nothing is kept on self."""

    def __call__(self, parcel: Parcel, context: Context) -> Parcel: ...


class Gather(Protocol):
    """Something a hub does to all the values it received, before it averages them (e.g. clip to their median norm)."""

    def __call__(self, parcels: Sequence[Parcel], context: Context) -> list[Parcel]: ...


@dataclass(frozen=True)
class Claim:
    """The ε that somebody states; nothing here is proven.

    epsilon(releases, delta): the claimed ε of a party after that many releases: its `own`, or the federation's `rounds`
    where the claim counts those whoever took part (`counts`); infinite where it says nothing at that δ. None: whatever
    the accountant proves.
    observer, unit, adjacency: what the claim is about; it is compared only with proofs and demonstrations of the same.
    whose: the formula of the scheme's paper, a number of the setup's owner, or the accountant's (`epsilon` is None).
    """

    epsilon: Callable[[int, float], float] | None
    sentence: str
    observer: Observer = Observer("server")
    unit: Unit = "client"
    adjacency: Adjacency = "zero_out"
    counts: Literal["own", "rounds"] = "own"
    whose: Claimant = "paper"


@dataclass(frozen=True)
class Budget:
    """A personal budget. stop="before": a client takes part only while its claimed ε after one more release stays
    within `epsilon`. stop="after": everybody goes on until somebody's claimed ε has passed it (ADN Alg. 2 looks after
    the round: one release too many).
    """

    epsilon: float
    delta: float
    stop: Literal["before", "after"] = "before"


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """How a federation trains and what protects it.

    share: what a client's message is: the mean "gradient" of one batch, the "update" of its local training, or its
    "weights".
    client: steps on a client's value before it is sent. gather, aggregate, server: what the hub does with the values it
    received.
    update: how the merged value changes the model. claim: the scheme's own formula, by which budgets are spent too;
    None where it has none. Whether it is what the setup claims, its config says.
    min_clients: the run ends when fewer can still take part.
    """

    name: str
    source: str
    local: LocalTraining
    share: Kind = "update"
    client: tuple[Step, ...] = ()
    gather: tuple[Gather, ...] = ()
    aggregate: Aggregate = Mean()
    server: tuple[Step, ...] = ()
    update: Update = Add()
    schedule: Schedule = FixedRounds(1)
    participation: Participation = Everyone()
    topology: Topology = Star()
    claim: Claim | None = None
    budget: Budget | None = None
    min_clients: int = 1


__all__ = ["Budget", "Claim", "Context", "Gather", "Release", "Scheme", "Step"]
