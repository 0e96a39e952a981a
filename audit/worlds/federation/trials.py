"""What is seen of a client's round in either world, drawn through the very code that trains, clips, noises and merges
in a federation.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import floor, sqrt
from typing import Any, Protocol

import torch
from torch import Tensor

from ....defenses.engine import batched
from ....defenses.federation import State, as_sent, job_of, merge, upload
from ....defenses.local import LocalJob, LocalResult, batch_order
from ....defenses.participation import Cohort
from ....defenses.randomness import Keystream, generator, stream
from ....defenses.topology import Group
from ....defenses.wire import Parcel
from ...two_worlds.likelihood import Expected, Mechanism
from .client_round import Moment, World, snapshot

ORDERS = 32  # noise-free trainings whose mean is what a world is expected to send where batches are drawn anew
_FAINT = 1e-6  # of the largest std, for components that get no noise at all


class FederationTrials(Protocol):
    """A client's message, or what a hub makes of it, drawn by the federation's own code (`mechanism.Trials`)."""

    @property
    def sizes(self) -> Sequence[int]: ...

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def rate(self) -> float: ...

    def expected(self) -> tuple[Expected, Expected]: ...

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor: ...

    def memory_after(self, world: int) -> Mapping[str, Any]:
        """The client's own state after this round in a world, to begin its next one with."""
        ...


@dataclass(eq=False)
class UploadTrials:
    """The client's own message in a round: its training, its steps, their noise. The numbers that it sends along with
    the vector come last, sorted by name, each a part of its own; nobody adds noise to them.

    redraw: whether it trains anew in every trial, with a batch order (and noise inside training) of its own, or once;
    needed where training itself is random.
    """

    moment: Moment
    worlds: tuple[World, World]
    redraw: bool = False
    rate: float = 1.0
    _trained: dict[int, LocalResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.redraw = self.redraw or self.moment.federation.scheme.local.per_example is not None

    @cached_property
    def sizes(self) -> Sequence[int]:
        return [*self.worlds[0].job.layout.sizes, *[1] * len(self.parcels(0, [0], quiet=True)[0].side)]

    @property
    def mechanism(self) -> Mechanism:
        kinds = {getattr(step, "mechanism", "gaussian") for step in self.moment.federation.scheme.client}
        if "laplace" in kinds:
            return "laplace"
        return "gaussian"

    @property
    def orders(self) -> list[int]:
        """The seeds of the noise-free messages whose mean is what a world is expected to send."""
        if self.redraw:
            return [stream(k, "order") for k in range(ORDERS)]
        return [0]

    def trained(self, world: int) -> LocalResult:
        if world not in self._trained:
            (self._trained[world],) = batched([self.worlds[world].job])
        return self._trained[world]

    def parcels(self, world: int, seeds: Sequence[int], quiet: bool = False) -> list[Parcel]:
        """What the client hands on with fresh noise of each seed, before it is sent; quiet: without any noise."""
        chosen = self.worlds[world]
        if not self.redraw:
            return [self._sent(world, chosen.job, self.trained(world), seed, quiet) for seed in seeds]
        jobs = [self._redrawn(chosen.job, seed, quiet) for seed in seeds]
        return [self._sent(world, job, result, seed, quiet) for job, result, seed in zip(jobs, batched(jobs), seeds)]

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        return self._seen(world, self.parcels(world, seeds))

    def expected(self) -> tuple[Expected, Expected]:
        return self._expected(0), self._expected(1)

    def memory_after(self, world: int) -> Mapping[str, Any]:
        """The client's own state after this round in a world, to begin its next one with."""
        state = self._state(world)
        self._sent(world, self.worlds[world].job, self.trained(world), 0, True, state)
        return state.memory[self.moment.client]

    def _expected(self, world: int) -> Expected:
        seeds = self.orders
        quiet = self.parcels(world, seeds, quiet=True)
        centre = torch.stack([as_sent(parcel, self.worlds[world].job.start.dtype).vector for parcel in quiet]).mean(0)
        spread = spread_of(as_sent(self.parcels(world, seeds[:1])[0], self.worlds[world].job.start.dtype))
        if not quiet[0].side:
            return Expected(centre, spread)
        told = torch.stack([with_side(parcel.vector[:0], parcel.side) for parcel in quiet]).mean(0)
        return noise_free_too(Expected(centre, spread), told)

    def _seen(self, world: int, parcels: Sequence[Parcel]) -> Tensor:
        """The messages (n, d) that the parcels are sent as, with the numbers beside them."""
        sent = [as_sent(parcel, self.worlds[world].job.start.dtype) for parcel in parcels]
        return torch.stack([with_side(parcel.vector, parcel.side) for parcel in sent])

    def _sent(
        self, world: int, job: LocalJob, result: LocalResult, seed: int, quiet: bool, state: State | None = None
    ) -> Parcel:
        moment = self.moment
        plan, federation = moment.plan_of(quiet), replace(moment.federation, seed=seed)
        return upload(
            federation,
            state or self._state(world),
            moment.client,
            plan,
            job,
            self.worlds[world].result(result, job.start),
        )[0]

    def _state(self, world: int) -> State:
        return own_state(self.moment.state, self.moment.client, self.worlds[world].memory)

    def _redrawn(self, job: LocalJob, seed: int, quiet: bool) -> LocalJob:
        training, moment = job.training, self.moment
        rule = training.per_example
        if quiet and rule is not None:
            training = replace(training, per_example=replace(rule, noise_multiplier=0.0))
        if rule is not None and rule.batches == "disjoint":  # in an order that is public
            return replace(job, training=training, noise_seed=stream(seed, "local noise"))
        batches = batch_order(
            training,
            job.share,
            torch.arange(len(job.inputs)),
            moment.state.round,
            lambda epoch: generator(seed, "batches", moment.client, epoch),
            Keystream(seed, "batches", moment.client, moment.state.round),
        )
        return replace(job, training=training, batches=batches, noise_seed=stream(seed, "local noise"))


@dataclass(eq=False)
class HubTrials:
    """The model that a round's hub computes, with new noise of the client, of the honest others and of the hub.

    others: the messages of those whose noise is known, as they really were. honest: what the others trained, who draw
    their noise anew in every trial: it hides the client too.
    Where the cohort is drawn in secret, the client is drawn with the cohort's rate in every trial. When it is not,
    another client is there if cohorts are of a fixed size, and sends what this one would have sent without the canary;
    by coins of their own (Poisson) nobody is, as a mixture with anything else there can tell more than is promised.
    """

    uploads: UploadTrials
    others: Mapping[int, Parcel]
    honest: Mapping[int, tuple[LocalJob, LocalResult]]
    group: Group
    group_cohort: Cohort

    @classmethod
    def of(cls, uploads: UploadTrials, honest: float) -> HubTrials:
        """honest: the share of the other senders whose noise nobody but they know."""
        moment = uploads.moment
        cohort, groups = moment.cohort()
        group = next(g for g in groups if moment.client in g.members)
        state, members = snapshot(moment.state), [m for m in group.members if m != moment.client]
        jobs = [job_of(moment.federation, state, m, moment.plan) for m in members]
        trained = dict(zip(members, zip(jobs, batched(jobs))))
        sent = {m: upload(moment.federation, state, m, moment.plan, *trained[m])[0] for m in members}
        noisy = [m for m in members if any(r.mechanism != "none" and r.parents for r in sent[m].releases)]
        hidden = noisy[: floor(honest * len(members))]
        known = {m: parcel for m, parcel in sent.items() if m not in hidden}
        return cls(uploads, known, {m: trained[m] for m in hidden}, group, cohort)

    @cached_property
    def sizes(self) -> Sequence[int]:
        beside = self.merged(self.uploads.parcels(0, [0], quiet=True)[0], 0, True).side
        return [*self.uploads.worlds[0].job.layout.sizes, *[1] * len(beside)]

    @property
    def mechanism(self) -> Mechanism:
        kinds = {getattr(step, "mechanism", "gaussian") for step in self.uploads.moment.federation.scheme.server}
        if "laplace" in kinds:
            return "laplace"
        return self.uploads.mechanism

    @property
    def rate(self) -> float:
        sampling = self.group_cohort.sampling
        if sampling is None:
            return 1.0
        return sampling.cohort / sampling.population

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        present = [
            drawn or float(torch.rand(1, generator=generator(seed, "drawn into the cohort"))) < self.rate
            for seed in seeds
        ]
        models: dict[int, Tensor] = {}
        if self.group_cohort.size_is_secret:
            models = {i: self._model(None, seeds[i], False) for i, here in enumerate(present) if not here}
        for each in (0, 1):
            places = [i for i, here in enumerate(present) if i not in models and (world if here else 0) == each]
            if places:
                parcels = self.uploads.parcels(each, [seeds[i] for i in places])
                models |= {i: self._model(parcel, seeds[i], False) for i, parcel in zip(places, parcels)}
        return torch.stack([models[i] for i in range(len(seeds))])

    def expected(self) -> tuple[Expected, Expected]:
        return self._expected(0), self._expected(1)

    def memory_after(self, world: int) -> Mapping[str, Any]:
        return self.uploads.memory_after(world)

    def _expected(self, world: int) -> Expected:
        seeds = self.uploads.orders
        quiet = [self._model(parcel, seed, True) for parcel, seed in zip(self.quiet(world), seeds)]
        loud = self.merged(self.uploads.parcels(world, seeds[:1])[0], seeds[0], False)
        spread = spread_of(loud)
        if self.honest and loud.terms and not isinstance(spread, Tensor):  # equal noises but for the senders' weights
            spread *= sqrt(1 + len(self.honest))
        if isinstance(spread, Tensor):  # what is told beside the model has noise of its own, which is measured
            spread = torch.cat([spread, spread.new_ones(len(loud.side))])
        return Expected(torch.stack(quiet).mean(0), spread)

    def quiet(self, world: int) -> list[Parcel]:
        """What the client hands on without noise: once, or once for each of some batch orders where these are drawn."""
        return self.uploads.parcels(world, self.uploads.orders, quiet=True)

    def merged(self, own: Parcel | None, seed: int, quiet: bool, kept: dict[str, Tensor] | None = None) -> Parcel:
        """What the hub makes of the round's values, with noise of this seed or, quiet, without.

        Args:
            own: the client's; None where it sends nothing. seed: of all noise but the client's. quiet: no noise.
            kept: the hub's tensors before the round, changed by it; None for those that it really had.
        """
        moment, hub = self.uploads.moment, self.group.hub
        plan, before = moment.plan_of(quiet), moment.state
        federation = replace(moment.federation, seed=seed)
        state = own_state(before, hub, before.memory[hub])
        if kept is not None:
            state.kept[hub] = kept
        sent = {
            m: upload(federation, own_state(before, m, before.memory[m]), m, plan, job, result)[0]
            for m, (job, result) in self.honest.items()
        }
        values = {**self.others, **sent} | ({} if own is None else {moment.client: own})
        group = replace(self.group, members=tuple(m for m in self.group.members if m in values))
        return merge(federation, state, group, self.group_cohort, plan, [values[m] for m in group.members])[0]

    def _model(self, own: Parcel | None, seed: int, quiet: bool) -> Tensor:
        """The model that goes out, with the numbers beside it."""
        moment, hub = self.uploads.moment, self.group.hub
        merged, model = self.merged(own, seed, quiet), moment.state.models[hub].vector
        kept = moment.state.kept[hub]
        new = moment.federation.scheme.update(model, merged.vector, kept, moment.plan_of(quiet))[0].to(model.dtype)
        return with_side(new, merged.side)


def own_state(before: State, party: int, memory: Mapping[str, Any]) -> State:
    """The state before a round, of which a trial may change one party's part, begun with a copy of this memory."""
    return State(
        before.round,
        before.models,
        defaultdict(dict, {party: dict(before.kept[party])}),
        defaultdict(dict, {party: copy.deepcopy(dict(memory))}),
    )


def spread_of(parcel: Parcel) -> float | Tensor:
    """The std of the noise in a parcel, as far as the parcel says: a number (1 where it says none), or (d,)."""
    if not isinstance(parcel.noise_std, Tensor) or parcel.noise_std.ndim == 0:
        return float(parcel.noise_std) or 1.0
    std = parcel.noise_std.to(parcel.vector.dtype)
    largest = float(std.max())
    if largest > 0:
        return std.clamp_min(_FAINT * largest)
    return 1.0


def with_side(vector: Tensor, side: Mapping[str, float]) -> Tensor:
    """A message's vector (d,), then the k numbers that are sent along with it, sorted by name: (d + k,). In float64
    where there are any, as they are sent.
    """
    if not side:
        return vector
    return torch.cat([vector.double(), torch.tensor([side[name] for name in sorted(side)], dtype=torch.float64)])


def noise_free_too(expected: Expected, told: Tensor) -> Expected:
    """What a world sends where numbers `told` (k,) without noise come last. Their shape is faint, never 0."""
    centre = expected.centre
    shape = torch.as_tensor(expected.shape, dtype=centre.dtype).expand(len(centre))
    faint = torch.full_like(told, _FAINT * float(shape.max()))
    return Expected(torch.cat([centre, told]), torch.cat([shape, faint]))


@dataclass(frozen=True, eq=False)
class ToldTrials:
    """What is seen of a round by who was also told the model's mean and std, which differ between the worlds.

    Nobody adds noise to these numbers, so they come last in every message as they are.

    trials: the round's own message. apart: as `constants_apart` has it, which whoever is told the numbers can compute.
    """

    trials: FederationTrials
    apart: Tensor

    @property
    def sizes(self) -> Sequence[int]:
        return [*self.trials.sizes, len(self.apart)]

    @property
    def mechanism(self) -> Mechanism:
        return self.trials.mechanism

    @property
    def rate(self) -> float:
        return self.trials.rate

    def draw(self, world: int, seeds: Sequence[int], drawn: bool) -> Tensor:
        """Told to everybody before the first round, drawn or not."""
        messages = self.trials.draw(world, seeds, drawn)
        return torch.cat([messages, (world * self.apart).to(messages).expand(len(seeds), -1)], 1)

    def expected(self) -> tuple[Expected, Expected]:
        without, present = self.trials.expected()
        return self._told(0, without), self._told(1, present)

    def memory_after(self, world: int) -> Mapping[str, Any]:
        return self.trials.memory_after(world)

    def _told(self, world: int, expected: Expected) -> Expected:
        return noise_free_too(expected, (world * self.apart).to(expected.centre))
