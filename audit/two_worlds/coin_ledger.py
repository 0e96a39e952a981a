"""From one round's μ to the ledger a row is about: which rounds these are, and the least that they cost together.

Everything here is a lower limit. An accountant's ε is an upper one, and taken for a measurement it would refute true
claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import exp, fsum, inf, isfinite, log, sqrt
from typing import Any

from dp_accounting.pld import privacy_loss_distribution as pld

from ...defenses.releases import Facts
from ...defenses.terms import Observer
from ..proof.theorems.gaussian import gaussian_epsilon
from ..setup.ledger import Ledger, LedgerMessage, party_sees
from .estimators import LowerBound
from .estimators.clopper_pearson import upper_limit

PLD_UP_TO = 500.0  # exp of more than this overflows in PLD
_FFT = 1e-11  # more δ than PLD's rounding errors and cut tails can amount to


@dataclass(frozen=True)
class Round:
    """A client's part in one round of a ledger.

    ratio: the bound over the noise, of all the round's releases together; infinite where the ledger does not say (no
    noise, no bound, a bound computed from private data, or noise that is in other rounds too). rate: the chance that
    the client was in the round at all, unseen by the observer.
    """

    round: int
    ratio: float
    rate: float = 1.0


def recorded(releases: Iterable[Facts], client: int, round: int) -> Round | None:
    """What the releases of one round say about a client; None where that is nothing.

    A release all of whose parents are among them was computed from these and says nothing more.
    """
    about = [r for r in releases if r.round == round and client in r.subjects]
    ids = {r.id for r in about}
    about = [r for r in about if not (r.parents - {r.id}) or not (r.parents - {r.id}) <= ids]
    if not about:
        return None
    known = all(r.mechanism not in ("none", "correlated") and not r.problem and isfinite(r.ratio) for r in about)
    ratio = sqrt(fsum(r.steps * r.ratio**2 for r in about)) if known else inf
    drawn = [
        r.sampling.cohort / r.sampling.population
        for r in about
        if r.sampling is not None and r.sampling.unit == "client"
    ]
    return Round(round, ratio, min(drawn) if len(drawn) == len(about) else 1.0)


def planned_rounds(ledger: Ledger, client: int, observer: Observer) -> tuple[Round, ...]:
    """The rounds in which an observer gets something of the client's: its own messages, or the hub's models.

    For uplink(L) the L rounds that say most.
    """
    if observer.sees_merged_only:
        seen = ledger.count(ledger.seen_by(observer))
        by_round: dict[int, list[Facts]] = {}
        for release in seen:
            by_round.setdefault(release.round, []).append(release)
        records = [recorded(by_round[round], client, round) for round in sorted(by_round)]
    else:
        own = (m for m in ledger.uploads.get(client, ()) if _hears(ledger, observer, m))
        records = [recorded(ledger.count(ledger.releases[i] for i in m.releases), client, m.round) for m in own]
    rounds = [r for r in records if r is not None]
    if observer.catches is not None:
        rounds = sorted(rounds, key=lambda r: -r.ratio)[: observer.catches]
    return tuple(sorted(rounds, key=lambda r: r.round))


def _hears(ledger: Ledger, observer: Observer, upload: LedgerMessage) -> bool:
    party = ledger.observers.get(observer.name)
    if party is not None:
        return party in upload.receivers
    return observer.catches is not None or party_sees(observer, upload, upload.round)


def composed(mus: Sequence[tuple[float, float]], delta: float) -> tuple[float, str]:
    """A lower limit on the ε of Gaussian rounds together, and what gave it.

    mus: for each round its μ if the client is in it, and the rate at which it is, drawn anew and in secret. A client
    that is not drawn leaves what it would leave with no say, so a round is N(0, 1) against (1 − q)·N(0, 1) + q·N(μ, 1).

    Exact where nothing is drawn. Else the larger of two limits: a PLD with all losses rounded down; and, as the second
    world is at least Q = q₁ … q_k times the one in which the client was in the first k rounds for certain, for every k

        ε(δ) ≥ ε_k(δ/Q) + ln Q, with ε_k that of these k rounds without a draw.

    >>> value, how = composed([(0.5, 1.0)] * 4, 1e-5)
    >>> round(value, 4), how, composed([], 1e-5)
    (4.3772, 'closed form', (0.0, 'nothing to compose'))
    """
    rounds = sorted(((mu, rate) for mu, rate in mus if mu > 0 and rate > 0), key=lambda one: (one[1] < 1, -one[0]))
    if not rounds:
        return 0.0, "nothing to compose"
    whole = _epsilon([mu for mu, _ in rounds], delta)
    if rounds[-1][1] == 1:
        return whole, "closed form"
    best, chance = (0.0, "nothing to compose"), 0.0
    for k, (_, rate) in enumerate(rounds, 1):
        chance += log(rate)
        if chance <= log(delta):
            break
        limit = _epsilon([mu for mu, _ in rounds[:k]], delta * exp(-chance)) + chance
        best = max(best, (limit, f"closed form, {k} of the draws taken to fall on the client"))
    if whole <= PLD_UP_TO:
        return max(best, (_rounded_down(rounds, delta, whole), "PLD rounded down"))
    return best


def _epsilon(mus: Sequence[float], delta: float) -> float:
    return gaussian_epsilon(1 / sqrt(fsum(mu * mu for mu in mus)), delta)


def _rounded_down(mus: Sequence[tuple[float, float]], delta: float, most: float) -> float:
    """The grid is so fine that rounding costs about a thousandth of `most`, whatever the number of rounds."""
    interval = max(1e-6, most * min(2e-4, 0.002 / len(mus)))
    options: dict[str, Any] = {
        "pessimistic_estimate": False,
        "use_connect_dots": False,
        "value_discretization_interval": interval,
    }
    each = (
        pld.from_gaussian_mechanism(1 / mu, sampling_prob=rate, **options).self_compose(count)
        for (mu, rate), count in sorted(Counter(mus).items())
    )
    total = reduce(lambda one, other: one.compose(other), each)
    return float(total.get_epsilon_for_delta(min(1.0, 1.001 * delta + _FFT)))


def with_a_draw(bound: LowerBound, rate: float) -> LowerBound:
    """A bound by counting on rounds that the client is in, turned into one on rounds with a secret draw at `rate`.

    Its error rates are then q·TPR + (1 − q)·FPR where it was TPR, and the rest follows as in `clopper_pearson`, from
    the same two limits.
    """
    alpha, counts = 1 - bound.confidence, bound.counts
    n_in, n_out = counts["tp"] + counts["fn"], counts["fp"] + counts["tn"]

    def at(missed: int, alarms: int) -> float:
        fnr, fpr = (float(upper_limit(wrong, n, alpha / 2)) for wrong, n in ((missed, n_in), (alarms, n_out)))
        there = 1 - rate + (rate * (1 - fnr) - bound.delta) / fpr
        back = (1 - fpr - bound.delta) / (rate * fnr + 1 - rate)
        return max(0.0, *(log(ratio) for ratio in (there, back) if ratio > 0))

    return replace(bound, epsilon=at(counts["fn"], counts["fp"]), ceiling=at(0, 0))
