"""The one round loop, and the runner that trains many federations as one array computation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .aggregate import FixedMean, weighted_sum
from .data import Dataset
from .engine import Engine, batched
from .grid import PartialSum
from .layout import Layout
from .local import LocalJob, LocalResult, LocalTraining, batch_order, decision
from .losses import NextToken, loss_of
from .participation import Cohort
from .process import ready
from .randomness import Keystream, generator, secret_seed
from .releases import Release, in_slot
from .schedule import RoundPlan
from .scheme import Context, Scheme
from .steps.adapt import CLIP_NORM
from .steps.clip import clip_to
from .steps.discrete import PerturbDiscrete
from .steps.perturb import Perturb, local_release, raw_release, summed_releases, summed_responses, told_release
from .steps.respond import Respond
from .threads import THREADED, in_threads, one_thread
from .topology import Group
from .wire import SERVER, Kind, Lineage, Message, Parcel, Wire, client_address, opaque_id

Figures = dict[str, float]


TEXTS = 8  # of a decoder, which are tested at once


@dataclass(frozen=True, eq=False)
class Federation:
    """One federation: a scheme, a model (its weights are the start), a data set, who holds which rows, a seed, a wire.

    seed: public; of the order of batches. key: with the seed, of all that privacy hangs on: noise, secret cohorts and
    Poisson batches, who is behind which address, opaque ids.
    clients: row numbers of `data.inputs` by client. evaluate: whether the global model's test loss and accuracy go into
    the rounds' records.
    """

    scheme: Scheme
    module: nn.Module
    data: Dataset
    clients: Sequence[Tensor]
    seed: int
    wire: Wire = field(default_factory=Wire)
    evaluate: bool = True
    key: str = ""

    @cached_property
    def secret(self) -> int:
        """Where the secret streams begin."""
        return secret_seed(self.seed, self.key)

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.module)

    @cached_property
    def disclosed(self) -> frozenset[Release]:
        """What everybody is told of the clients' data before the first round, so every message reveals it: the model's
        mean and std, where they are those of the training rows.
        """
        if self.data.statistics_of != "training":
            return frozenset()
        return frozenset({told_release(self.secret, frozenset(range(len(self.clients))), STATISTICS)})

    def job(self, state: State, client: int, plan: RoundPlan) -> LocalJob:
        return job_of(self, state, client, plan)

    def upload(
        self, state: State, client: int, plan: RoundPlan, job: LocalJob, result: LocalResult
    ) -> tuple[Parcel, Figures]:
        """What a client sends in the round, and public figures of it.

        Args:
            state, client, plan, job, result: as for the function `upload`.
        """
        return upload(self, state, client, plan, job, result)


@dataclass(eq=False)
class State:
    """All that lasts from one round to the next; a run goes on from it exactly as if it had never stopped.

    models: by party (SERVER only, where there is a central model). kept: the update rule's tensors by party. memory:
    steps' own state by party, JSON-able. history: what everybody knows of past rounds, a value a round. participations:
    releases so far by client. round: the next one.
    """

    round: int
    models: dict[int, Parcel]
    kept: dict[int, dict[str, Tensor]] = field(default_factory=lambda: defaultdict(dict))
    memory: dict[int, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    history: dict[str, list[float]] = field(default_factory=dict)
    participations: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What a round leaves: public figures (row of rounds.csv), who took part, what each client trained on, and the
    state to go on from.

    finite: whether all models and figures are; the first round where they are not is the last.
    """

    round: int
    figures: Figures
    participants: tuple[int, ...]
    batches: Mapping[int, Tensor]
    state: State
    finite: bool


@dataclass(frozen=True, eq=False)
class Uploads:
    """What clients send in a round, by client, with public figures of each and what each trained on. lost: how many of
    them trained to nothing finite.

    parts: the hub's sum of the values in parts; then the parcels are without their vectors. None: the hub sums them.
    """

    parcels: dict[int, Parcel]
    figures: dict[int, Figures]
    batches: dict[int, Tensor]
    lost: int
    parts: tuple[PartialSum, ...] | None = None


ClientsSend = Callable[[Federation, State, RoundPlan, Sequence[int]], Uploads]
OnRound = Callable[[RoundRecord], None]
Rounds = Generator[list[LocalJob], list[LocalResult], State]


def start_state(federation: Federation) -> State:
    """The state before round 0: every party that keeps a model starts from the module's own weights."""
    weights = federation.layout.join({n: p.detach() for n, p in federation.module.named_parameters()})
    parties = [SERVER] if federation.scheme.topology.central else range(len(federation.clients))
    return State(0, {party: Parcel(weights.clone()) for party in parties})


def rounds(
    federation: Federation,
    state: State | None = None,
    on_round: OnRound | None = None,
    clients_send: ClientsSend | None = None,
) -> Rounds:
    """One federation as a generator: yields a round's local jobs, receives their results, returns the last state.

    It ends when the schedule does, when too few clients may still take part, or after a round that is no longer finite.

    Args:
        federation: what is trained. state: to go on from. on_round: hears of each.
        clients_send: does all that a round's clients do; then nothing is yielded.
    """
    scheme = federation.scheme
    state = state or start_state(federation)
    finite = _finite(state)
    while (plan := scheme.schedule.plan(state.round, state.history)) is not None:
        round = state.round
        active = active_clients(federation, state)
        if len(active) < scheme.min_clients:
            break
        cohort = cohort_of(federation, round, active)
        # A server can do with one client; dropouts come back. Where nobody may know how many came, it does with none.
        least = 1 if scheme.topology.central else scheme.min_clients
        if len(cohort.members) < least and not cohort.size_is_secret:
            break
        groups = groups_of(federation, round, cohort.members, active)
        if scheme.topology.central:
            _broadcast(federation, state, round)
        if clients_send is None:
            jobs = [federation.job(state, client, plan) for client in cohort.members]
            results = yield jobs
            sent = uploads_of(federation, state, plan, dict(zip(cohort.members, zip(jobs, results))))
        else:
            sent = clients_send(federation, state, plan, cohort.members)
        log: dict[str, list[float]] = defaultdict(list)
        for client in cohort.members:
            _collect(log, sent.figures[client])
            state.participations[client] += 1
        _send_up(federation, groups, sent, state)
        for group in groups:
            received = [sent.parcels[m] for m in group.members]
            merged, figures = merge(federation, state, group, cohort, plan, received, sent.parts)
            _collect(log, {f"server_{k}": v for k, v in figures.items()})
            _move(federation, state, group, plan, merged, received)
        drawn = "participants_drawn" if cohort.size_is_secret else "participants"  # the first is the auditor's alone
        figures = {drawn: float(len(cohort.members))}
        if federation.evaluate:
            figures.update(evaluate(federation, state))
        figures.update({name: sum(values) / len(values) for name, values in sorted(log.items())})
        if sent.lost:
            figures["not_finite"] = sent.lost / len(cohort.members)
        # Only what everybody sees may end a training: an end that one client's own value decides would tell of it.
        finite = _finite(state) and all(isfinite(figures[name]) for name in PUBLIC_FIGURES if name in figures)
        for name in PUBLIC_FIGURES:
            if name in figures:
                state.history.setdefault(name, []).append(figures[name])
        state.round += 1
        if on_round is not None:
            on_round(RoundRecord(round, figures, cohort.members, sent.batches, state, finite))
        if not finite:
            break
    if scheme.topology.central and finite:
        _broadcast(federation, state, state.round)
    return state


def _move(
    federation: Federation, state: State, group: Group, plan: RoundPlan, merged: Parcel, received: Sequence[Parcel]
) -> None:
    """The hub's model by what it merged of what it received, and on to the group's receivers."""
    scheme, round, old = federation.scheme, state.round, state.models[group.hub]
    vector, kept = scheme.update(old.vector, merged.vector, state.kept[group.hub], plan)
    parents = tuple(dict.fromkeys((*old.inherits, *merged.inherits)))
    version = Lineage(opaque_id(federation.secret, "model", round, group.hub), merged.releases, parents)
    if scheme.topology.central:
        version = _seen_alone(version, merged, received)
    made = Parcel(vector.to(old.vector.dtype), inherits=(version,), side=merged.side)
    state.models[group.hub] = made
    state.kept[group.hub].update(kept)
    if group.receivers:
        records = sum(len(federation.clients[m]) for m in group.members)
        if scheme.topology.anonymous:
            records = 0
        _send(federation, round, group.hub, group.receivers, made, "weights", records)
        state.models.update(dict.fromkeys(group.receivers, made))


def uploads_of(
    federation: Federation, state: State, plan: RoundPlan, trained: Mapping[int, tuple[LocalJob, LocalResult]]
) -> Uploads:
    """What clients send that have trained.

    Args:
        federation, state, plan: as for `upload`. trained: job and result by client.
    """

    def send(client: int) -> tuple[Parcel, Figures]:
        return federation.upload(state, client, plan, *trained[client])

    for client in trained:  # in this order, whichever thread comes first
        state.memory[client], state.kept[client]
    longest = max((job.start.numel() for job, _ in trained.values()), default=0)
    with one_thread(longest):
        sent = dict(zip(trained, in_threads(send, trained) if longest >= THREADED else map(send, trained)))
    return Uploads(
        {c: parcel for c, (parcel, _) in sent.items()},
        {c: figures for c, (_, figures) in sent.items()},
        {c: job.batches for c, (job, _) in trained.items()},
        sum(not _trained(result) for _, result in trained.values()),
    )


def _trained(result: LocalResult) -> bool:
    """Whether training came to something finite; a clip makes 0 of what did not."""
    return result.finite and _is_finite(result.value)


def _finite(state: State) -> bool:
    return all(_is_finite(model.vector) for model in state.models.values())


def _is_finite(vector: Tensor) -> bool:
    """By the least and the largest number, which NaN passes on: a fifteenth of the time that looking at each takes."""
    return all(isfinite(extreme) for extreme in torch.aminmax(vector))


STATISTICS = (
    "the mean and std in front of the model, which everybody gets, are computed from private data; give mean and std,"
    ' or statistics = "auxiliary", in [data]'
)
UNEQUAL = (
    "clients have unequal numbers of records, so the weights, and with them the bound and the noise, tell who was"
    " drawn in secret"
)
DIVISOR = (
    "the mean divides by how many were drawn in secret, which every client's coin changes; FixedMean divides by how"
    " many are expected"
)
# What a schedule may read.
PUBLIC_FIGURES = ("test_loss", "test_accuracy")


def run_many(
    federations: Sequence[Federation],
    engine: Engine = batched,
    states: Sequence[State | None] | None = None,
    on_round: Callable[[int, RoundRecord], None] | None = None,
) -> list[State]:
    """Train all federations in lock-step: clients' jobs are pooled, so that the engine can stack those of equal shape.

    A federation that stops early just stops yielding. Replicas (shadow models, canary trials, seeds, noise cells) are
    only this.
    """
    ready()
    done: dict[int, State] = {}
    running: dict[int, Rounds] = {}
    pending: dict[int, list[LocalJob]] = {}

    def advance(i: int, results: list[LocalResult] | None) -> None:
        try:
            pending[i] = next(running[i]) if results is None else running[i].send(results)
        except StopIteration as stop:
            done[i] = stop.value
            running.pop(i)
            pending.pop(i, None)

    for i, federation in enumerate(federations):
        report = None if on_round is None else (lambda record, i=i: on_round(i, record))
        running[i] = rounds(federation, states[i] if states else None, report)
        advance(i, None)
    while running:
        order = list(running)
        results = engine([job for i in order for job in pending[i]])
        place = 0
        for i in order:
            count = len(pending[i])
            advance(i, results[place : place + count])
            place += count
    return [done[i] for i in range(len(federations))]


def figures_of_test(federation: Federation, outputs: Tensor) -> Figures:
    """Loss and, for one class a record, accuracy of what a model gives for the test records (n, outputs)."""
    targets = federation.data.test_targets
    figures = {"test_loss": loss_of(federation.scheme.local.loss).values(outputs, targets).mean().item()}
    if federation.data.classes and not federation.data.target_shape:
        figures["test_accuracy"] = (decision(outputs) == targets).double().mean().item()
    return figures


def evaluate(
    federation: Federation, state: State, measure: Callable[[Federation, Tensor], Figures] = figures_of_test
) -> Figures:
    """What `measure` says of the global model's outputs for the test records (the mean over parties where there is no
    global one).

    A model that many parties hold, as a leader's receivers do, is evaluated once and counts for each of them.
    """
    distinct = {id(parcel.vector): parcel.vector for parcel in state.models.values()}
    measured = {key: _measured(federation, vector, measure) for key, vector in distinct.items()}
    all_of = [measured[id(parcel.vector)] for parcel in state.models.values()]
    return {name: sum(figures[name] for figures in all_of) / len(all_of) for name in all_of[0]}


def _measured(federation: Federation, weights: Tensor, measure: Callable[[Federation, Tensor], Figures]) -> Figures:
    """Of one model; of one that scores all words at each place, some texts at a time, as together they fill memory."""
    data = federation.data
    if loss_of(federation.scheme.local.loss).name != NextToken.name:
        return measure(federation, _tested(federation, weights))
    total: dict[str, float] = {}
    for rows in torch.arange(len(data.test_inputs)).split(TEXTS):
        own = replace(data, test_inputs=data.test_inputs[rows], test_targets=data.test_targets[rows])
        part = replace(federation, data=own)
        for name, value in measure(part, _tested(part, weights)).items():
            total[name] = total.get(name, 0.0) + value * len(rows) / len(data.test_inputs)
    return total


def _tested(federation: Federation, weights: Tensor) -> Tensor:
    inputs = federation.data.test_inputs.to(weights.dtype)
    with torch.no_grad():
        outputs: Tensor = functional_call(federation.module, federation.layout.split(weights), (inputs,))
    return outputs


def active_clients(federation: Federation, state: State) -> list[int]:
    """Who can still take part in the round that `state` is about to begin."""
    scheme, clients = federation.scheme, range(len(federation.clients))
    if scheme.budget is None or scheme.claim is None or scheme.claim.epsilon is None:
        return list(clients)
    budget, claim, epsilon = scheme.budget, scheme.claim, scheme.claim.epsilon
    done = {c: state.round if claim.counts == "rounds" else state.participations[c] for c in clients}
    if budget.stop == "after":
        over = any(n > 0 and epsilon(n, budget.delta) > budget.epsilon for n in set(done.values()))
        return [] if over else list(clients)
    within = {n: epsilon(n + 1, budget.delta) <= budget.epsilon for n in set(done.values())}
    return [c for c in clients if within[done[c]]]


def cohort_of(federation: Federation, round: int, active: Sequence[int]) -> Cohort:
    """Who takes part in a round, of those who still can."""
    return federation.scheme.participation.select(round, active, Keystream(federation.secret, "cohort", round))


def groups_of(federation: Federation, round: int, members: Sequence[int], active: Sequence[int]) -> list[Group]:
    """Who sends to whom in a round. A public graph would tell a peer whose values it gets, whatever their addresses."""
    return federation.scheme.topology.groups(round, members, active, generator(federation.secret, "topology", round))


def _home(federation: Federation, client: int) -> int:
    return SERVER if federation.scheme.topology.central else client


def job_of(federation: Federation, state: State, client: int, plan: RoundPlan) -> LocalJob:
    """A client's local training in the round that `state` is about to begin."""
    training, round = _as_remembered(federation.scheme.local, state.memory[client]), state.round
    batches = batch_order(
        training,
        federation.scheme.share,
        federation.clients[client],
        round,
        lambda epoch: generator(federation.seed, "batches", client, epoch),
        Keystream(federation.secret, "batches", client, round),
    )
    return LocalJob(
        federation.module,
        federation.layout,
        training,
        state.models[_home(federation, client)].vector,
        federation.data.inputs,
        federation.data.targets,
        batches,
        federation.scheme.share,
        training.lr * plan.lr,
        secret_seed(federation.secret, f"local noise {round} {client}"),
        plan.lr_by_step,
        len(federation.clients[client]),
        noise=plan.noise,
    )


def _as_remembered(training: LocalTraining, memory: Mapping[str, Any]) -> LocalTraining:
    """With the clip norm that the client remembers, where it adapts."""
    rule = training.per_example
    if rule is None or not rule.adapts or CLIP_NORM not in memory:
        return training
    return replace(training, per_example=replace(rule, clip_norm=memory[CLIP_NORM]))


def upload(
    federation: Federation, state: State, client: int, plan: RoundPlan, job: LocalJob, result: LocalResult
) -> tuple[Parcel, Figures]:
    """What a client sends in the round, through its steps, and their public figures.

    Args:
        state: models and memory at the start of the round; the steps may change the client's part of it.
        client: whose message it is. plan: the round's learning rate and noise.
        job, result: the client's local training and what came of it.

    Returns:
        The parcel on its way out, and the figures by name.
    """
    context = _context(
        federation,
        state,
        plan,
        client,
        frozenset({client}),
        len(federation.clients[client]),
        start=job.start,
        result=result,
        told=state.models[_home(federation, client)].side,
    )
    return _outgoing(federation.scheme, job, result, context, state.models[_home(federation, client)]), context.log


def merge(
    federation: Federation,
    state: State,
    group: Group,
    cohort: Cohort,
    plan: RoundPlan,
    received: list[Parcel],
    parts: Sequence[PartialSum] | None = None,
) -> tuple[Parcel, Figures]:
    """What a group's hub makes of its members' parcels, and its steps' public figures.

    Args:
        state: models and memory at the start of the round; the steps may change the hub's part of it.
        group: the hub and its members. cohort: the round's participants, and how they were drawn.
        plan: the round's learning rate and noise. received: the members' parcels, in the group's order.
        parts: their sum by the hub's weights, where it was computed in parts.
    """
    scheme, counts = federation.scheme, [len(federation.clients[m]) for m in group.members]
    subjects = frozenset(range(len(federation.clients))) if cohort.sampling else frozenset(group.members)
    start = state.models[group.hub].vector
    context = _context(
        federation,
        state,
        plan,
        group.hub,
        subjects,
        sum(counts),
        start=start,
        sampling=cohort.sampling,
        senders=len(federation.clients) if cohort.size_is_secret else len(received),  # the grid hangs on it
        hub=True,
    )
    if not received:
        told = state.models[group.hub].side  # as one client's value, who was told as much as all
        received = [_nothing(scheme, replace(context, subjects=frozenset({0}), log={}, told=told))]
    for gather in scheme.gather:
        received = gather(received, context)
    merged = weighted_sum(received, scheme.aggregate.weights(counts or [1]), parts)
    summed = None
    if scheme.topology.central and group.members:
        last = scheme.client[-1] if scheme.client and not scheme.gather else None
        law = last.mechanism if isinstance(last, Perturb | PerturbDiscrete) else "gaussian"
        if isinstance(last, Respond):
            summed = summed_responses(received, merged.counts, context)
        else:
            summed = summed_releases(received, merged.counts, merged.scale, law, context)
    # Without a server there is no `summed`: a peer knows its own noise and would subtract it.
    merged = replace(merged, summed=summed, terms=next((release.terms for release in summed or ()), ()))
    unequal = len({len(rows) for rows in federation.clients}) > 1
    if cohort.sampling and merged.bound and unequal and by_records(scheme):
        merged = replace(merged, bound=replace(merged.bound, private=merged.bound.private or UNEQUAL))
    if cohort.size_is_secret and merged.bound and not isinstance(scheme.aggregate, FixedMean):
        merged = replace(merged, bound=replace(merged.bound, private=merged.bound.private or DIVISOR))
    for step in scheme.server:
        merged = step(merged, context)
    return merged, context.log


def by_records(scheme: Scheme) -> bool:
    """Whether a bound or a noise of a hub's value depends on how many records its senders have: by their weights, by
    what local training itself bounds (so much a step), or by a division.
    """
    local = scheme.local.step_clip is not None or scheme.local.per_example is not None
    steps = (*scheme.client, *scheme.gather, *scheme.server)
    return scheme.aggregate.by_records or local or any(getattr(s, "divided_by", "") == "records" for s in steps)


def _nothing(scheme: Scheme, context: Context) -> Parcel:
    """What is summed where nobody was drawn, which nobody may learn: zeros with the bound that a client's value has."""
    zeros = Parcel(context.start.new_zeros(context.start.shape, dtype=torch.float64))
    for step in scheme.client:
        zeros = step(zeros, context)
    return zeros


def _seen_alone(version: Lineage, merged: Parcel, received: Sequence[Parcel]) -> Lineage:
    """The version with what it reveals to whoever sees sums or models alone. The hub's own noise, where it drew any,
    stands before the models; who sees sums sees them without it.
    """
    values = frozenset().union(*(parcel.releases for parcel in received))
    own = merged.releases - values
    summed = values if merged.summed is None else merged.summed
    model = merged.releases if any(release.parents for release in own) else summed | own
    return replace(version, summed=summed, merged=model)


def _context(
    federation: Federation,
    state: State,
    plan: RoundPlan,
    party: int,
    subjects: frozenset[int],
    num_examples: int,
    **known: Any,
) -> Context:
    return Context(
        seed=federation.secret,
        round=state.round,
        party=party,
        plan=plan,
        layout=federation.layout,
        num_examples=num_examples,
        subjects=subjects,
        memory=state.memory[party],
        kept=state.kept[party],
        **known,
    )


def _outgoing(scheme: Scheme, job: LocalJob, result: LocalResult, context: Context, model: Parcel) -> Parcel:
    """What a client sends: its value marked as raw (or as local DP-SGD left it), then through the client steps.

    Steps get it in float64, within the bound of local training to float64's rounding, and leave it on the noise's grid.
    A message made from the model also carries what the model reveals, but its receiver either sent that model or saw
    its parents.
    """
    local = raw_release(context) if job.training.per_example is None else local_release(job, context)
    parcel = Parcel(_value(scheme, job, result), bound=result.bound, releases=frozenset({local}))
    for step in scheme.client:
        parcel = step(parcel, context)
    if slot := _slot(scheme, job, context):
        parcel = replace(parcel, releases=frozenset(in_slot(r, slot) for r in parcel.releases))
    return parcel if scheme.topology.central else replace(parcel, inherits=model.inherits)


def as_sent(parcel: Parcel, dtype: torch.dtype) -> Parcel:
    """A client's value as it goes over the wire, and as whoever sees single messages sees it: in the model's own dtype.

    The hub merges the values as they were before: secure aggregation adds whole numbers of steps, and a sum of messages
    that were rounded one by one would tell of each (`grid`). A hub that adds float32 messages instead has other last
    bits, and whoever sees its sums sees more than `summed_releases` says.
    """
    return replace(parcel, vector=parcel.vector.to(dtype))


def _value(scheme: Scheme, job: LocalJob, result: LocalResult) -> Tensor:
    """The client's own value. Training's float32 steps may round it beyond their bound; what is beyond is cut off."""
    weights = scheme.share == "weights"
    if not scheme.client:
        return job.start + result.value if weights else result.value
    value, start, bound = result.value.double(), job.start.double(), result.bound
    if bound is None or not isinstance(bound.norm, float | int):
        return start + value if weights else value
    if bound.centred or not weights:
        value = clip_to(value, bound.norm, bound.order)
        return start + value if weights else value
    return clip_to(start + value, bound.norm, bound.order)


def _slot(scheme: Scheme, job: LocalJob, context: Context) -> str:
    """The epoch whose batch a shared gradient is of, as the batches of an epoch have no record in common; "" where a
    record may count in another round too: through what the client remembers, or a loss that looks at more than a batch.
    """
    training = job.training
    if scheme.share != "gradient" or training.per_example is not None or training.penalties:
        return ""
    if context.memory or context.kept:
        return ""
    per_epoch = -(-context.num_examples // min(training.batch_size, context.num_examples))
    return f"epoch {context.round // per_epoch}"


def _send_up(federation: Federation, groups: Sequence[Group], sent: Uploads, state: State) -> None:
    """Each sender's one message, with all the hubs it goes to (a hub keeps its own value to itself)."""
    hubs: dict[int, list[int]] = defaultdict(list)
    for group in groups:
        for member in group.members:
            if member != group.hub:
                hubs[member].append(group.hub)
    for member, parcel in sent.parcels.items():
        if hubs[member]:
            records = records_told(federation, member, sent.batches[member])
            dtype = state.models[_home(federation, member)].vector.dtype
            kind = federation.scheme.share
            _send(federation, state.round, member, tuple(hubs[member]), as_sent(parcel, dtype), kind, records)


def records_told(federation: Federation, client: int, batches: Tensor) -> int:
    """How many records a client says that its message is of: a size would join one anonymous sender's messages."""
    if federation.scheme.topology.anonymous:
        return 0
    return int((batches[0] >= 0).sum()) if federation.scheme.share == "gradient" else len(federation.clients[client])


def message_id(federation: Federation, round: int, sender: int, kind: Kind, num_examples: int) -> str:
    """The name of a party's message in a round.

    Args:
        federation: whose secret hides what it names. round, sender, kind, num_examples: of the message.
    """
    return opaque_id(federation.secret, "message", round, sender, kind, num_examples)


def _broadcast(federation: Federation, state: State, round: int) -> None:
    receivers = tuple(range(len(federation.clients)))
    _send(federation, round, SERVER, receivers, state.models[SERVER], "weights", 0)


def _send(federation, round, sender, receivers, parcel: Parcel, kind, num_examples: int) -> None:
    address = address_of(federation, round)
    if federation.scheme.topology.anonymous:  # the order of parties would tell who is behind which address
        receivers = sorted(receivers, key=address)
    federation.wire.send(
        Message(
            id=message_id(federation, round, sender, kind, num_examples),
            round=round,
            sender=address(sender),
            receivers=tuple(address(r) for r in receivers),
            kind=kind,
            num_examples=num_examples,
            vector=parcel.vector,
            releases=parcel.releases | federation.disclosed,
            inherits=parcel.inherits,
            sender_party=sender,
            receiver_parties=tuple(receivers),
            side=parcel.side,
        )
    )


def address_of(federation: Federation, round: int) -> Callable[[int], str]:
    """Parties' addresses in a round: names, or hashes under a secret per-round key where the scheme is anonymous."""
    if federation.scheme.topology.anonymous:
        return lambda party: opaque_id(federation.secret, "address", round, party)
    return lambda party: "server" if party == SERVER else client_address(party)


def _collect(log: dict[str, list[float]], entries: Mapping[str, float]) -> None:
    for name, value in entries.items():
        if isfinite(value):  # a norm that is not is counted among `not_finite`
            log[name].append(value)
