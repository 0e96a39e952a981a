"""What is seen of a whole training whose hub adds correlated noise: all rounds together, decorrelated.

The noise of one round is in others too, so no round is a trial of its own: whoever scores rounds one by one either
counts the same noise several times or gives it away as known. Here a trial is the sequence of what all rounds added to
the model, x + D Z, drawn through the hub's own code from its first round to the last that tells something of the
canary; what is scored is W(x + D Z), with W D Dᵀ Wᵀ = 1. Where the strategy C is square, W is C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ....defenses.federation import State, merge
from ....defenses.participation import Cohort
from ....defenses.scheme import Scheme
from ....defenses.steps.perturb import PerturbCorrelated
from ....defenses.strategies import decoder_of
from ....defenses.topology import Group
from ....defenses.wire import SERVER, Parcel
from ...two_worlds.likelihood import Expected, Mechanism
from .trials import HubTrials


def chain_of(scheme: Scheme) -> PerturbCorrelated | None:
    """The hub's correlated noise, None where rounds are independent."""
    return next((step for step in scheme.server if isinstance(step, PerturbCorrelated)), None)


@dataclass(frozen=True, eq=False)
class SequenceTrials:
    """A training's increments with a client's canary in some rounds, decorrelated. What others send is known and left
    out of the rounds that the client is not in.

    hubs: by round, those that the client is in.
    """

    mechanism: ClassVar[Mechanism] = "gaussian"
    rate: ClassVar[float] = 1.0
    hubs: Mapping[int, HubTrials]
    chain: PerturbCorrelated

    @classmethod
    def of(cls, hubs: Sequence[HubTrials]) -> SequenceTrials:
        """Raises ValueError where the cohort is drawn in secret, or something is done to the value after the noise."""
        scheme = hubs[0].uploads.moment.federation.scheme
        chain = chain_of(scheme)
        if chain is None or scheme.server[-1] is not chain:
            raise ValueError("what is done to a value after correlated noise was added is not undone here")
        if any(hub.group_cohort.sampling is not None for hub in hubs):
            raise ValueError("correlated noise and a cohort that is drawn in secret are not audited together")
        return cls({hub.uploads.moment.state.round: hub for hub in hubs}, chain)

    @property
    def sizes(self) -> Sequence[int]:
        return [*self._first.uploads.worlds[0].job.layout.sizes] * self.rounds

    @cached_property
    def rounds(self) -> int:
        """Up to the last that the canary's values are in."""
        strategy = self.chain.correlated.strategy
        last: dict[int, int] = {}
        for t in range(strategy.rounds):
            last.update((row, t) for row, _ in strategy.column(t))
        return 1 + max(last[row] for t in self.hubs for row, _ in strategy.column(t))

    @cached_property
    def whitening(self) -> Tensor:
        """W, (rounds, rounds)."""
        decoder = decoder_of(self.chain.correlated.strategy)[: self.rounds]
        return torch.from_numpy(np.linalg.inv(np.linalg.cholesky(decoder @ decoder.T)))

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        own = {t: hub.uploads.parcels(world, seeds) for t, hub in self.hubs.items()}
        return torch.stack(
            [self._whitened({t: own[t][i] for t in own}, seed, quiet=False) for i, seed in enumerate(seeds)]
        )

    def expected(self) -> tuple[Expected, Expected]:
        return self._expected(0), self._expected(1)

    def memory_after(self, world: int) -> Mapping[str, Any]:
        return self._first.memory_after(world)

    @property
    def _first(self) -> HubTrials:
        return self.hubs[min(self.hubs)]

    def _expected(self, world: int) -> Expected:
        quiet = {t: hub.quiet(world) for t, hub in self.hubs.items()}
        several = range(len(quiet[min(quiet)]))
        centres = [self._whitened({t: parcels[k] for t, parcels in quiet.items()}, 0, quiet=True) for k in several]
        return Expected(torch.stack(centres).mean(0), self.chain.noise_std)

    def _whitened(self, own: Mapping[int, Parcel], seed: int, quiet: bool) -> Tensor:
        """What a trial's rounds added, as models tell it, decorrelated: (rounds · d,)."""
        kept: dict[str, Tensor] = {}
        added = []
        for t in range(self.rounds):
            hub = self.hubs.get(t)
            if hub is None:
                merged = self._noise_alone(t, seed, quiet, kept)
            else:
                merged = hub.merged(own[t], seed, quiet, kept)
            added.append(merged.vector.to(self._first.uploads.worlds[0].job.start.dtype))
        return (self.whitening @ torch.stack(added).double()).flatten()

    def _noise_alone(self, round: int, seed: int, quiet: bool, kept: dict[str, Tensor]) -> Parcel:
        moment = self._first.uploads.moment
        model = moment.state.models[SERVER]
        state = State(round, {SERVER: replace(model, vector=torch.zeros_like(model.vector))})
        state.kept[SERVER] = kept
        plan = moment.plan_of(quiet)
        nobody = Group(SERVER, ())
        return merge(replace(moment.federation, seed=seed), state, nobody, Cohort(()), plan, [])[0]
