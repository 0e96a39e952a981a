"""The ledger a training would leave, without training: what `audit epsilon` prices of a config."""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isclose
from typing import Any

import torch
from torch import Tensor, nn

from ...defenses.data.dataset import OWN_TABLE, Dataset, make
from ...defenses.engine import local_bound
from ...defenses.federation import Federation, Figures, RoundRecord, State, job_of, run_many, upload
from ...defenses.layout import Layout
from ...defenses.local import LocalJob, LocalResult
from ...defenses.participation import Participation
from ...defenses.releases import Release, of_another
from ...defenses.schedule import Adaptive, History, RoundPlan, reads_history
from ...defenses.scheme import Scheme
from ...defenses.terms import Observer
from ...defenses.wire import SERVER, Message, Parcel, Wire, ancestry, opaque_id
from ..errors import BadInput
from .any_key import attended_by_all, for_any_key, no_worst_draw, separation_of
from .auditor import Auditor
from .counted import Counted
from .experiment import Experiment
from .ledger import Ledger, LedgerMessage, ModelVersion, is_sum


def planned_ledger(experiment: Experiment, any_key: bool = False) -> Ledger:
    """The ledger a training run would leave, without training: the real round loop over a stand-in model with one
    number a tensor, in which clients that are alike are planned once a round.

    Bounds, noise and who takes part do not depend on the weights; where they do, the ledger says that nothing can be
    proven. Where only the schedule follows the test loss, it is the ledger of the worst that can come (`WorstPath`).

    Args:
        experiment: what would be trained, with its key.
        any_key: plan for whatever key it gets: where cohorts are drawn, for clients who are drawn as often, and with as
            few others, as anybody is in all trainings but a share `participation.RARE` (`MostOften`).
    """
    e = experiment
    plan = _Plan(e.scheme, e.layout, e.data, e.clients, e.config.seed, e.streams, e.observer_parties)
    planned = _planned_for_any_key(plan) if any_key else _planned(plan)
    return replace(planned, columns_known=e.data.name == OWN_TABLE)


def _planned_for_any_key(plan: _Plan) -> Ledger:
    ledger = _of_worst_draw(plan)
    return replace(ledger, plan=replace(ledger.plan, any_key=True))


def _of_worst_draw(plan: _Plan) -> Ledger:
    if why := no_worst_draw(plan.scheme, plan.clients):
        every, *limited = [_planned(replace(plan, scheme=scheme)) for scheme in attended_by_all(plan.scheme)]
        if isinstance(every, WorstPath):
            return _proving_nothing(every, f"{why}, and {UNPLANNED}")
        # Which epochs a budget is spent in hangs on the draws, so there every release counts.
        wholes = [_singles(every), *(_singles(ledger, alone=True) for ledger in limited)]
        shown = next(iter(limited), every)  # what a claim counts ends with the budget
        return AnyKey(shown.releases, shown.messages, shown.models, plan.observers, shown.clients, wholes=tuple(wholes))
    if (often := for_any_key(plan.scheme, plan.clients)) is None:
        return _planned(plan)

    def attended(rule: Participation) -> Ledger:
        ledger = _planned(replace(plan, scheme=replace(plan.scheme, participation=rule)))
        # It has correlated noise in all rounds, of which a client is in some that are so far apart.
        return replace(ledger, plan=replace(ledger.plan, separation=separation_of(plan.scheme.participation)))

    ledger = attended(often)
    if isinstance(ledger, WorstPath):  # which prices all releases for whoever catches uploads
        return ledger
    pair = attended(replace(often, size=2, times=len(often.ranks)))  # as clients are alike, two stand for all
    return AnyKey(ledger.releases, ledger.messages, ledger.models, ledger.observers, ledger.clients, ledger.plan, pair)


def _proving_nothing(ledger: Ledger, problem: str) -> Ledger:
    return replace(ledger, plan=replace(ledger.plan, problem=problem))


@dataclass(frozen=True, eq=False)
class AnyKey(Ledger):
    """The plan for any key of a training that draws its cohorts. Whoever catches some uploads is priced as if two took
    part in every round (`pair`): the upload that tells most may be another client's than the subject's, in any round.

    Where there are `wholes`, it is a plan of `attended_by_all`, and everybody is priced for having every release by
    itself: nobody sees more, whoever sends to whom and takes part. Each of them is enough.
    """

    pair: Ledger | None = None
    wholes: tuple[list[Counted], ...] = ()

    @property
    def caught(self) -> Ledger:
        return self.pair or self

    def subjects(self, observer: Observer) -> list[int]:
        """Whoever it is that leads, it may be another one."""
        if self.wholes:
            return sorted(self.everyone)
        return super().subjects(observer)

    def instead_of(self, observer: Observer) -> list[list[Counted]] | None:
        del observer
        return list(self.wholes) or None


def priced_ledger(auditor: Auditor) -> Ledger | None:
    """The ledger that a trained setup is priced by, None where auditor/ was removed.

    It is the recorded one, unless what was released decided how many releases there are or what noise they have: a
    schedule that follows the test loss, or training that ended because it diverged. Then what happened was chosen in
    hindsight, and the plan is priced.
    """
    recorded, setup = auditor.ledger, auditor.setup
    if recorded is None or not (setup.manifest.status == "diverged" or reads_history(setup.scheme.schedule)):
        return recorded
    record = torch.zeros(1, 1), torch.zeros(1)
    source = setup.manifest.data.description.get("statistics_of", "training")  # another tool's may not say: the worse
    stand_in = replace(make("stand-in", record, record, record, 0, {}), statistics_of=source)
    clients = [torch.arange(count) for count in setup.manifest.clients]
    plan = _Plan(setup.scheme, setup.layout, stand_in, clients, setup.config.seed, auditor.streams, recorded.observers)
    # Without the key nobody knows who was in which round.
    planned = _planned(plan) if auditor.knows_key else _planned_for_any_key(plan)
    marks = {name: getattr(recorded, name) for name in ("declared", "published_key", "columns_known")}
    return replace(planned, **marks)


@dataclass(frozen=True, eq=False)
class WorstPath(Ledger):
    """The ledger of a mechanism whose noise and rounds follow what was released.

    Where a client's rounds are unsampled Gaussian noise about it, alike but for the plan's factor, they are those of
    the path with the largest Σ 1/noise² over the rounds that it is in: round t is μ_t-GDP given all before it, and
    Σ μ_t² ≤ μ² on every path makes the whole μ-GDP (fully adaptive composition: Smith and Thakurta 2022,
    arXiv:2210.17520; the same for RDP: Feldman and Zrnic 2021, arXiv:2008.11193). Who is in which round depends on the
    seed alone. Anywhere else every round has the least noise that any path has there: it is then below a pair that was
    fixed in advance, sampled or not, and such pairs compose as always.

    Both hold for who sees all that the schedule follows. Who sees less of it, an eavesdropper of L uploads or a party,
    sees a noise that tells of rounds it did not see: priced is whoever sees everything. So it is where every client has
    a path of its own (`apart`): one client's noise says nothing of another's.
    """

    apart: bool = False

    def instead_of(self, observer: Observer) -> list[list[Counted]] | None:
        if not self.apart and observer.catches is None and not observer.kind.party:
            return None
        return [_singles(self)]


def _singles(ledger: Ledger, alone: bool = False) -> list[Counted]:
    return ledger.count((release for release in ledger.releases.values() if not is_sum(release)), alone)


UNPLANNED = (
    "the rounds and their noise follow the test loss, and the schedule does not say what is the worst that can come"
)


@dataclass(frozen=True)
class _Fixed:
    """A schedule that is its plans."""

    plans: Sequence[RoundPlan]

    def plan(self, round: int, history: History) -> RoundPlan | None:
        del history
        if round < len(self.plans):
            return self.plans[round]
        return None


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a rehearsal needs of an experiment. data: never looked at. clients: as many row numbers as records."""

    scheme: Scheme
    layout: Layout
    data: Dataset
    clients: Sequence[Tensor]
    seed: int
    key: str
    observers: Mapping[str, int]

    def along(self, plans: Sequence[RoundPlan]) -> _Plan:
        return replace(self, scheme=replace(self.scheme, schedule=_Fixed(plans)))


def _planned(plan: _Plan) -> Ledger:
    schedule = plan.scheme.schedule
    if not reads_history(schedule):
        return _rehearsed(plan)
    if not isinstance(schedule, Adaptive):
        return _proving_nothing(_rehearsed(plan), UNPLANNED)
    least = schedule.least()
    ledger = _rehearsed(plan.along(least))
    doubled = _rehearsed(plan.along([replace(each, noise=2 * each.noise) for each in least]))
    noise = _on_worst_paths(ledger, doubled, schedule, least)
    path = replace(ledger.plan, noise=noise or {})
    return WorstPath(
        ledger.releases, ledger.messages, ledger.models, ledger.observers, ledger.clients, path, noise is not None
    )


def _on_worst_paths(
    ledger: Ledger, doubled: Ledger, schedule: Adaptive, least: Sequence[RoundPlan]
) -> Mapping[str, float] | None:
    """How many times the noise of each release is, on its subjects' worst path, that of a ledger planned at the least
    noise; None where that does not order the paths.

    doubled: the same with twice the plan's noise: a release whose ratio is not half of it has noise of another source.
    """
    facts: dict[int, dict[int, Counter[tuple[object, ...]]]] = defaultdict(lambda: defaultdict(Counter))
    own = [r for r in ledger.releases.values() if not is_sum(r)]
    for r in own:
        if r.mechanism != "gaussian" or r.sampling or r.bound_norm is None:
            return None
        twice = doubled.releases[r.id]
        assert twice.bound_norm is not None
        if not isclose(r.ratio / r.bound_norm, 2 * twice.ratio / twice.bound_norm):
            return None
        for subject in r.subjects:
            exact = r.bound_norm - r.rounding
            ratio = f"{r.ratio / r.bound_norm * exact * least[r.round].noise:.6e}"
            facts[subject][r.round][ratio, r.bound_of, r.bound_order, r.records, r.steps] += 1
    inside = {subject: frozenset(rounds) for subject, rounds in facts.items()}
    together = all(len({inside[subject] for subject in r.subjects}) == 1 for r in own)
    if not together or any(len({frozenset(f.items()) for f in rounds.values()}) > 1 for rounds in facts.values()):
        return None
    paths = {rounds: schedule.worst(rounds) for rounds in set(inside.values())}

    def factor(release: Release) -> float:
        path = paths[inside[min(release.subjects)]]
        if release.round < len(path):
            return path[release.round].noise / least[release.round].noise
        return inf

    return {release.id: factor(release) for release in own}


def _rehearsed(plan: _Plan) -> Ledger:
    module = nn.Module()
    for i in range(len(plan.layout.names)):
        module.register_parameter(f"p{i}", nn.Parameter(torch.zeros(1)))
    messages: list[Message] = []
    wire = Wire(messages.append)
    federation = _Rehearsal(
        plan.scheme, module, plan.data, plan.clients, plan.seed, wire, evaluate=False, key=plan.key, real=plan.layout
    )
    run_many([federation], _no_training, on_round=lambda _, record: _expect_finite(record))
    versions = ancestry(version for m in messages for version in m.inherits)
    sets = [m.releases for m in messages] + [version.mentioned for version in versions]
    releases: dict[str, Release] = {r.id: r for releases in sets for r in releases}
    models = {v.id: ModelVersion.of(v) for v in versions}
    sent = {m.id: LedgerMessage.of(m, plan.scheme.share) for m in messages}
    # in the order a setup's JSON has them
    return Ledger(releases, sent, models, dict(sorted(plan.observers.items())), len(plan.clients))


def _expect_finite(record: RoundRecord) -> None:
    """A rehearsal that ends in infinities ends early, and would price what it never sent at 0.

    Raises:
        BadInput: the round's values overflowed.
    """
    if not record.finite:
        raise BadInput(
            f"[scheme]: what is sent in round {record.round} is too large for 32-bit numbers even where nobody trains,"
            " so no training of it can be priced; make its noise, clip or range smaller"
        )


@dataclass(frozen=True, eq=False)
class _Upload:
    """What a client sent, its figures, and its memory afterwards."""

    parcel: Parcel
    figures: Figures
    memory: dict[str, Any]


@dataclass(frozen=True)
class _StandIn(Layout):
    """One number a tensor. real: how many numbers the tensors that they stand for have."""

    real: int

    @property
    def numbers(self) -> int:
        return self.real


@dataclass(frozen=True, eq=False)
class _Rehearsal(Federation):
    """A federation in which a client's round is gone through once for all clients alike: those with the same model, as
    many records and the same memory. The others send the same releases, of themselves.

    real: the layout of the real model, whose size decides what rounding adds to a bound.
    jobs, uploads: of the round in progress, by what makes clients alike. Who keeps tensors of its own from round to
    round is like nobody.
    """

    real: Layout = field(kw_only=True)
    jobs: dict[tuple[object, ...], LocalJob] = field(default_factory=dict)
    uploads: dict[tuple[object, ...], _Upload] = field(default_factory=dict)

    @cached_property
    def layout(self) -> Layout:
        here = Layout.of(self.module)
        return _StandIn(here.names, here.shapes, self.real.dim)

    def job(self, state: State, client: int, plan: RoundPlan) -> LocalJob:
        home = SERVER if self.scheme.topology.central else client
        alike = (state.round, id(state.models[home]), len(self.clients[client]))
        if self.jobs and next(iter(self.jobs))[0] != state.round:
            self.jobs.clear()
            self.uploads.clear()
        if alike not in self.jobs:
            self.jobs[alike] = job_of(self, state, client, plan)
        return self.jobs[alike]

    def upload(
        self, state: State, client: int, plan: RoundPlan, job: LocalJob, result: LocalResult
    ) -> tuple[Parcel, Figures]:
        if state.kept[client]:
            return upload(self, state, client, plan, job, result)
        alike = (id(job), json.dumps(state.memory[client], sort_keys=True))
        if (like := self.uploads.get(alike)) is None:
            parcel, figures = upload(self, state, client, plan, job, result)
            if not state.kept[client]:
                self.uploads[alike] = _Upload(parcel, figures, copy.deepcopy(state.memory[client]))
            return parcel, figures
        state.memory[client] = copy.deepcopy(like.memory)
        releases = frozenset(self._of_another(release, client) for release in like.parcel.releases)
        return replace(like.parcel, releases=releases), like.figures

    def _of_another(self, release: Release, client: int) -> Release:
        def name(like: str) -> str:
            return opaque_id(self.secret, "like", like, client)

        own = name(release.id)
        parents = frozenset(own if parent == release.id else name(parent) for parent in release.parents)
        return of_another(release, own, frozenset({client}), parents)


def _no_training(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    distinct = {id(job): job for job in jobs}
    results = {
        key: LocalResult(torch.zeros_like(j.start), torch.zeros_like(j.start), j.start.clone(), local_bound(j))
        for key, j in distinct.items()
    }
    return [results[id(job)] for job in jobs]
