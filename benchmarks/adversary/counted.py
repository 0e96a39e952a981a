"""Worst-case clients really run through the round loop, and counted: a valid lower bound on ε that knows no formula.

The engine is replaced by one in which every client sends what the adversary wants (any local training is allowed: the
clips are the guarantee). All clips, noise, sums and updates are the project's own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import torch
from dpfl_audit.audit.two_worlds.estimators import clopper_pearson
from dpfl_audit.audit.two_worlds.estimators.clopper_pearson import best_threshold
from dpfl_audit.defenses.engine import local_bound
from dpfl_audit.defenses.federation import run_many
from dpfl_audit.defenses.local import LocalJob, LocalResult
from dpfl_audit.defenses.participation import Everyone, RoundRobin
from dpfl_audit.defenses.randomness import stream
from dpfl_audit.defenses.schedule import DecayWhileFalling, Geometric
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.respond import Respond
from dpfl_audit.defenses.terms import Adjacency, Observer
from dpfl_audit.defenses.wire import SERVER, Message, Wire

from .compositions import Composition
from .federation import Number, Traffic, centred, own_rounds, sent, swings, traffic
from .oracle import truth

HUGE = 1e3  # of an unbounded value
TOGETHER = 250  # federations in one array computation
Place = tuple[int, int]  # round and sender of a message

COUNTABLE = ("server", "uplink", "downlink", "model")


@dataclass(frozen=True)
class Counted:
    """What counting showed about one client, at 95 % confidence."""

    observer: str
    adjacency: Adjacency
    game: str
    epsilon: float
    trials: int


@dataclass(eq=False)
class _Adversary:
    """An engine. world: 1 with the subject's data, 0 without (or with the opposite ones).

    answers: who tells, on the second axis, on which side of `middles` (by round) the model it got is; None for nobody.
    """

    c: Composition
    subject: int
    world: int
    adjacency: Adjacency
    answers: int | None = None
    middles: Sequence[float] = ()
    round: int = 0
    clients: dict[int, int] = field(default_factory=dict)
    reaches: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clients = {int(row): i for i, rows in enumerate(self.c.rows) for row in rows}

    def __call__(self, jobs: Sequence[LocalJob]) -> list[LocalResult]:
        results = [self._sends(job) for job in jobs]
        self.round += 1
        return results

    def _sends(self, job: LocalJob) -> LocalResult:
        client = self.clients[int(job.batches[job.batches >= 0][0])]
        target = torch.zeros_like(job.start)
        reach = self._reach(client)
        if client == self.subject:
            reach *= 3 * self.c.clients if reach == HUGE else 1  # more than all others together hold back
            target[0] = reach if self.world else {"zero_out": 0.0, "replace_one": -reach}[self.adjacency]
        elif any(isinstance(step, Clip) for step in self.c.scheme.server):
            target[0] = -reach  # hold the clipped mean back
        if client == self.answers:
            target[1] = reach if float(job.start[0]) > self.middles[self.round] else -reach
        absolute = job.share == "weights" and not centred(self.c)
        return LocalResult(target - job.start if absolute else target, bound=local_bound(job))

    def _reach(self, client: int) -> float:
        """What nothing bounds before the clips is as large as they can be told; bounded training keeps its bound."""
        if self.c.scheme.local.step_clip is None or self.c.scheme.share == "gradient":
            return HUGE
        if (known := self.reaches.get((client, self.round))) is None:
            known = self.reaches[client, self.round] = sent(self.c, client, self.round).reach[1]
        return known


def countable(c: Composition) -> bool:
    """Whether every run has the planned cohorts and rounds, and its clients can be replaced by the adversary's."""
    schedule = c.scheme.schedule
    same = isinstance(c.scheme.participation, Everyone | RoundRobin)
    same = same and not (isinstance(schedule, Geometric) and schedule.shorten is not None)
    same = same and not isinstance(schedule, DecayWhileFalling)
    known = not any(isinstance(step, Respond) for step in c.scheme.client)
    known = known and getattr(c.scheme.update, "optimiser", "sgd") in ("sgd", "momentum")
    return same and known and c.scheme.local.per_example is None


def count(c: Composition, observer: Observer, adjacency: Adjacency, trials: int) -> Counted | None:
    """`trials` runs in each of two worlds that differ in one client; None where there is nothing to score."""
    best = truth(c, observer, "client", adjacency)
    if best.epsilon in (0.0, inf):
        return None
    (swing,) = swings(c, best.subject, "client", adjacency)
    out = traffic(c, best.subject, swing, 1)
    answers, middles = None, [0.5 * model.moved * (adjacency == "zero_out") for model in out.broadcasts]
    if best.game == "turned":
        answers = max((i for i in range(c.clients) if i != best.subject), key=lambda i: (own_rounds(c, i) or [-1])[-1])
        last = own_rounds(c, answers)[-1]
        factors = {(last, answers): (1, 1.0)}
    else:
        factors = {place: (0, factor) for place, factor in _statistic(c, observer, best.subject, out).items()}
    if not factors:
        return None
    worlds = [
        _scores(c, _Adversary(c, best.subject, world, adjacency, answers, middles), factors, trials) for world in (0, 1)
    ]
    if np.std(worlds[0]) == 0:
        raise RuntimeError("every trial drew the same noise; give each its own in adversary/counted.py")
    rng = np.random.default_rng(stream(0, "threshold split", 0))
    (pick_in, test_in), (pick_out, test_out) = (np.array_split(rng.permutation(w), 2) for w in (worlds[1], worlds[0]))
    threshold = best_threshold(pick_in, pick_out, c.delta, 1 - 0.95)  # of scores that are not tested
    bound = clopper_pearson(test_in, test_out, delta=c.delta, threshold=threshold)
    return Counted(str(observer), adjacency, best.game, bound.epsilon, trials)


def _statistic(c: Composition, observer: Observer, subject: int, out: Traffic) -> dict[Place, float]:
    """What each message's first number is multiplied by: the best test between two Gaussians; plain sums else."""
    numbers: dict[Place, Number] = {}
    if observer.name in ("server", "uplink"):
        numbers |= {(t, i): number for (t, i), number in out.uploads.items()}
    if observer.name in ("server", "downlink"):
        numbers |= {(t, SERVER): number for t, number in enumerate(out.broadcasts)}
    if observer.name == "model":
        numbers[len(out.broadcasts) - 1, SERVER] = out.broadcasts[-1]
    if observer.catches is not None:
        own = own_rounds(c, subject)[-observer.catches :]
        numbers = {(t, subject): out.uploads[t, subject] for t in own}
    if all(number.known for number in numbers.values()):
        places = [place for place, number in numbers.items() if number.noise.any() or number.moved]
        noise = np.stack([numbers[place].noise for place in places])
        moved = np.array([numbers[place].moved for place in places])
        factors, *_ = np.linalg.lstsq(noise @ noise.T, moved, rcond=1e-11)
        return dict(zip(places, factors.tolist()))
    return {(t, i): 1.0 for t, i in numbers if i == subject} or {place: 1.0 for place in list(numbers)[-1:]}


def _scores(c: Composition, adversary: _Adversary, factors: dict[Place, tuple[int, float]], trials: int) -> np.ndarray:
    """One score a run, each with noise of its own."""
    federation = c.experiment().federation()
    scores = np.zeros(trials)
    for first in range(0, trials, TOGETHER):
        runs = range(first, min(first + TOGETHER, trials))
        federations = []
        for run in runs:

            def hear(message: Message, run: int = run) -> None:
                axis, factor = factors.get((message.round, message.sender_party), (0, 0.0))
                scores[run] += factor * float(message.vector[axis]) if factor else 0.0

            seed = stream(c.seed, "counted", adversary.world, run)
            federations.append(replace(federation, seed=seed, wire=Wire(hear), evaluate=False))
        adversary.round = 0
        run_many(federations, adversary)
    return scores
