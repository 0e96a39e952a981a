"""Large cohorts: a round's clients in slices, so that no process holds more than one slice's values, and several can
work at once.

Whoever works on a slice gets its clients' records and the model, and does all that its clients do: local training,
clip, noise, message. What comes back is an exact part of the hub's sum (`grid.PartialSum`), and of each message all but
its values. Noise is each client's own stream, so it is the same whoever draws it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from .engine import batched
from .federation import (
    Federation,
    Figures,
    OnRound,
    State,
    Uploads,
    as_sent,
    message_id,
    records_told,
    rounds,
    uploads_of,
)
from .grid import PartialSum, partial_sum
from .process import ready
from .progress import Progress
from .schedule import RoundPlan
from .scheme import Scheme
from .wire import SERVER, Parcel, Wire
from .workers import HERE, Workers

SLICED = "sliced"  # the name of this way to train
SLICE_CLIENTS = 100
SLICE_NUMBERS = 2**23  # of all clients' weights (about 40 bytes each while they train): a rule on shapes only


@dataclass(frozen=True, eq=False)
class Keep:
    """Which messages a capture keeps, and how: by whoever made them.

    clients: whose, of a round. write: a message's vector (d,) by its id, whole or not at all.
    """

    clients: Callable[[int], frozenset[int]] = lambda round: frozenset()
    write: Callable[[str, Tensor], None] = lambda name, vector: None


@dataclass(frozen=True, eq=False)
class Slice:
    """Some clients of a round's cohort, and all that they need.

    counts: k_i, by which the hub weights their values. rows: of inputs and targets, by client. kept: whose messages are
    written. state: the model, and what these clients remember.
    """

    counts: tuple[int, ...]
    rows: dict[int, Tensor]
    inputs: Tensor
    targets: Tensor
    kept: frozenset[int]
    state: State
    plan: RoundPlan


@dataclass(frozen=True, eq=False)
class SliceSent:
    """What came of a slice: its uploads without vectors, its part of the sum, what its clients remember now."""

    uploads: Uploads
    part: PartialSum
    memory: dict[int, dict[str, Any]] = field(default_factory=dict)
    tensors: dict[int, dict[str, Tensor]] = field(default_factory=dict)


def sliceable(scheme: Scheme) -> bool:
    """Whether the hub needs nothing but a sum: there is a server, and it does not look at single values first."""
    return scheme.topology.central and not scheme.gather


def run_sliced(
    federation: Federation,
    state: State | None = None,
    on_round: OnRound | None = None,
    keep: Keep | None = None,
    workers: Workers = HERE,
) -> State:
    """Train a federation slice by slice; as `run_many` of it alone, but for rounding in its float32 training.

    Args:
        federation: of a `sliceable` scheme. state: to go on from. on_round: hears of each round.
        keep: which messages are kept, and how; None for none. workers: who works on the slices.
    """
    ready()

    def clients_send(federation: Federation, state: State, plan: RoundPlan, members: Sequence[int]) -> Uploads:
        return _sliced(federation, state, plan, members, keep or Keep(), workers)

    running = rounds(federation, state, on_round, clients_send)
    try:
        next(running)
    except StopIteration as stop:
        return cast(State, stop.value)
    raise AssertionError("nobody asks for local jobs here")


def _sliced(
    federation: Federation, state: State, plan: RoundPlan, members: Sequence[int], keep: Keep, workers: Workers
) -> Uploads:
    data = federation.data
    none = data.inputs[:0], data.targets[:0]
    bare = replace(
        data,
        inputs=none[0],
        targets=none[1],
        test_inputs=none[0],
        test_targets=none[1],
        auxiliary_inputs=none[0],
        auxiliary_targets=none[1],
        groups=None,
        extra={},
    )
    work = partial(_slice_sent, replace(federation, data=bare, clients=(), wire=Wire()), keep.write)
    size = max(1, min(SLICE_CLIENTS, SLICE_NUMBERS // federation.layout.dim))
    parts = [members[first : first + size] for first in range(0, len(members), size)]
    parcels: dict[int, Parcel] = {}
    figures: dict[int, Figures] = {}
    batches: dict[int, Tensor] = {}
    lost, sums = 0, list[PartialSum]()
    for own, sent in zip(parts, workers.map(work, _slices(federation, state, plan, parts, keep))):
        parcels |= sent.uploads.parcels
        figures |= sent.uploads.figures
        rows = torch.cat([federation.clients[client] for client in own])
        for client, held in sent.uploads.batches.items():
            batches[client] = torch.where(held >= 0, rows[held.clamp_min(0)], -1)
        lost += sent.uploads.lost
        sums.append(sent.part)
        state.memory.update(sent.memory)
        state.kept.update(sent.tensors)
    return Uploads(parcels, figures, batches, lost, tuple(sums) or None)


def _slices(
    federation: Federation, state: State, plan: RoundPlan, parts: Sequence[Sequence[int]], keep: Keep
) -> Iterator[Slice]:
    members = [client for own in parts for client in own]
    weights = federation.scheme.aggregate.weights([len(federation.clients[m]) for m in members]) if members else None
    kept, first = keep.clients(state.round), 0
    for own in parts:
        assert weights is not None
        rows = torch.cat([federation.clients[client] for client in own])
        local = torch.arange(len(rows)).split([len(federation.clients[client]) for client in own])
        model = Parcel(
            state.models[SERVER].vector, side=state.models[SERVER].side
        )  # what it inherits is the hub's to remember
        yield Slice(
            weights.counts[first : first + len(own)],
            dict(zip(own, local)),
            federation.data.inputs[rows],
            federation.data.targets[rows],
            kept & frozenset(own),
            State(
                state.round,
                {SERVER: model},
                defaultdict(dict, {c: state.kept[c] for c in own if c in state.kept}),
                defaultdict(dict, {c: state.memory[c] for c in own if c in state.memory}),
                state.history,
            ),
            plan,
        )
        first += len(own)


def _slice_sent(
    federation: Federation, write: Callable[[str, Tensor], None], own: Slice, _: Progress | None
) -> SliceSent:
    """A slice's work. federation: without records."""
    data = replace(federation.data, inputs=own.inputs, targets=own.targets)
    federation = replace(federation, data=data, clients=cast(Any, own.rows))
    state, share = own.state, federation.scheme.share
    jobs = [federation.job(state, client, own.plan) for client in own.rows]
    sent = uploads_of(federation, state, own.plan, dict(zip(own.rows, zip(jobs, batched(jobs)))))
    parcels = list(sent.parcels.values())
    part = partial_sum([p.vector for p in parcels], own.counts, [p.step for p in parcels])
    for client in sorted(own.kept):
        name = message_id(
            federation, state.round, client, share, records_told(federation, client, sent.batches[client])
        )
        write(name, as_sent(sent.parcels[client], state.models[SERVER].vector.dtype).vector)
    light = {client: replace(parcel, vector=parcel.vector[:0].clone()) for client, parcel in sent.parcels.items()}
    return SliceSent(replace(sent, parcels=light), part, dict(state.memory), dict(state.kept))
