"""Random schemes: real steps put together at random, over a model and a data set of a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.defenses.aggregate import Aggregate, Mean, PopulationMean
from dpfl_audit.defenses.buffered import Buffers
from dpfl_audit.defenses.engine import local_bound
from dpfl_audit.defenses.federation import RoundRecord, run_many
from dpfl_audit.defenses.local import LocalJob, LocalResult, LocalTraining, PerExample, StepClip
from dpfl_audit.defenses.participation import Dropout, Everyone, Participation, RoundRobin, Separated, Uniform
from dpfl_audit.defenses.schedule import DecayWhileFalling, FixedRounds, Geometric, NoiseOverRounds, RoundPlan, Schedule
from dpfl_audit.defenses.scheme import Scheme, Step
from dpfl_audit.defenses.steps.clip import Clip, ClipReceived
from dpfl_audit.defenses.steps.components import ClipComponents, PerturbComponents
from dpfl_audit.defenses.steps.discrete import PerturbDiscrete, RoundToSteps
from dpfl_audit.defenses.steps.momentum import Momentum
from dpfl_audit.defenses.steps.perturb import CorrelatedDraw, Perturb, PerturbCorrelated
from dpfl_audit.defenses.steps.respond import ClipRange, Respond
from dpfl_audit.defenses.steps.side import WithNorm
from dpfl_audit.defenses.steps.sparsify import TopK
from dpfl_audit.defenses.strategies import BLT, BandMF, NoiseStrategy, Tree
from dpfl_audit.defenses.update import Add, AddWithMomentum, Optimise, Replace, Update
from dpfl_audit.defenses.wire import Kind
from torch import nn

DELTAS = (1e-5, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class Composition:
    """A scheme, and the federation it is for.

    Args:
        seed: it was drawn from; the federation's own seed too. family: the name of its kind.
        scheme: what is priced.
        records: of each client. tensors: how many numbers each tensor of the model has.
        delta: at which it is priced. caught: L of `uplink(L)`, two ascending numbers.
    """

    seed: int
    family: str
    scheme: Scheme
    records: tuple[int, ...]
    tensors: tuple[int, ...]
    delta: float
    caught: tuple[int, int] = (1, 2)

    @property
    def clients(self) -> int:
        return len(self.records)

    @property
    def dim(self) -> int:
        return sum(self.tensors)

    @cached_property
    def rows(self) -> list[torch.Tensor]:
        """The row numbers of each client."""
        return list(torch.arange(sum(self.records)).split(list(self.records)))

    @cached_property
    def plans(self) -> list[RoundPlan]:
        """The rounds where the test loss never falls, of which a schedule that looks at it makes the most."""
        plans: list[RoundPlan] = []
        while (plan := self.scheme.schedule.plan(len(plans), {"test_loss": [1.0] * len(plans)})) is not None:
            plans.append(plan)
        return plans

    @cached_property
    def records_of_rounds(self) -> list[RoundRecord]:
        """A run in which nobody has anything to say: who takes part, with which batches, is as in any other."""
        kept: list[RoundRecord] = []
        federation = replace(self.experiment().federation(), evaluate=False)
        run_many([federation], _silence, on_round=lambda _, record: kept.append(record))
        return kept[: len(self.plans)]

    @cached_property
    def members(self) -> list[tuple[int, ...]]:
        """Who takes part, round by round."""
        return [record.participants for record in self.records_of_rounds]

    def batch(self, client: int, round: int) -> list[int]:
        """The row numbers of the first batch of a client who takes part in the round."""
        return [row for row in self.records_of_rounds[round].batches[client][0].tolist() if row >= 0]

    def experiment(self) -> Experiment:
        """What `planned_ledger` prices and `Experiment.federation` trains."""
        base = _base()
        config = base.config.model_copy(update={"seed": self.seed})
        return replace(base, config=config, module=_Numbers(self.tensors), clients=self.rows, scheme=self.scheme)

    def __str__(self) -> str:
        s = self.scheme
        parts: dict[str, Any] = {
            "share": s.share,
            "client": s.client,
            "local": [x for x in (s.local.step_clip, s.local.per_example) if x],
            "gather": s.gather,
            "aggregate": s.aggregate,
            "server": s.server,
            "update": s.update,
            "participation": s.participation,
            "schedule": s.schedule,
        }
        told = "; ".join(f"{name} {value}" for name, value in parts.items() if value or value == 0)
        return f"{self.family}: {told}; records {self.records}, tensors {self.tensors}, δ {self.delta:g}"


def _silence(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    return [LocalResult(torch.zeros_like(job.start), bound=local_bound(job)) for job in jobs]


class _Numbers(nn.Module):
    """A model that is nothing but its numbers; who trains it is an adversary, who needs no forward pass."""

    def __init__(self, tensors: Sequence[int]) -> None:
        super().__init__()
        for i, size in enumerate(tensors):
            self.register_parameter(f"t{i}", nn.Parameter(torch.zeros(size)))


@lru_cache(maxsize=1)
def _base() -> Experiment:
    return build(
        parse_config(
            {
                "data": {"name": "digits", "clients": 1, "samples_per_client": 100},
                "model": {"name": "linear"},
                "scheme": {"name": "fedavg"},
            }
        ),
        Path("."),
    )


# --- drawing them


@dataclass(frozen=True)
class _Dice:
    rng: np.random.Generator

    def one(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def number(self, low: float, high: float) -> float:
        """Evenly in the logarithm, three digits."""
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)


@dataclass(frozen=True)
class _Federation:
    """What all families draw alike."""

    rounds: int
    records: tuple[int, ...]
    tensors: tuple[int, ...]
    participation: Participation
    schedule: Schedule
    aggregate: Aggregate
    delta: float
    caught: tuple[int, int] = (1, 2)


@dataclass(frozen=True)
class _Parts:
    """What a family composes; its scheme has the defaults for the rest."""

    client: tuple[Step, ...] = ()
    share: Kind = "update"
    local: LocalTraining = field(default_factory=lambda: _sgd(8))
    changes: dict[str, Any] = field(default_factory=dict)
    tensors: tuple[int, ...] | None = None
    records: tuple[int, ...] | None = None


def draw(seed: int) -> Composition:
    """The composition of a seed; the families take turns."""
    dice = _Dice(np.random.default_rng([seed, 11]))
    began = ((NEWEST_FROM, NEWEST), (LAST_FROM, LAST), (LATER_FROM, LATER), (0, TURNS))
    turns = next(families for first, families in began if seed >= first)
    family = turns[seed % len(turns)]
    public = _public(dice)
    parts = FAMILIES[family](dice, public)
    given = {
        "participation": public.participation,
        "schedule": public.schedule,
        "aggregate": public.aggregate,
        "update": _update(parts.share, parts.local),
        "client": parts.client,
        "share": parts.share,
        "local": parts.local,
        **parts.changes,
    }
    scheme = Scheme(name=family, source="drawn at random", **given)
    tensors, records = parts.tensors or public.tensors, parts.records or public.records
    return Composition(seed, family, scheme, records, tensors, public.delta, public.caught)


def _update(share: Kind, local: LocalTraining) -> Update:
    updates: dict[Kind, Update] = {"update": Add(), "weights": Replace(), "gradient": Optimise("sgd", local.lr)}
    return updates[share]


def _sgd(batch_size: int, **changes: Any) -> LocalTraining:
    return LocalTraining(optimiser="sgd", lr=0.5, batch_size=batch_size, **changes)


def _public(dice: _Dice) -> _Federation:
    clients, rounds = dice.one(1, 2, 2, 3, 4, 6), dice.one(1, 2, 3, 4, 6, 8)
    alike = dice.chance(0.6)
    records = tuple([dice.one(1, 2, 4, 6)] * clients if alike else [dice.one(1, 2, 4, 8) for _ in range(clients)])
    tensors = dice.one((1,), (2,), (3,), (2, 1), (2, 2, 1))
    some = int(dice.rng.integers(1, clients + 1))
    participation = dice.one(
        Everyone(), Everyone(), RoundRobin(some), Uniform(some), Uniform(some), Dropout(Everyone(), 0.3)
    )
    schedule = FixedRounds(rounds) if dice.chance(0.75) else Geometric(rounds, dice.number(0.5, 2.0), _flat)
    aggregate = dice.one(Mean(), Mean(), Mean(weighted=True), PopulationMean(clients, sum(records)))
    caught = dice.one((1, 2), (1, 3), (2, 4))
    return _Federation(rounds, records, tensors, participation, schedule, aggregate, dice.one(*DELTAS), caught)


def _flat(rounds: int, done: int) -> float:
    """The first noise of a geometric schedule of so many rounds, by a root (GEO eq. 8 has the same shape)."""
    return sqrt(rounds + done)


def _clip(dice: _Dice, order: int) -> Clip:
    return Clip(dice.number(0.3, 3.0), order, per_layer=dice.chance(0.3))


def _noise(dice: _Dice, mechanism: str, ratio: float, norm: float, **changes: Any) -> Perturb:
    """Noise `ratio` times as large as the norm, given as a std or as a multiplier."""
    if dice.chance(0.5):
        return Perturb(noise_multiplier=ratio, mechanism=mechanism, **changes)  # type: ignore[arg-type]
    return Perturb(noise_std=ratio * norm * (sqrt(2) if mechanism == "laplace" else 1), mechanism=mechanism)  # type: ignore[arg-type]


def uploads(dice: _Dice, public: _Federation) -> _Parts:
    """A clip and noise on every upload, with what can stand before and after."""
    mechanism = dice.one("gaussian", "gaussian", "laplace")
    clip = _clip(dice, 1 if mechanism == "laplace" else dice.one(1, 2, 2))
    steps: list[Step] = [clip, _noise(dice, mechanism, dice.number(0.5, 8.0), clip.norm)]
    if mechanism == "gaussian" and dice.chance(0.15):
        steps.append(Perturb(noise_std=dice.number(0.3, 3.0)))
    if dice.chance(0.15):
        steps.insert(dice.one(0, 1), TopK(0.5))
    if dice.chance(0.1):
        steps.append(TopK(0.5))
    if dice.chance(0.15):
        steps.append(Momentum(dice.one(0.5, 0.9)))
    if dice.chance(0.04):
        steps[0] = WithNorm(steps[0])
    server: list[Step] = []
    if mechanism == "gaussian" and dice.chance(0.25):
        server.append(Perturb(noise_std=dice.number(0.1, 2.0)))
    if dice.chance(0.15):
        server.append(Momentum(0.5))
    share: Kind = dice.one("update", "update", "weights", "gradient")
    return _Parts(tuple(steps), share, changes={"server": tuple(server)})


def hub_noise(dice: _Dice, public: _Federation) -> _Parts:
    """Raw or clipped uploads, and noise on their mean."""
    norm, ratio = dice.number(0.3, 3.0), dice.number(0.5, 8.0)
    if dice.chance(0.5):
        client: tuple[Step, ...] = ()
        gather: tuple[Any, ...] = (ClipReceived(norm),)
        noise = _noise(dice, "gaussian", ratio, norm, divided_by=dice.one("senders", "nothing"))
    else:
        mechanism = dice.one("gaussian", "laplace")
        client, gather = (Clip(norm, 1 if mechanism == "laplace" else 2),), ()
        noise = _noise(dice, mechanism, ratio, norm, divided_by=dice.one("senders", "nothing"))
    some = int(dice.rng.integers(1, len(public.records) + 1))
    participation = dice.one(Uniform(some), Uniform(some), public.participation)
    server = (noise, Momentum(0.5)) if dice.chance(0.15) else (noise,)
    share: Kind = dice.one("update", "update", "weights", "gradient")
    changes = {"gather": gather, "server": server, "participation": participation}
    return _Parts(client, share, changes=changes)


def hub_clip(dice: _Dice, public: _Federation) -> _Parts:
    """The mean itself is clipped, then gets noise: one client can turn it around."""
    norm = dice.number(0.3, 2.0)
    client = () if dice.chance(0.5) else (Clip(dice.number(0.3, 3.0)),)
    server = (Clip(norm, per_layer=dice.chance(0.3)), Perturb(noise_std=norm * dice.number(0.5, 6.0)))
    return _Parts(client, changes={"server": server})


def stepwise(dice: _Dice, public: _Federation) -> _Parts:
    """Clipped steps of local training, noise on what they come to: bounded around the model sent out."""
    mechanism = dice.one("gaussian", "gaussian", "laplace")
    clip = StepClip("gradient", dice.number(0.3, 2.0), 1 if mechanism == "laplace" else dice.one(1, 2))
    local = _sgd(8, epochs=dice.one(1, 2), step_clip=clip)
    moved = clip.norm * local.lr * (local.epochs or 1)
    noise = Perturb(noise_std=moved * dice.number(0.5, 8.0), mechanism=mechanism)
    server = (Perturb(noise_std=dice.number(0.1, 1.0)),) if mechanism == "gaussian" and dice.chance(0.2) else ()
    return _Parts((noise,), dice.one("weights", "weights", "update"), local, {"server": server})


def components(dice: _Dice, public: _Federation) -> _Parts:
    """A public threshold for every component, and noise in its proportion (ADN), around the model sent out or 0."""
    local = _sgd(8)
    share: Kind = dice.one("weights", "weights", "update")
    clip = ClipComponents(2.0, local, around_start=share == "weights", threshold=dice.number(0.2, 2.0))
    return _Parts((clip, PerturbComponents(dice.number(0.5, 6.0))), share, local)


def dpsgd(dice: _Dice, public: _Federation) -> _Parts:
    """Per-record clips and noise at every local step, batches drawn by Poisson sampling."""
    rule = PerExample(dice.number(0.3, 2.0), dice.number(0.6, 6.0))
    local = _sgd(dice.one(1, 2, 8), epochs=dice.one(1, 1, 2), per_example=rule)
    return _Parts((), dice.one("update", "update", "weights"), local)


def dealt(dice: _Dice, public: _Federation) -> _Parts:
    """As dpsgd, with batches dealt openly, each record once an epoch, and perhaps every tensor clipped by itself."""
    rule = PerExample(dice.number(0.3, 2.0), dice.number(0.6, 6.0), per_layer=dice.chance(0.6), batches="disjoint")
    local = _sgd(dice.one(1, 2, 8), epochs=dice.one(1, 1, 2), per_example=rule)
    return _Parts((), dice.one("update", "update", "weights"), local)


def responses(dice: _Dice, public: _Federation) -> _Parts:
    """Every number of the weights in a range, and one of two values in its place."""
    within = ClipRange(dice.one(0.0, 0.0, 0.3, -2.0), dice.number(0.1, 1.0))
    return _Parts((within, Respond(within, dice.number(0.1, 2.0))), "weights", changes={"aggregate": Mean()})


def epochs(dice: _Dice, public: _Federation) -> _Parts:
    """Gradients of disjoint batches: a record is in one message an epoch."""
    clip = _clip(dice, 2)
    steps: list[Step] = [clip, _noise(dice, "gaussian", dice.number(0.5, 8.0), clip.norm)]
    if dice.chance(0.2):
        steps.append(Momentum(0.5))
    return _Parts(tuple(steps), "gradient", _sgd(dice.one(1, 2, 3)))


def bent(dice: _Dice, public: _Federation) -> _Parts:
    """Noise before a clip, which bends it, and noise after."""
    first, second = Clip(dice.number(0.5, 3.0)), Clip(dice.number(0.3, 2.0))
    early, late = Perturb(noise_std=dice.number(0.2, 3.0)), Perturb(noise_std=dice.number(0.3, 4.0))
    return _Parts((first, early, second, late), dice.one("update", "weights"), tensors=(1,))


def shortened(dice: _Dice, public: _Federation) -> _Parts:
    """Noise that grows from round to round, with fewer rounds where the test loss does not fall (GEO)."""
    clip = Clip(dice.number(0.3, 3.0))
    schedule = Geometric(max(2, public.rounds), dice.number(0.7, 1.5), _flat, shorten=dice.one(0.5, 0.8))
    return _Parts((clip, Perturb(noise_std=clip.norm * dice.number(0.5, 6.0))), changes={"schedule": schedule})


def long(dice: _Dice, public: _Federation) -> _Parts:
    """So many rounds that the broadcasts tell who is there, and clients who can answer in what is caught of them."""
    clip = Clip(dice.number(0.3, 3.0))
    changes = {"participation": Everyone(), "aggregate": Mean(), "schedule": FixedRounds(dice.one(24, 48))}
    noise = Perturb(noise_std=clip.norm * dice.number(0.5, 2.0))
    return _Parts((clip, noise), dice.one("update", "gradient"), changes=changes, tensors=(2, 1), records=(2, 2))


def correlated(dice: _Dice, public: _Federation) -> _Parts:
    """Clipped uploads, and noise on their mean that hangs together over the rounds."""
    clip, rounds = _clip(dice, 2), dice.one(1, 2, 3, 5, 8, 11)
    strategy = dice.one(
        BandMF(rounds, int(dice.rng.integers(1, rounds + 1))),
        BandMF(rounds, int(dice.rng.integers(1, rounds + 1))),
        Tree(rounds, int(dice.rng.integers(1, rounds + 1)), honaker=dice.chance(0.5)),
        Tree(rounds, rounds, honaker=dice.chance(0.5)),
    )
    return _over_the_rounds(dice, public, clip, rounds, strategy)


def buffered(dice: _Dice, public: _Federation) -> _Parts:
    """As correlated, of a Toeplitz matrix with a few buffers: interlaced ones, or any."""
    clip, rounds, count = _clip(dice, 2), dice.one(1, 2, 3, 5, 8, 11), dice.one(1, 2, 3)
    falling = sorted((float(x) for x in dice.rng.uniform(0.05, 0.99, 2 * count)), reverse=True)
    decays, scales = tuple(falling[::2]), Buffers(tuple(falling[::2]), tuple(falling[1::2])).scales
    if dice.chance(0.3):
        scales = tuple(float(x) for x in dice.rng.uniform(-0.5, 0.8, count))
    return _over_the_rounds(dice, public, clip, rounds, BLT(rounds, decays, scales))


def _over_the_rounds(dice: _Dice, public: _Federation, clip: Clip, rounds: int, strategy: NoiseStrategy) -> _Parts:
    """The clip on every upload and the strategy's noise on the hub, for clients who come in turn or by lot."""
    clients = len(public.records)
    turns = int(dice.rng.integers(1, clients + 1))
    some = int(dice.rng.integers(1, clients + 1))
    taking_turns = Separated(max(1, clients // turns), turns)
    participation = dice.one(taking_turns, RoundRobin(some), Everyone(), Uniform(some))
    noise = PerturbCorrelated(clip.norm * dice.number(0.5, 6.0), CorrelatedDraw(strategy))
    update = dice.one(Add(), AddWithMomentum(0.5, dice.one(0.0, 0.9)))
    changes = {
        "server": (noise,),
        "participation": participation,
        "schedule": FixedRounds(rounds),
        "aggregate": dice.one(Mean(), PopulationMean(clients, sum(public.records))),
        "update": update,
    }
    return _Parts((clip,), changes=changes)


def whole_steps(dice: _Dice, public: _Federation) -> _Parts:
    """Updates of whole steps with discrete noise, from less than a step on, in sums modulo a few or many steps."""
    clip, step = Clip(dice.number(0.3, 3.0)), 2.0 ** int(dice.rng.integers(-6, 2))
    noise = PerturbDiscrete(step * dice.number(0.3, 20.0), 2 ** int(dice.one(4, 7, 12, 18)))
    return _Parts((clip, RoundToSteps(step, dice.one(0.0, 0.6065, 0.9)), noise), changes={"aggregate": Mean()})


def optimised(dice: _Dice, public: _Federation) -> _Parts:
    """Noisy gradients, or noise on their mean, that drive an optimiser on the hub."""
    clip, (std, hub) = _clip(dice, 2), (dice.number(0.3, 6.0), dice.chance(0.5))
    noise = Perturb(noise_std=clip.norm * std)
    changes = {
        "server": (noise,) if hub else (),
        "participation": dice.one(Everyone(), RoundRobin(1), Dropout(Everyone(), 0.3), Separated(1, 1)),
        "update": Optimise(dice.one("momentum", "adam", "rmsprop"), 0.5),
    }
    return _Parts((clip,) if hub else (clip, noise), "gradient", changes=changes)


def interrupted(dice: _Dice, public: _Federation) -> _Parts:
    """As correlated, of clients who may fail to answer."""
    parts = dice.one(correlated, buffered)(dice, public)
    inner = parts.changes["participation"]
    return replace(parts, changes={**parts.changes, "participation": Dropout(inner, dice.one(0.1, 0.3, 0.6))})


def scheduled(dice: _Dice, public: _Federation) -> _Parts:
    """Noise that changes with the rounds, by a formula or while the test loss falls, on tensors clipped one by one."""
    rounds = dice.one(3, 7, 10)
    fade, slope = NoiseOverRounds(rounds, dice.one(_growing, _fading)), DecayWhileFalling(rounds, dice.one(0.5, 0.9))
    clip = Clip(dice.number(0.3, 3.0), per_layer=dice.chance(0.6))
    steps: tuple[Step, ...] = (clip, Perturb(noise_std=clip.norm * dice.number(0.5, 6.0)))
    if dice.chance(0.3):
        steps = (TopK(0.5), *steps)
    return _Parts(steps, dice.one("update", "weights"), changes={"schedule": dice.one(fade, slope)})


def _growing(part: float) -> float:
    return 1 + part


def _fading(part: float) -> float:
    return 1 - part / 2


FAMILIES: dict[str, Callable[[_Dice, _Federation], _Parts]] = {
    function.__name__.replace("_", " "): function
    for function in (
        uploads,
        hub_noise,
        stepwise,
        dpsgd,
        epochs,
        components,
        hub_clip,
        bent,
        shortened,
        long,
        dealt,
        responses,
        correlated,
        buffered,
        whole_steps,
        optimised,
        interrupted,
        scheduled,
    )
}
# What came later has the seeds behind those of what was there before.
LATER, LATER_FROM = ("dealt", "responses", "correlated"), 1000
LAST, LAST_FROM = ("buffered", "whole steps"), 1100
NEWEST, NEWEST_FROM = ("optimised", "interrupted", "scheduled"), 3000
TURNS = (
    *(name for name in FAMILIES if name not in (*LATER, *LAST, *NEWEST)),
    "uploads",
    "hub noise",
    "uploads",
)  # the largest more often
