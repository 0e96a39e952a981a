"""ε by betting: a lower bound that holds whenever one looks, so that draws may end as soon as enough is known.

A skeptic of "P(A) ≤ e^ε Q(A) + δ for all A" begins with a wealth of 1 and names, before each pair of a draw X of one
world and Y of the other, an event A and a stake f. The pair multiplies the wealth by

    1 + f · (1[X ∈ A] − e^ε 1[Y ∈ A] − δ) / (e^ε + δ),

which is never negative and at most 1 on average if the claim is true, whatever came before: a nonnegative
supermartingale. By Ville's inequality it ever reaches 1/α with probability α at most, so that a claim may be called
refuted the moment it does (testing by betting: Shafer, arXiv:1903.06991; Waudby-Smith and Ramdas, arXiv:2010.09686; for
differential privacy arXiv:2509.07055). Every ε of a grid has its own skeptic. Where the skeptics of all ε up to some
point have won, that point is a lower bound: it exceeds the truth only if the skeptic of the first ε from the truth on,
whose claim is true, has won.

A perfect attack wins after ln(1/α)·e^ε/f pairs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, expm1, log, log1p
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from .bound import LowerBound, Scores, checked_level, checked_scores
from .separate import kernel_width

STAKES = np.array([0.1, 0.25, 0.5, 0.75, 0.9])  # never all: one miss would end it
STEP = 0.02  # between the ε of the grid
FIRST = 10  # pairs in the first block
GROWTH = 1 / 8  # of later ones, of all before it
MOST_PAIRS = 2**21  # more are planned for no claim
_CANDIDATES = 128  # thresholds looked at
_LIKE = 1000  # scores that stand for all earlier ones, where there are more
_FAR = 1e100


@dataclass(frozen=True, eq=False)
class Nulls:
    """k claims P(A) ≤ slopes·Q(A) + offsets, for all events A and either order of the worlds; each is tested alone.

    slopes, offsets: (k,); a claim of (ε, δ)-DP is the slope e^ε and the offset δ.
    """

    slopes: Scores
    offsets: Scores

    @cached_property
    def log_factors(self) -> Scores:
        """(4, k, stakes): the logarithm of what a pair multiplies the wealth by, for (X ∈ A, Y ∈ A) = (1, 0), (0, 1),
        (1, 1) and (0, 0).
        """
        hit, alarm = np.array([[1, 0, 1, 0], [0, 1, 1, 0]])
        paid = hit[:, None] - self.slopes * alarm[:, None] - self.offsets
        return np.log1p(STAKES * (paid / (self.slopes + self.offsets))[..., None])

    @property
    def most(self) -> Scores:
        """(k,) the most that a pair can add to the logarithm of the wealth."""
        return self.log_factors[0, :, -1]


@dataclass(frozen=True, eq=False)
class Bets:
    """What the skeptics of k claims bet on in one block of pairs.

    thresholds (k,): the event is "score ≥ threshold" of the world with the canary where `members` (k,), else "score <
    threshold" of the one without. stakes (k,): of `STAKES` by number, −1 for no bet.
    """

    thresholds: Scores
    members: NDArray[np.bool_]
    stakes: NDArray[np.int64]

    @classmethod
    def best(cls, nulls: Nulls, past_in: Scores, past_out: Scores) -> Self:
        """The bets under which the wealth would grow fastest if scores were spread as earlier ones were.

        Earlier scores are smoothed by a Gaussian kernel, so that thresholds lie in tails that few of them reached.
        """
        past_in, past_out = (np.clip(past, -_FAR, _FAR) for past in (past_in, past_out))
        ends = np.unique(np.concatenate([_like(past, _CANDIDATES // 2) for past in (past_in, past_out)]))
        if len(ends) < 2:
            k = len(nulls.slopes)
            return cls(np.zeros(k), np.ones(k, dtype=bool), np.full(k, -1))
        thresholds = (ends[1:] + ends[:-1]) / 2
        tpr, fpr = share_above(past_in, thresholds), share_above(past_out, thresholds)
        hit, alarm = np.concatenate([tpr, 1 - fpr]), np.concatenate([fpr, 1 - tpr])
        chances = np.stack([hit * (1 - alarm), (1 - hit) * alarm, hit * alarm, (1 - hit) * (1 - alarm)])
        k, many = len(nulls.slopes), len(thresholds)
        growth = chances.T @ nulls.log_factors.reshape(4, -1)  # (events, k · stakes)
        best, event = (found.reshape(k, -1) for found in (growth.max(0), growth.argmax(0)))
        stake = best.argmax(1)
        chosen = event[np.arange(k), stake]
        return cls(thresholds[chosen % many], chosen < many, np.where(best.max(1) > 0, stake, -1))


@dataclass(frozen=True, eq=False)
class Wagers:
    """The skeptics of k claims after some pairs.

    log_wealth (k,): of each now; highest (k,): ever. tp, fp (k,): how many draws with and without the canary scored at
    or above the thresholds of their blocks. pairs: drawn. bets: the last ones, None before any.
    """

    nulls: Nulls
    log_wealth: Scores
    highest: Scores
    tp: NDArray[np.int64]
    fp: NDArray[np.int64]
    pairs: int = 0
    bets: Bets | None = None

    @classmethod
    def on(cls, nulls: Nulls) -> Self:
        """Before any pair."""
        zero, none = np.zeros(len(nulls.slopes)), np.zeros(len(nulls.slopes), dtype=np.int64)
        return cls(nulls, zero, zero, none, none)

    def after(self, scores_in: Scores, scores_out: Scores, bets: Bets) -> Self:
        """After a block of pairs: scores (n,) with the canary and without, drawn after `bets` were made."""
        above_in, above_out = (
            len(scores) - np.searchsorted(np.sort(scores), bets.thresholds) for scores in (scores_in, scores_out)
        )
        both = _both_above(scores_in, scores_out, bets.thresholds)
        n = len(scores_in)
        neither = n - above_in - above_out + both
        hits = np.where(bets.members, above_in, n - above_out)
        alarms = np.where(bets.members, above_out, n - above_in)
        together = np.where(bets.members, both, neither)
        counts = np.stack([hits - together, alarms - together, together, n - hits - alarms + together])
        factors = self.nulls.log_factors[:, np.arange(len(bets.stakes)), bets.stakes]
        gained = np.where(bets.stakes < 0, 0.0, (counts * factors).sum(0))
        wealth = self.log_wealth + gained
        return replace(
            self,
            log_wealth=wealth,
            highest=np.maximum(self.highest, wealth),
            tp=self.tp + above_in,
            fp=self.fp + above_out,
            pairs=self.pairs + n,
            bets=bets,
        )

    def refuted(self, alpha: float) -> int:
        """How many of the claims, from the first on without a gap, are refuted at significance alpha."""
        return refuted_from_first(self.highest, alpha)

    def reachable(self, more: int, alpha: float) -> NDArray[np.bool_]:
        """Which claims (k,) are refuted, or still can be by `more` pairs without an error."""
        return np.maximum(self.highest, self.log_wealth + more * self.nulls.most) >= _enough(alpha)


def refuted_from_first(highest: Scores, alpha: float) -> int:
    """How many skeptics, from the first on without a gap, ever had the wealth that refutes at significance alpha."""
    won = highest >= _enough(alpha)
    if won.all():
        return len(won)
    return int(np.argmin(won))


def _enough(alpha: float) -> float:
    """The logarithm of the wealth that refutes, less what rounding may have cost."""
    return log(1 / alpha) * (1 - 1e-12)


def _like(scores: Scores, count: int) -> Scores:
    """At most about `count` of the scores, denser in both tails, which are where thresholds lie."""
    if len(scores) <= count:
        return scores
    shares = expit(np.linspace(-1, 1, count) * log(2 * len(scores)))
    return np.quantile(scores, shares)


def share_above(scores: Scores, thresholds: Scores) -> Scores:
    """The share of scores above each threshold, smoothed by a Gaussian kernel."""
    width = kernel_width(scores)
    if len(scores) <= _LIKE:
        some = scores
    else:
        some = np.quantile(scores, (np.arange(_LIKE) + 0.5) / _LIKE)
    if width == 0:
        return (some >= thresholds[:, None]).mean(1)
    return ndtr((some - thresholds[:, None]) / width).mean(1)


def _both_above(scores_in: Scores, scores_out: Scores, thresholds: Scores) -> NDArray[np.int64]:
    """Pairs of which either score is at or above each threshold."""
    lower = np.sort(np.minimum(scores_in, scores_out))
    return len(lower) - np.searchsorted(lower, thresholds)


# --- ε from wagers ---


def claims(delta: float, most: float, targets: Sequence[float] = ()) -> Scores:
    """The grid of ε that are bet against: from 0 to `most`, and for each target one that lies just above it."""
    if most <= 0:
        return np.zeros(1)
    grid = np.linspace(0.0, most, 1 + max(1, round(most / STEP)))
    return np.unique(np.concatenate([grid, [just_above(t) for t in targets if just_above(t) < grid[-1]]]))


def just_above(target: float) -> float:
    """The ε whose refutation refutes `target`: a bound must exceed it."""
    return 1.002 * target + 0.005


def betting_ceiling(pairs: int, delta: float, alpha: float) -> float:
    """The largest ε that so many pairs without an error refute.

    >>> round(betting_ceiling(369, 1e-5, 0.025), 2)
    4.5
    """
    if log(1 / alpha) < 700 * pairs:
        need = expm1(log(1 / alpha) / pairs)
    else:
        need = float("inf")
    ratio = STAKES[-1] * (1 - delta) / need - delta
    if ratio > 0:
        return max(0.0, log(ratio))
    return 0.0


def pairs_for(target: float, delta: float, alpha: float) -> int | None:
    """The least number of pairs whose ceiling exceeds `target`, an ε from 0 on; None where even `MOST_PAIRS` do not.

    >>> pairs_for(4.5, 1e-5, 0.025), pairs_for(20.0, 1e-5, 0.025)
    (371, None)
    """
    enough = 1 + bisect_right(range(1, MOST_PAIRS + 1), target, key=lambda n: betting_ceiling(n, delta, alpha))
    if enough <= MOST_PAIRS:
        return enough
    return None


def block_ends(draws: int, ceilings_at: Sequence[int] = ()) -> list[int]:
    """After which pairs one looks: blocks of ten, later an eighth of all before; and where a perfect attack would be
    done.

    >>> block_ends(100)
    [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    >>> len(block_ends(20_000))
    55
    """
    ends = {draws} | {end for end in ceilings_at if 0 < end < draws}
    end = 0
    while (end := end + max(FIRST, round(end * GROWTH))) < draws:
        ends.add(end)
    return sorted(ends)


def bet(
    nulls: Nulls, scores_in: Scores, scores_out: Scores, past: tuple[Scores, Scores], ends: Sequence[int]
) -> Wagers:
    """Wagers on pairs of scores that are all there already, block by block, as if they came one after the other.

    Args:
        nulls: the claims.
        scores_in, scores_out: (n,) of pairs, with the canary and without.
        past: scores with and without the canary of earlier draws, which bets may be learned from.
        ends: how many pairs there are at the end of each block.
    """
    wagers, first = Wagers.on(nulls), 0
    for end in ends:
        seen_in, seen_out = (np.concatenate([p, s[:first]]) for p, s in zip(past, (scores_in, scores_out)))
        wagers = wagers.after(scores_in[first:end], scores_out[first:end], Bets.best(nulls, seen_in, seen_out))
        first = end
    return wagers


def betting(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    past_in: ArrayLike,
    past_out: ArrayLike,
    delta: float,
    confidence: float = 0.95,
) -> LowerBound:
    """A lower bound on ε from the scores of trials with the canary and without, in the order they were drawn in.

    It assumes nothing of the mechanism, as `clopper_pearson` does not, and holds at all times together: with
    probability `confidence` no beginning of these scores gives a bound above the truth.

    Args:
        scores_in, scores_out: (n,) each, of independent trials; a higher score means "more likely with the canary".
        past_in, past_out: scores of earlier trials, which the first bets are learned from and which count for nothing
            else.
        delta: of the (ε, δ)-DP that is refuted.
        confidence: in (0.5, 1).

    Raises:
        ValueError: scores are empty, of unequal number or NaN, delta is outside [0, 1) or confidence outside (0.5, 1).

    >>> print(betting([1.0] * 369, [0.0] * 369, past_in=[1.0] * 50, past_out=[0.0] * 50, delta=1e-5, confidence=0.975))
    ε ≥ 4.49 at δ = 1e-05 (betting, 0.975 confidence; a perfect attack could have shown 4.5)
    """
    alpha = checked_level(delta, confidence)
    scores_in, scores_out = checked_scores("scores_in", scores_in), checked_scores("scores_out", scores_out)
    past = checked_scores("past_in", past_in), checked_scores("past_out", past_out)
    if len(scores_in) != len(scores_out):
        raise ValueError(
            f"bets are on pairs, got {len(scores_in)} scores with the canary and {len(scores_out)} without"
        )
    grid = claims(delta, betting_ceiling(len(scores_in), delta, alpha))
    wagers = bet(
        Nulls(np.exp(grid), np.full(len(grid), delta)), scores_in, scores_out, past, block_ends(len(scores_in))
    )
    return bound_of(wagers, grid, delta, confidence, len(scores_in))


def bound_of(wagers: Wagers, grid: Scores, delta: float, confidence: float, planned: int) -> LowerBound:
    """What wagers show.

    Args:
        wagers: on the ε of `grid`. delta, confidence: of the bound.
        planned: pairs that its ceiling is of.
    """
    alpha = 1 - confidence
    done = wagers.refuted(alpha)
    at = max(done - 1, 0)
    bets, n = wagers.bets, wagers.pairs
    tp, fp = int(wagers.tp[at]), int(wagers.fp[at])
    return LowerBound(
        epsilon=float(grid[at]) if done else 0.0,
        delta=delta,
        confidence=confidence,
        method="betting",
        counts={"tp": tp, "fp": fp, "fn": n - tp, "tn": n - fp},
        threshold=None if bets is None else float(bets.thresholds[at]),
        ceiling=betting_ceiling(planned, delta, alpha),
    )


def pairs_needed(target: float, delta: float, alpha: float) -> int:
    """Pairs after which a perfect attack has refuted `target`.

    >>> pairs_needed(4.5, 1e-5, 0.025)
    377
    """
    slope = exp(min(just_above(target), 700.0))
    return int(np.ceil(log(1 / alpha) / log1p(STAKES[-1] * (1 - delta) / (slope + delta))))
