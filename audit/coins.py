"""One training run in which a coin decides every round whether the canary is there: as many trials as rounds, and nothing trained twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nan, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from ..defenses.engine import Engine, batched
from ..defenses.federation import Federation, RoundRecord, rounds, start_state
from ..defenses.randomness import generator
from ..defenses.schedule import History, RoundPlan, Schedule
from ..defenses.wire import SERVER, Message, Sampling, Wire
from .composition import Draw
from .composition import epsilon as composed_epsilon
from .demonstrate import Bound, one_run, one_run_fdp
from .demonstrate.separate import Separate
from .gaussian import gaussian_epsilon, gaussian_multiplier
from .mechanism import MechanismAudit, judged
from .worlds import HubTrials, Moment, UploadTrials, World, snapshot

Progress = Callable[[int, int], None]
LEAST = 12              # rounds with and without the canary, in either part of the run
_BEYOND = 1e12          # the score of a message that is not finite where it should be


@dataclass(frozen=True)
class Prolonged:
    """A schedule that goes on with its last plan up to `rounds` rounds: an audit may want more trials than the training has rounds."""

    inner: Schedule
    rounds: int

    def plan(self, round: int, history: History) -> RoundPlan | None:
        if round >= self.rounds:
            return None
        for earlier in range(round, -1, -1):
            if (plan := self.inner.plan(earlier, history)) is not None:
                return plan
        return None


@dataclass(frozen=True, eq=False)
class CoinAudit:
    """per_round: bounds on one round. one_run, one_run_fdp: from guesses about all rounds' coins at once; each coin is about one round, so these too are
    bounds on one round's ε, and the more so on the whole run's.

    mu: the lower bound on one round's μ, if it is Gaussian-shaped (0 where it is known not to be). sampling: of a round's cohort, where the observer sees nothing of it.
    rounds: trials, calibration included.
    """

    per_round: MechanismAudit
    one_run: Bound
    one_run_fdp: Bound
    mu: float
    sampling: Sampling | None
    rounds: int

    def composed(self, releases: int) -> tuple[float, str]:
        """The ε of `releases` Gaussian rounds of this μ, and how they were composed: exactly in closed form, or by PLD where the client is
        drawn in secret (at the cohort's rate, which is not tested here; a client that is not drawn leaves its place empty)."""
        if self.mu == 0 or releases == 0:
            return 0.0, "closed form"
        delta = self.per_round.gdp.delta
        if self.sampling is None:
            return gaussian_epsilon(1 / (self.mu * sqrt(releases)), delta), "closed form, no sampling"
        draw = Draw("gaussian", self.mu, "poisson", self.sampling.cohort, self.sampling.population, self.mu)
        found, accountant = composed_epsilon(((draw, releases),), delta)
        if accountant == "RDP":         # only an upper limit: no PLD fits an ε this large
            found, accountant = composed_epsilon(((draw, 1),), delta)[0], "none, one round alone"
        return found, f"{accountant}, a secret sample of {self.sampling.cohort:g} of {self.sampling.population} taken as stated"


def coin_flips(
    federation: Federation,
    client: int,
    worlds: Callable[[Moment], tuple[World, World]],
    *,
    count: int,
    aggregate: bool,
    delta: float,
    confidence: float = 0.95,
    seed: int = 0,
    engine: Engine = batched,
    progress: Progress | None = None,
) -> CoinAudit:
    """Runs `federation` for `count` rounds; in each in which the client takes part a fair coin decides between its two worlds.

    worlds(moment): without and with the canary. aggregate: the observer sees the hub's model, not the client's message.
    Scores are ⟨message − v₀, v₁ − v₀⟩/(‖v₁ − v₀‖·std) with both worlds as the attacker computes them in that round; the first third of the rounds fixes the
    threshold. Raises ValueError where that leaves fewer than 12 rounds of either kind.
    """
    seen: dict[str, torch.Tensor] = {}

    def hear(message: Message) -> None:
        if message.sender_party == client and message.receiver_parties != (client,):
            seen["message"] = message.vector

    def finish(record: RoundRecord) -> None:
        if aggregate:
            seen["message"] = record.state.models[SERVER].vector

    federation = replace(federation, wire=Wire(hear), scheme=replace(federation.scheme, schedule=Prolonged(federation.scheme.schedule, count)))
    state = start_state(federation)
    running = rounds(federation, state, finish)
    scores, inserted, shifts, sampling, gaussian = [], [], [], None, True
    jobs = next(running, None)
    while jobs is not None:
        moment = Moment(federation, snapshot(state), client)
        cohort, _ = moment.cohort()
        results, trials, coin = engine(jobs), None, 0
        if client in cohort.members:
            coin = int(torch.randint(2, (1,), generator=generator(seed, "coin", moment.state.round)))
            uploads = UploadTrials(moment, worlds(moment), engine=engine)
            trials = HubTrials.of(uploads) if aggregate else uploads
            results[cohort.members.index(client)] = uploads.worlds[coin].result(uploads.trained(coin), moment.job.start)
            sampling, gaussian = cohort.sampling if aggregate else None, trials.mechanism == "gaussian"
        try:
            jobs = running.send(results)
        except StopIteration:
            jobs = None
        if trials is not None:
            score, shift = _score(seen.pop("message"), trials)
            scores.append(score)
            inserted.append(bool(coin))
            shifts.append(shift)
        if progress is not None:
            progress(moment.state.round + 1, count)
    return _audited(np.array(scores), np.array(inserted), float(np.mean(shifts)) if shifts else 0.0, sampling, gaussian, delta, confidence)


def _score(message: torch.Tensor, trials: UploadTrials | HubTrials) -> tuple[float, float]:
    without, present = trials.expected()
    change = ((present.centre - without.centre) / without.shape).double()
    heard = ((message - without.centre) / without.shape).double()
    if bool((torch.isfinite(heard) != torch.isfinite(change)).any()) or not bool(torch.isfinite(change).all()):
        agrees = bool((torch.isfinite(message) == torch.isfinite(present.centre)).all())
        return (_BEYOND if agrees else -_BEYOND), inf
    size = float(change.norm())
    told = isinstance(present.shape, torch.Tensor) or present.shape != 1.0
    return (float(heard @ change) / size if size else 0.0), size if told else nan


def _audited(
    scores: NDArray[np.float64], inserted: NDArray[np.bool_], shift: float, sampling: Sampling | None, gaussian: bool, delta: float,
    confidence: float,
) -> CoinAudit:  # fmt: skip
    cut = len(scores) // 3
    early, late = inserted[:cut], inserted[cut:]
    fewest = min((int(part.sum()) for part in (early, ~early, late, ~late)), default=0)
    if fewest < LEAST:
        raise ValueError(f"{len(scores)} rounds are too few for coin flips: every third of them must have at least {LEAST} with and without the canary; run about {8 * LEAST}")
    separate = Separate(scores[:cut][early], scores[:cut][~early])
    found = judged(scores[cut:][late], scores[cut:][~late], separate, delta=delta, confidence=confidence, shift=shift, gaussian=gaussian)
    mu = 1 / gaussian_multiplier(found.gdp.epsilon, delta) if gaussian and found.gdp.epsilon > 0 else 0.0
    one = one_run(scores[inserted], scores[~inserted], delta=delta, confidence=confidence)
    one_fdp = one_run_fdp(scores[inserted], scores[~inserted], delta=delta, confidence=confidence)
    return CoinAudit(found, one, one_fdp, mu, sampling, len(scores))
