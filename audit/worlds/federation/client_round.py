"""A client's round in two worlds: without and with the canary."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ....attacks.canary import Canary, CraftedStart, UpdateCanary
from ....defenses.data.dataset import statistics
from ....defenses.engine import batched
from ....defenses.federation import Federation, State, active_clients, cohort_of, groups_of, job_of, rounds, start_state
from ....defenses.layout import Layout
from ....defenses.local import LocalJob, LocalResult
from ....defenses.models import constants_of, with_constants
from ....defenses.participation import Cohort
from ....defenses.schedule import RoundPlan
from ....defenses.scheme import Scheme
from ....defenses.steps.clip import Clip, MedianClip, OwnNorm
from ....defenses.terms import Adjacency
from ....defenses.topology import Group

HUGE = 1e3  # of a canary update over the client's own: whatever clips, clips it


@dataclass(frozen=True, eq=False)
class Moment:
    """A federation at the beginning of a round in which `client` takes part."""

    federation: Federation
    state: State
    client: int

    @property
    def plan(self) -> RoundPlan:
        plan = self.federation.scheme.schedule.plan(self.state.round, self.state.history)
        if plan is None:
            raise ValueError(f"the scheme has no round {self.state.round}")
        return plan

    def plan_of(self, quiet: bool) -> RoundPlan:
        """The round's plan; quiet: without any noise."""
        if quiet:
            return replace(self.plan, noise=0.0)
        return self.plan

    @property
    def job(self) -> LocalJob:
        """The client's local training, over its own records alone, numbered 0 to n − 1."""
        job, rows = job_of(self.federation, self.state, self.client, self.plan), self.federation.clients[self.client]
        place = torch.full((len(job.inputs),), -1, dtype=torch.long)
        place[rows] = torch.arange(len(rows))
        batches = torch.where(job.batches >= 0, place[job.batches.clamp_min(0)], -1)
        return replace(job, inputs=job.inputs[rows], targets=job.targets[rows], batches=batches)

    def cohort(self) -> tuple[Cohort, list[Group]]:
        """The round's cohort and who sends to whom."""
        federation, state = self.federation, self.state
        active = active_clients(federation, state)
        cohort = cohort_of(federation, state.round, active)
        return cohort, groups_of(federation, state.round, cohort.members, active)


def moments(
    federation: Federation,
    client: int,
    count: int,
    before: int | None = None,
    wanted: Callable[[Moment], bool] = lambda moment: True,
) -> list[Moment]:
    """The first `count` rounds in which the client takes part, as the federation really comes to them.

    It trains no further than it has to: the first round costs nothing.

    Args:
        federation: what is trained.
        client: who must be in the round's cohort.
        count: of rounds, at most.
        before: the round to stop at, None for the last.
        wanted: which of these rounds count.
    """
    state, taken = start_state(federation), list[Moment]()
    running = rounds(federation, state)
    jobs = next(running, None)
    while jobs is not None and (before is None or state.round < before):
        moment = Moment(federation, snapshot(state), client)
        if client in moment.cohort()[0].members and wanted(moment):
            taken.append(moment)
            if len(taken) == count:
                break
        try:
            jobs = running.send(batched(jobs))
        except StopIteration:
            break
    running.close()
    return taken


def snapshot(state: State) -> State:
    """A copy that no later round changes."""
    return State(
        state.round,
        dict(state.models),
        defaultdict(dict, {p: dict(kept) for p, kept in state.kept.items()}),
        defaultdict(dict, copy.deepcopy(dict(state.memory))),
        copy.deepcopy(state.history),
        defaultdict(int, state.participations),
    )


@dataclass(frozen=True, eq=False)
class World:
    """What the client trains on in one world; update: what it hands to its steps instead of what it trained, or None.

    The job's model has the mean and std of this world.
    from_zero: where weights are shared, `update` is those weights, not their distance from the model sent out.
    memory: the client's own lasting state there, as its earlier rounds in this world left it.
    """

    job: LocalJob
    update: Tensor | None = None
    from_zero: bool = False
    memory: Mapping[str, Any] = field(default_factory=dict)

    def result(self, trained: LocalResult, start: Tensor) -> LocalResult:
        if self.update is None:
            return trained
        update = self.update.to(trained.value)
        return replace(trained, value=update - start if self.from_zero else update)


def record_worlds(moment: Moment, canary: Canary, row: int, adjacency: Adjacency, seed: int) -> tuple[World, World]:
    """Without and with the canary in the place of one record.

    Without it, that record is muted (zero_out), or is the client's own (replace_one).

    Args:
        moment: a client's round.
        canary: the record to plant. row: its place among the client's records.
        adjacency: what the world without it is. seed: of the canary's own draws.
    """
    job = moment.job
    inserted = canary.insert(job, row, moment.federation.data.classes, seed)
    without = replace(job, muted=(row,)) if adjacency == "zero_out" else job
    memory = moment.state.memory[moment.client]
    return World(refitted(moment, without), memory=memory), World(refitted(moment, inserted), memory=memory)


def client_worlds(moment: Moment, canary: UpdateCanary | None, adjacency: Adjacency, seed: int) -> tuple[World, World]:
    """Without and with the client: its contribution has weight 0 (zero_out), or is the opposite one (replace_one).

    Weight 0 is the vector that the guarantee is centred on: 0, or for weights that are bounded around it the model sent
    out.

    Args:
        moment: a client's round.
        canary: None for the client's own training, which has no opposite: the other client there has no records that
            say anything.
        adjacency: what the world without it is. seed: of the canary's own draws.

    Raises:
        ValueError: a canary update would come after the noise, which is drawn inside training; or it breaks the bound
            that training keeps.
    """
    job, scheme, memory = moment.job, moment.federation.scheme, moment.state.memory[moment.client]
    silent = refitted(moment, replace(job, muted=tuple(range(len(job.inputs)))))
    from_zero = scheme.share == "weights" and not centred_on_start(scheme)
    absent = World(silent, torch.zeros_like(job.start) if from_zero else None, from_zero, memory)
    if canary is None:
        return absent, World(job, memory=memory)
    if job.training.per_example is not None:
        raise ValueError(
            "a canary update cannot be planted where the noise is drawn inside local training; use a record canary"
        )
    (trained,) = batched([job])
    bound = trained.bound
    norm, order = HUGE * max(float(trained.value.norm()), _largest_clip(scheme)), 2
    if bound is not None:
        norm, order = float(torch.as_tensor(bound.norm).norm()), bound.order
    update = canary.update(len(trained.value), norm, order, seed)
    if bound is not None and not bool(torch.isfinite(update).all()):
        raise ValueError(
            f"the canary {canary.name!r} breaks the bound that local training itself keeps; it is for clips that come"
            " after training"
        )
    present, opposite = (World(job, sign * update, from_zero, memory) for sign in (1, -1))
    return (absent if adjacency == "zero_out" else opposite), present


def refitted(moment: Moment, job: LocalJob) -> LocalJob:
    """The client's job with the mean and std of its world, where these are of the training rows: of those that this job
    has, without the muted ones.
    """
    data, rows = moment.federation.data, moment.federation.clients[moment.client]
    if data.statistics_of != "training" or (not job.muted and torch.equal(job.inputs, data.inputs[rows])):
        return job
    inputs, there = data.inputs.clone(), torch.ones(len(data.inputs), dtype=torch.bool)
    inputs[rows] = job.inputs
    there[rows[list(job.muted)]] = False
    if not bool(there.any()):  # nobody is left: like a set without statistics
        return replace(job, module=with_constants(job.module, [0.0] * len(data.mean), [1.0] * len(data.std)))
    return replace(job, module=with_constants(job.module, *statistics(inputs[there])))


def from_crafted(
    moment: Moment, worlds: tuple[World, World], row: int | None, crafted: CraftedStart
) -> tuple[World, World]:
    """Both worlds with the same initial weights, crafted for the canary on everybody else's records.

    Args:
        moment: a round of the audited client. worlds: of it.
        row: the canary's number among the client's records, None where the client is the canary: no record of it is
            fitted then.
        crafted: how.

    Raises:
        ValueError: there are no other records, or they cannot be fitted.
    """
    federation, job = moment.federation, worlds[1].job
    own = federation.clients[moment.client]
    if row is not None:
        kept = torch.arange(len(own)) != row
    else:
        kept = torch.zeros(len(own), dtype=torch.bool)
    others = torch.cat([own[kept], *(c for i, c in enumerate(federation.clients) if i != moment.client)])
    start = crafted.weights(
        job.module,
        federation.data.inputs[others],
        federation.data.targets[others],
        None if row is None or job.planted else (job.inputs[row], job.targets[row]),
        classes=federation.data.classes,
        loss=job.training.loss,
    )
    without, present = (
        replace(world, job=replace(world.job, module=_starting(world.job.module, start), start=start))
        for world in worlds
    )
    return without, present


def _starting(module: nn.Module, weights: Tensor) -> nn.Module:
    """A copy of a model with these weights (d,)."""
    changed = copy.deepcopy(module)
    with torch.no_grad():
        for name, value in Layout.of(module).split(weights).items():
            changed.get_parameter(name).copy_(value)
    return changed


def constants_apart(worlds: tuple[World, World]) -> Tensor | None:
    """The mean and std that world 1 shows beyond those of world 0, (k,), the largest difference scaled to 1; None where
    both show the same.
    """
    shown = [constants_of(world.job.module) for world in worlds]
    if shown[0] is None or shown[1] is None:
        return None
    without, present = (torch.cat([part.flatten() for part in constants]) for constants in shown)  # type: ignore[union-attr]
    apart = present - without
    if bool((apart != 0).any()):
        return (apart / apart.abs().max()).float()
    return None


def centred_on_start(scheme: Scheme) -> bool:
    """Whether what bounds a client's value bounds its distance from the model sent out, where weights are shared."""
    bounded = any(isinstance(step, Clip | MedianClip | OwnNorm) for step in scheme.client)
    stepwise = scheme.local.step_clip is not None and scheme.local.step_clip.what == "weights"
    return not (bounded or stepwise)


def _largest_clip(scheme: Scheme) -> float:
    norms = [getattr(step, "norm", None) for step in (*scheme.client, *scheme.gather)]
    return max((float(norm) for norm in norms if isinstance(norm, int | float)), default=1.0)
