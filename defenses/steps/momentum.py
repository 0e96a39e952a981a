"""Momentum on the hub: a running mean of the merged values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ..releases import carrying
from ..scheme import Context
from ..wire import Parcel

CARRIES = "a hub's running mean holds values of the rounds before, of whoever took part in them"


@dataclass(frozen=True)
class Momentum:
    """V ← βV + (1 − β)·value, sent on in the value's place; V starts at 0 (THESIS 3.6).

    beta: in [0, 1). V is the party's own lasting state, `context.kept["momentum"]`.
    After noise it is post-processing of all rounds' values, and a party's message carries the earlier ones too. Before
    noise the value does: its bound is no longer this round's, so one that was public becomes none, and a private one
    stays private. A hub's also holds values of whoever took part before, so a later clip bounds nothing that the
    releases of this round could be priced by (`Parcel.carries`).
    """

    beta: float

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        old = context.kept.get("momentum", torch.zeros_like(parcel.vector))
        vector = self.beta * old + (1 - self.beta) * parcel.vector
        context.kept["momentum"] = vector
        bound = parcel.bound if parcel.bound is not None and parcel.bound.private else None
        releases = frozenset(map(carrying, parcel.releases))
        carries = CARRIES if context.hub else parcel.carries
        return replace(parcel, vector=vector, bound=bound, releases=releases, noise_std=0.0, carries=carries)
