"""Cohorts drawn by a coin for each client, behind a fixed clip or one that moves: what the broadcasts tell.

Everybody sends nothing but the subject, which sends as much as the clip lets through, or (replace_one) that much
backwards in the other world. Two games:

- *coins*: a mixture a round, of a Gaussian moved or not.
- *empty rounds*: whether anybody came may show in the size of a round's noise, as it stands in many numbers that nobody
  moves. Then a round that somebody was in holds the subject with a larger chance. Whether it shows is measured: the
  real hub merges a round twice, of one client that sends nothing and of nobody, with the same draws, at several clips.

Nothing here comes from `audit.proven`, or looks at a release.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.defenses.federation import cohort_of, merge, start_state, uploads_of
from dpfl_audit.defenses.local import LocalResult
from dpfl_audit.defenses.terms import ADJACENCIES, Adjacency
from dpfl_audit.defenses.topology import Group
from dpfl_audit.defenses.wire import SERVER
from scipy.stats import beta

from .losses import Pair, View, epsilon, sampled

PATHS, LEVEL = 20_000, 1e-9  # simulated paths of the clip; the chance that their bound is wrong
APART = 12.0  # standard errors of a log size between two noises that are told apart, 6 to either side
WRONG = 2e-9  # the chance that a noise's size is beyond 6 of them
CLIPS = (0.0, 0.25, 0.3, 0.35, 0.4, 0.5, 1.0, 2.0, 5.0, 20.0)  # |log C/C_0| at which a hub is looked at
FAR = -60.0  # where the mixture of a round puts what tells that it was empty


@dataclass(frozen=True)
class Coins:
    """A training with Poisson cohorts. z: what a round's noise is to a client's part. momentum is none."""

    seed: int
    scheme: str
    clients: int
    participants: int
    rounds: int
    z: float
    delta: float
    quantile: float
    clip_lr: float

    @property
    def rate(self) -> float:
        return self.participants / self.clients

    @cached_property
    def experiment(self) -> Experiment:
        scheme: dict[str, Any] = {"name": self.scheme, "rounds": self.rounds, "noise_multiplier": self.z}
        scheme |= {"participants": self.participants, "sampling": "poisson"}
        if self.scheme == "adaptive-clip":
            scheme |= {"quantile": self.quantile, "clip_lr": self.clip_lr, "beta": 0.0}
        raw = {
            "seed": self.seed,
            "data": {"name": "digits", "clients": self.clients, "samples_per_client": 2},
            "model": {"name": "logistic"},
            "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 2},
            "scheme": scheme,
        }
        return build(parse_config(raw), Path())


def draw(seed: int) -> Coins:
    rng = random.Random(f"coins {seed}")
    clients = rng.randint(2, 8)
    participants = rng.randint(1, max(1, min(3, clients - 1)))
    return Coins(
        seed,
        rng.choice(("central-gaussian", "adaptive-clip")),
        clients,
        participants,
        rng.randint(4, 12),  # the ledger prices every round of a clip that moves by itself, in a third of a second
        rng.uniform(0.6, 2.0),
        rng.choice((1e-2, 3e-3)),
        rng.choice((0.0, 0.25, 1.0)),
        rng.choice((0.2, 2.0, 10.0)),
    )


def adjacency_of(c: Coins) -> Adjacency:
    """One of the two, by the seed."""
    return ADJACENCIES[c.seed % len(ADJACENCIES)]


def truth(c: Coins, adjacency: Adjacency) -> tuple[float, str]:
    """What whoever sees the models learns at least of a client, and in which game."""
    moved = 1 / c.z
    back = -moved if adjacency == "replace_one" else 0.0
    plain = epsilon(View(pairs=((sampled("gaussian", c.rate, moved, back), c.rounds),)), c.delta)
    told, unsure = rounds_that_tell(c)
    if not told:
        return plain, "coins"
    nobody = (1 - c.rate) ** c.clients
    held = ((nobody, FAR), (1 - c.rate - nobody, 0.0))
    pair = Pair("gaussian", (*held, (c.rate, moved)), (*held, (c.rate, back)))
    hidden = (sampled("gaussian", c.rate, moved, back), c.rounds - told)
    shown = epsilon(View(pairs=((pair, told), *((hidden,) if hidden[1] else ()))), c.delta + unsure)
    return max((plain, "coins"), (shown, "empty rounds"))


@lru_cache(maxsize=64)
def rounds_that_tell(c: Coins) -> tuple[int, float]:
    """In how many rounds it shows whether anybody came, and the chance that there are fewer: at most a fifth of δ.

    Of an adversary who uses this in the first so many of them, whose place follows from what was published before.
    """
    numbers = sum(p.numel() for p in c.experiment.module.parameters()) - 1
    hidden = max((x for x, ratio in measured(c) if abs(log(ratio)) * sqrt(2 * numbers) <= APART), default=-1.0)
    least = min((x for x in CLIPS if x > hidden), default=inf)
    if least == inf:
        return 0, 0.0
    counts = np.min([np.sort((far_away(c, swing) >= least).sum(1)) for swing in (-0.5, 0.0, 0.5)], axis=0)
    for k in range(PATHS // 20, -1, -1):  # k paths have fewer rounds that tell
        unsure = float(beta.ppf(1 - LEVEL, k + 1, PATHS - k)) + c.rounds * WRONG
        if unsure <= c.delta / 5:
            return int(counts[k]), unsure
    return 0, 0.0


def far_away(c: Coins, swing: float) -> np.ndarray:
    """(paths, rounds) |log C_t/C_0| by Alg. 1 of arXiv:1905.03871, where the subject alone moves the count."""
    rng = np.random.default_rng([c.seed, 7])
    std = max(c.participants / 20, c.z)
    count = swing * (rng.random((PATHS, c.rounds)) < c.rate) + std * rng.standard_normal((PATHS, c.rounds))
    steps = -c.clip_lr * (0.5 + count / c.participants - c.quantile)
    return np.abs(np.concatenate([np.zeros((PATHS, 1)), np.cumsum(steps, axis=1)[:, :-1]], axis=1))


def measured(c: Coins) -> list[tuple[float, float]]:
    """At clips C = C_0·e^±x, x among `CLIPS`: (x, the noise of a round with nobody over that of one with a client who
    sends nothing).
    """
    federation, start = c.experiment.federation(), 0.1
    first = start_state(federation)
    plan = c.experiment.scheme.schedule.plan(0, {})
    assert plan is not None
    drawn = cohort_of(federation, 0, range(c.clients))
    nothing = LocalResult(torch.zeros_like(first.models[SERVER].vector))

    def noise(senders: tuple[int, ...], clip: float) -> float:
        now = copy.deepcopy(first)
        if c.scheme == "adaptive-clip":
            now.models[SERVER] = replace(now.models[SERVER], side={"clip_norm": clip})
        sent = uploads_of(federation, now, plan, {m: (federation.job(now, m, plan), nothing) for m in senders})
        cohort, received = replace(drawn, members=senders), [sent.parcels[m] for m in senders]
        merged, _ = merge(federation, now, Group(SERVER, senders), cohort, plan, received)
        return float(merged.vector.double().norm())

    clips = [(x, start * exp(sign * x)) for x in CLIPS for sign in (-1, 1)]
    return [(x, noise((), clip) / noise((0,), clip)) for x, clip in clips]
