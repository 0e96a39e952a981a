"""One training run in which a coin decides every round whether the canary is there.

That gives as many trials as rounds, and nothing is trained twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count as counting
from math import ceil, inf
from typing import Any

import numpy as np
import torch
from scipy.stats import binom

from ....defenses.engine import batched
from ....defenses.federation import Federation, RoundRecord, rounds, start_state
from ....defenses.progress import Progress
from ....defenses.randomness import generator
from ....defenses.schedule import History, RoundPlan, Schedule
from ....defenses.wire import SERVER, Message, Wire
from ...proof.theorems.gaussian import gaussian_multiplier
from ...two_worlds.coin_ledger import Round, composed, recorded
from ...two_worlds.draws import MechanismAudit, audit_scores
from ...two_worlds.estimators import LowerBound, one_run, one_run_fdp, one_run_shift
from ...two_worlds.estimators.separate import Separate
from ...two_worlds.sequential import BoundRule
from .client_round import Moment, World, snapshot
from .trials import HubTrials, UploadTrials, with_side

LEAST = 12  # rounds with and without the canary, in either part of the run
# Rounds whose ratios, or whose changes by the canary, differ by no more than this share count as equal. The bound is
# lowered by the difference.
EQUAL = 0.05
_BEYOND = 1e12  # the score of a message that is not finite where it should be


@dataclass(frozen=True)
class Prolonged:
    """A schedule that goes on up to `rounds` rounds, with the plan of round `again`.

    An audit may want more trials than the training has rounds.
    """

    inner: Schedule
    rounds: int
    again: int

    def plan(self, round: int, history: History) -> RoundPlan | None:
        if round >= self.rounds:
            return None
        for each in (round, *range(self.again, -1, -1)):
            if (plan := self.inner.plan(each, history)) is not None:
                return plan
        return None


@dataclass(frozen=True)
class Flip:
    """One round's trial. inserted: how the coin fell. change: how far the canary moves the noise-free message, in
    standard deviations of the noise that the message says it has (in parameter units over the learning rate, where it
    says none); ratio: see `coin_ledger.Round`.
    """

    score: float
    inserted: bool
    change: float
    ratio: float


@dataclass(frozen=True, eq=False)
class CoinAudit:
    """What the coins of one run demonstrate.

    per_round: bounds on one round of `ratio`, if the client is in it.
    one_run, one_run_fdp: from guesses about the coins of these rounds at once. Each coin is about one round, so these
      too are bounds on one round's ε, and the more so on the whole run's. The second is of Gaussian-shaped rounds, None
      where they cannot be; one_run_shift: of such rounds by the scores' size, the noise of each round being its own and
      nothing nonlinear after it.
    mu: the lower bound on such a round's μ, if it is Gaussian-shaped (0 where it cannot be).
    ratio: the largest of the rounds measured, at most EQUAL above the least.
    unsteady: the canary's change over the round's ratio, its largest value over its least, less 1, of all rounds of the
      run; infinite where a ratio is not known. Where it is more than EQUAL, one round's μ says nothing of another's.
    flips: coins flipped, calibration included. measured: the coins of rounds whose ratios count as equal, the only ones
      used.
    """

    per_round: MechanismAudit
    one_run: LowerBound
    one_run_fdp: LowerBound | None
    one_run_shift: LowerBound | None
    mu: float
    ratio: float
    unsteady: float
    flips: int
    measured: int

    @property
    def steady(self) -> bool:
        return self.unsteady <= EQUAL

    def composed(self, planned: Sequence[Round], delta: float) -> tuple[float, str]:
        """A lower limit on the ε of the planned rounds together if they are Gaussian, and how it came about.

        Where the canary changes a steady share of what each round's bound allows, a round's μ is the measured one times
        its ratio over `ratio`, lowered by the difference between rounds. Else the round measured stands alone.
        """
        if not self.steady:
            rate = min(r.rate for r in planned)
            value, how = composed([(self.mu, rate)], delta)
            why = f"what the canary changes differs by {self.unsteady:.0%} between rounds"
            if self.unsteady == inf:
                why = "its noise or bound is not known beforehand"
            return value, f"one round alone, not composed because {why}" + (f" ({how})" if rate < 1 else "")
        scaled = [(self.mu * (r.ratio / self.ratio) / (1 + self.unsteady), r.rate) for r in planned]
        value, how = composed(scaled, delta)
        return value, f"{len(planned)} of them composed by {how}, each with μ by its recorded noise"


@dataclass(frozen=True)
class CoinRun:
    """One run whose rounds are decided by coins.

    count: its rounds; the federation's schedule is prolonged to so many. planned: the client's rounds in the ledger
    that the audit is about. No round that says more than these is measured, and rounds beyond the schedule repeat the
    last of them. aggregate: whether the observer sees the hub's model, not the client's message. honest: the share of
    the other clients whose noise the observer of a model does not know. seed: of the coins.
    """

    count: int
    planned: Sequence[Round]
    aggregate: bool
    honest: float = 1.0
    seed: int = 0


def coin_flips(
    federation: Federation,
    client: int,
    worlds: Callable[[Moment], tuple[World, World]],
    run: CoinRun,
    rule: BoundRule,
    progress: Progress | None = None,
) -> CoinAudit:
    """Runs `federation`; a fair coin decides between the client's two worlds in each of its rounds.

    Scores are ⟨message − v₀, v₁ − v₀⟩/(‖v₁ − v₀‖·std), with both worlds as the attacker computes them in that round.

    Args:
        federation: whose rounds are run.
        client: who is audited.
        worlds: a moment → the client's worlds without and with the canary.
        run: what is run. rule: of the bounds, without targets.
        progress: called with the rounds done and their number.

    Raises:
        ValueError: `planned` is empty, or as `judge_flips` says.
    """
    seen: dict[str, Any] = {}

    def hear(message: Message) -> None:
        if message.sender_party == client and message.receiver_parties != (client,):
            seen["message"], seen["releases"] = with_side(message.vector, message.side), message.releases

    def finish(record: RoundRecord) -> None:
        if run.aggregate:
            model = record.state.models[SERVER]
            (version,) = model.inherits  # the one this round made
            own = version.releases if version.merged is None else version.merged
            seen["message"], seen["releases"] = with_side(model.vector, model.side), own

    if not run.planned:
        raise ValueError(
            f"the ledger has no round of client {client} that this observer sees; audit a client that takes part"
        )
    longer = Prolonged(federation.scheme.schedule, run.count, run.planned[-1].round)
    federation = replace(federation, wire=Wire(hear), scheme=replace(federation.scheme, schedule=longer))
    state = start_state(federation)
    running = rounds(federation, state, finish)
    flips = list[Flip]()
    jobs = next(running, None)
    while jobs is not None:
        moment = Moment(federation, snapshot(state), client)
        cohort, _ = moment.cohort()
        results, trials, coin = batched(jobs), None, 0
        if client in cohort.members:
            coin = int(torch.randint(2, (1,), generator=generator(run.seed, "coin", moment.state.round)))
            uploads = UploadTrials(moment, worlds(moment))
            trials = HubTrials.of(uploads, run.honest) if run.aggregate else uploads
            results[cohort.members.index(client)] = uploads.worlds[coin].result(uploads.trained(coin), moment.job.start)
        try:
            jobs = running.send(results)
        except StopIteration:
            jobs = None
        if trials is not None:
            releases = seen.pop("releases")
            known = recorded(releases, client, moment.state.round)
            score, change = _score(seen.pop("message"), trials, moment.plan.lr)
            flips.append(Flip(score, bool(coin), change, inf if known is None else known.ratio))
        if progress is not None:
            progress(moment.state.round + 1, run.count)
    return judge_flips(
        flips, max(r.ratio for r in run.planned), rule.gaussian, rule.delta, rule.confidence, run.count, rule.noise_last
    )


def _score(message: torch.Tensor, trials: UploadTrials | HubTrials, lr: float) -> tuple[float, float]:
    """A message's score, and how far apart the two worlds are in the same units."""
    without, present = trials.expected()
    change = ((present.centre - without.centre) / without.shape).double()
    heard = ((message - without.centre) / without.shape).double()
    if bool((torch.isfinite(heard) != torch.isfinite(change)).any()) or not bool(torch.isfinite(change).all()):
        if bool((torch.isfinite(message) == torch.isfinite(present.centre)).all()):
            return _BEYOND, inf
        return -_BEYOND, inf
    size = float(change.norm())
    declared = isinstance(present.shape, torch.Tensor) or present.shape != 1.0
    unit = 1.0 if declared else lr  # noise drawn inside training has gone through the same learning rate
    return (float(heard @ change) / size / unit if size else 0.0), size / unit


def judge_flips(
    flips: Sequence[Flip],
    largest: float,
    gaussian: bool,
    delta: float,
    confidence: float = 0.95,
    run: int | None = None,
    noise_last: bool = True,
) -> CoinAudit:
    """What a run's coins demonstrate of one round.

    Of the rounds that say no more than `largest`, the largest group of equal ratios is used. Its first third fixes the
    threshold. The choice follows from ratios alone, so nothing is chosen by its result.

    Args:
        flips: the run's trials.
        largest: the ratio of the planned round that says most.
        gaussian: whether scores may be Gaussian-shaped. noise_last: whether nothing nonlinear comes after the noise.
        delta, confidence: of the bounds.
        run: rounds of the run, those without the client too; None: as many as flips.

    Raises:
        ValueError: fewer than 12 rounds with or without the canary are left in either part; says how many rounds would
            be enough.
    """
    used = _of_one_ratio(flips, largest)
    scores, inserted = np.array([f.score for f in used]), np.array([f.inserted for f in used], dtype=bool)
    cut = len(used) // 3
    early, late = inserted[:cut], inserted[cut:]
    fewest = min((int(part.sum()) for part in (early, ~early, late, ~late)), default=0)
    if fewest < LEAST:
        enough, rounds_run = max(enough_flips(), len(used) + LEAST), run or len(flips)
        more = ceil((enough - len(used)) * rounds_run / max(len(flips), 1))
        raise ValueError(
            f"{len(used)} rounds of equal noise, of {len(flips)} with the client, are too few for coin flips: their"
            f" first third and the rest must each have at least {LEAST} with and without the canary; about {enough} are"
            f" enough, which takes coin_rounds = {rounds_run + more}"
        )
    separate = Separate(scores[:cut][early], scores[:cut][~early])
    shift = float(np.mean([f.change for f in used]))
    bounds = audit_scores(
        scores[cut:][late],
        scores[cut:][~late],
        separate,
        delta=delta,
        confidence=confidence,
        shift=shift,
        gaussian=gaussian,
    )
    shown = 0.0 if bounds.if_gaussian is None else bounds.if_gaussian.epsilon
    apart, shaped = (scores[inserted], scores[~inserted]), bounds.if_gaussian is not None
    spread = all(np.isfinite(part).all() and np.ptp(part) > 0 for part in apart)
    by_shift = None
    if shaped and spread and noise_last:
        by_shift = one_run_shift(*apart, delta=delta, confidence=confidence)
    return CoinAudit(
        per_round=bounds,
        one_run=one_run(*apart, delta=delta, confidence=confidence),
        one_run_fdp=one_run_fdp(*apart, delta=delta, confidence=confidence) if shaped else None,
        one_run_shift=by_shift,
        mu=1 / gaussian_multiplier(shown, delta) if shown > 0 else 0.0,
        ratio=max(f.ratio for f in used),
        unsteady=_unsteady(flips),
        flips=len(flips),
        measured=len(used),
    )


@cache
def enough_flips() -> int:
    """The least number of coins of which the first third and the rest have `LEAST` of either kind, in 99 % of runs."""

    def missed(coins: int) -> float:
        return 2 * float(binom.cdf(LEAST - 1, coins, 0.5))

    return next(n for n in counting(6 * LEAST) if missed(n // 3) + missed(n - n // 3) <= 0.01)


def _of_one_ratio(flips: Sequence[Flip], largest: float) -> list[Flip]:
    allowed = sorted(flip.ratio for flip in flips if flip.ratio <= largest * (1 + 1e-9))
    counts = {low: sum(low <= ratio <= (1 + EQUAL) * low for ratio in allowed) for low in dict.fromkeys(allowed)}
    best = max(counts, key=lambda low: (counts[low], low), default=0.0)
    return [flip for flip in flips if best <= flip.ratio <= min((1 + EQUAL) * best, largest * (1 + 1e-9))]


def _unsteady(flips: Sequence[Flip]) -> float:
    if any(not (0 < flip.ratio < inf and 0 < flip.change < inf) for flip in flips):
        return inf
    shares = [flip.change / flip.ratio for flip in flips]
    return max(shares) / min(shares) - 1
