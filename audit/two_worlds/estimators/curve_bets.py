"""μ by betting on errors at several thresholds, against a whole trade-off curve: a limit that holds at all looks.

If the worlds are μ-GDP, P(A) ≤ Φ(μ + Φ⁻¹(Q(A))) for every event A (arXiv:1905.02383), a concave curve, so that
P(A) ≤ s·Q(A) + o for each of its tangents. A skeptic bets on the events "score ≥ t" of several thresholds at once, each
against the tangent where the curve is nearest to what earlier draws did at t. A pair of a draw X with the canary and Y
without multiplies the wealth by

    1 + f · Σ w (1[X ≥ t] − s·1[Y ≥ t] − o) / (s + o),        Σ w = 1, 0 ≤ f < 1,

which is positive and at most 1 on average while the worlds are μ-GDP: the argument is that of `betting.py`. It holds
for whatever anybody makes of a μ-GDP message, as no step after it lowers its curve. (A sequential test of f-DP by
growing batches: arXiv:2602.06518; by bets on a kernel's witness: arXiv:2509.07055. These bets are ours.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import expm1, log
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from .betting import STAKES, refuted_from_first, share_above
from .bound import Scores

_EACH = 8  # quantiles of either world, between which thresholds lie
_RARE = 1e-6  # a share of scores is taken to be so far from 0 and 1 at least
_FAR = 1e100


@dataclass(frozen=True, eq=False)
class CurveBets:
    """Bets on one block of pairs.

    thresholds: (j,), rising. log_factors: (j + 1, j + 1, k), the logarithm of what a pair multiplies each wealth by
    whose score with the canary reaches so many thresholds, and whose score without it so many.
    """

    thresholds: Scores
    log_factors: Scores

    @classmethod
    def best(cls, mus: Scores, past_in: Scores, past_out: Scores) -> Self:
        """Bets against each of `mus` (k,), weighted and staked as would have paid if scores were spread as earlier ones
        were.
        """
        past_in, past_out = (np.clip(past, -_FAR, _FAR) for past in (past_in, past_out))
        shares = (np.arange(_EACH) + 0.5) / _EACH
        ends = np.unique(np.concatenate([np.quantile(past, shares) for past in (past_in, past_out)]))
        thresholds = (ends[1:] + ends[:-1]) / 2
        if thresholds.size == 0:
            return cls(thresholds, np.zeros((1, 1, len(mus))))
        tpr, fpr = share_above(past_in, thresholds), share_above(past_out, thresholds)
        slopes, offsets = tangents(mus, points_near(mus, tpr, fpr))
        most = slopes + offsets
        weights = np.maximum((tpr[:, None] - slopes * fpr[:, None] - offsets) / most, 0.0)
        weights /= np.maximum(weights.sum(0), 1e-300) * most
        paid, cost = (np.pad(np.cumsum(w, axis=0), ((1, 0), (0, 0))) for w in (weights, weights * slopes))
        gains = paid[:, None] - cost - (weights * offsets).sum(0)
        reach_in, reach_out = (-np.diff(share, prepend=1.0, append=0.0) for share in (tpr, fpr))
        grown = [np.einsum("a,b,abk->k", reach_in, reach_out, np.log1p(stake * gains)) for stake in STAKES]
        stakes = np.where(np.max(grown, axis=0) > 0, STAKES[np.argmax(grown, axis=0)], 0.0)
        return cls(thresholds, np.log1p(stakes * gains))


@dataclass(frozen=True, eq=False)
class CurveWagers:
    """The skeptics of k values of μ after some pairs. mus: (k,), rising. log_wealth (k,): now; highest (k,): ever."""

    mus: Scores
    log_wealth: Scores
    highest: Scores

    @classmethod
    def on(cls, mus: Scores) -> Self:
        """Before any pair."""
        return cls(mus, np.zeros(len(mus)), np.zeros(len(mus)))

    def after(self, scores_in: Scores, scores_out: Scores, bets: CurveBets) -> Self:
        """After a block of pairs: scores (n,) with the canary and without, drawn after `bets` were made."""
        reached = [np.searchsorted(bets.thresholds, scores, side="right") for scores in (scores_in, scores_out)]
        wealth = self.log_wealth + bets.log_factors[reached[0], reached[1]].sum(0)
        return replace(self, log_wealth=wealth, highest=np.maximum(self.highest, wealth))

    def refuted(self, alpha: float) -> float:
        """The largest μ up to which all are refuted at significance alpha, or 0."""
        done = refuted_from_first(self.highest, alpha)
        if done:
            return float(self.mus[done - 1])
        return 0.0


def points_near(mus: Scores, tpr: Scores, fpr: Scores) -> Scores:
    """Φ⁻¹(x) (j, k) of the points of the curves Φ(μ + Φ⁻¹(x)) of `mus` (k,) that are nearest to error rates (j,) each,
    in normal scores, where the curves are straight. A test without an error is nearest to the middle, −μ/2.
    """
    normal_in, normal_out = (ndtri(np.clip(rate, _RARE, 1 - _RARE))[:, None] for rate in (tpr, fpr))
    return (normal_in + normal_out - mus) / 2


def tangents(mus: Scores, normal: Scores) -> tuple[Scores, Scores]:
    """Slopes and offsets of the curves' tangents at such points; shapes as of `points_near`."""
    slopes = np.exp(-mus * normal - mus**2 / 2)
    return slopes, np.maximum(ndtr(mus + normal) - slopes * ndtr(normal), 0.0)


def curve_ceiling(pairs: int, alpha: float) -> float:
    """The largest μ that so many pairs without an error refute: the tangent in the curve's middle, where a right pair
    pays Φ(−μ/2)/Φ(μ/2), pays most.

    >>> round(curve_ceiling(500, 0.05), 2)
    4.95
    """
    need = expm1(min(log(1 / alpha) / pairs, 700.0)) / STAKES[-1]
    return max(0.0, -2 * float(ndtri(need / (1 + need))))
