"""How well scores distinguish members from non-members: ROC, area, true positive rate at small false positive rates.

Scores are higher for members; every function takes the members' first. Equal scores are never distinguished.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import hypergeom, rankdata
from torch import Tensor

from .intervals import Interval, clopper_pearson_interval

_Scores = Tensor | np.ndarray | Sequence[float]
LEVELS = (0.1, 0.01, 0.001, 0.0001, 0.0)


@dataclass(frozen=True)
class Rate:
    """The true positive rate where at most `level` of the non-members are taken for members.

    fpr: the rate really reached, at most `level`. threshold: a score strictly above it counts as a member.
    The interval is Clopper-Pearson's, and valid although the threshold was chosen: the choice looked at non-members
    only. But it speaks of this threshold, whose own false positive rate is not known, so comparing it with `fpr` is no
    test of a leak: `p_value` is one.

    p_value: twice the chance, at most 1, that as many members pass if they score like non-members; see `exceedance`.
    """

    level: float
    tpr: float
    tpr_interval: Interval
    fpr: float
    threshold: float
    p_value: float


def roc(scores_in: _Scores, scores_out: _Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """False positive rates, true positive rates and thresholds, all (k,): (0, 0), then a point for each distinct score.

    A point's rates are those of "score ≥ threshold"; thresholds fall from +inf (nobody) to the lowest score
    (everybody).

    >>> fpr, tpr, thresholds = roc([3, 2], [2, 1])
    >>> fpr.tolist(), tpr.tolist(), thresholds.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0], [inf, 3.0, 2.0, 1.0])
    """
    members, others = _checked(scores_in, scores_out)
    thresholds = np.unique(np.concatenate([members, others]))[::-1]

    def rate(scores: np.ndarray) -> np.ndarray:
        above = len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
        return np.concatenate([[0.0], above / len(scores)])

    return rate(others), rate(members), np.concatenate([[np.inf], thresholds])


def auc(scores_in: _Scores, scores_out: _Scores, confidence: float = 0.95) -> tuple[float, Interval]:
    """P(member's score > non-member's) + ½ P(equal), the area under `roc`, and its interval.

    >>> auc([3, 2], [2, 1])[0]      # of four pairs three are right and one is a tie
    0.875
    """
    members, others = _checked(scores_in, scores_out)
    n_in, n_out = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))[:n_in]
    area = float((ranks.sum() - n_in * (n_in + 1) / 2) / (n_in * n_out))
    return area, auc_interval(area, n_in, n_out, confidence)


def auc_interval(area: float, n_in: int, n_out: int, confidence: float = 0.95) -> Interval:
    """Of an AUC `area` of two groups of n_in and n_out scores, each ≥ 1.

    It inverts the test |area − θ| ≤ z·se(θ) with Hanley and McNeil's (1982) standard error at θ in the form of
    Newcombe (2006, part 2, method 5: both group sizes replaced by their mean), so it stays inside [0, 1] and has a
    width even at area = 1.

    >>> [round(limit, 2) for limit in auc_interval(1.0, 2, 4)]
    [0.47, 1.0]
    """
    z = float(ndtri(0.5 + confidence / 2))

    def excess(theta: float) -> float:
        return (area - theta) ** 2 - z**2 * _auc_variance(theta, n_in, n_out)

    low = 0.0 if area == 0 else float(brentq(excess, 0, area - 1e-15))
    high = 1.0 if area == 1 else float(brentq(excess, area + 1e-15, 1))
    return low, high


def auc_p_value(area: float, n_in: int, n_out: int, control: float = 0.5) -> float:
    """The least 1 − confidence at which the interval of `auc` lies above `control`, at most 1.

    At ½ the standard error is exactly that of Mann and Whitney's (1947) U without ties.

    >>> round(auc_p_value(0.6, 100, 100), 4), auc_p_value(0.4, 100, 100)      # z = .1/√(201/120000) = 2.443
    (0.0146, 1.0)
    """
    if not 0 < control < 1:
        raise ValueError(f"the control of an AUC is {control}; it must lie in (0, 1)")
    return min(1.0, 2 * float(ndtr((control - area) / math.sqrt(_auc_variance(control, n_in, n_out)))))


def _auc_variance(theta: float, n_in: int, n_out: int) -> float:
    size = (n_in + n_out) / 2 - 1
    return theta * (1 - theta) * (1 + size * ((1 - theta) / (2 - theta) + theta / (1 + theta))) / (n_in * n_out)


def balanced_accuracy(scores_in: _Scores, scores_out: _Scores) -> float:
    """The greatest ½(TPR + 1 − FPR) over all thresholds; chosen on the scores it judges, so above ½ even for noise.

    >>> balanced_accuracy([3, 2], [2, 1])
    0.75
    """
    fpr, tpr, _ = roc(scores_in, scores_out)
    return float((1 + (tpr - fpr).max()) / 2)


def tpr_at_fpr(
    scores_in: _Scores, scores_out: _Scores, levels: Sequence[float] = LEVELS, confidence: float = 0.95
) -> dict[float, Rate | None]:
    """The true positive rate at each false positive level; None where the non-members are too few to resolve it.

    A level needs n_out·level ≥ 1. Level 0 means "not one of these n_out non-members". The threshold is the
    (⌊n_out·level⌋ + 1)-th greatest score of the non-members, and members must lie strictly above it.

    >>> tpr_at_fpr([3, 2], [2, 1], levels=(0.5, 0.1))[0.5].tpr, tpr_at_fpr([3, 2], [2, 1], levels=(0.1,))
    (1.0, {0.1: None})

    Raises:
        ValueError: a level lies outside [0, 1).
    """
    members, others = _checked(scores_in, scores_out)
    falling = np.sort(others)[::-1]
    return {level: _rate(members, falling, level, confidence) for level in levels}


def exceedance(hits: int, n_in: int, allowed: int, n_out: int) -> float:
    """P(at least `hits` of n_in members score above the (allowed + 1)-th greatest of n_out non-members) without a leak.

    That happens exactly if the hits + allowed greatest of all scores hold at most `allowed` non-members, and without a
    leak every order of the scores is equally likely: a hypergeometric tail, whatever the scores' distribution.
    (Equivalently the threshold's true false positive rate is Beta(allowed + 1, n_out − allowed).) Ties make it smaller.
    Exceedance or precedence tests: Epstein (1954), Nelson (1963).

    >>> exceedance(2, 2, 0, 2) == 1 / 6      # both members above both others: one of the six orders
    True
    """
    return float(hypergeom.cdf(allowed, n_in + n_out, n_out, hits + allowed))


def _rate(members: np.ndarray, falling: np.ndarray, level: float, confidence: float) -> Rate | None:
    if not 0 <= level < 1:
        raise ValueError(f"a false positive level is {level}; it must lie in [0, 1)")
    n_out = len(falling)
    allowed = math.floor(n_out * level + 1e-9)  # .29 · 100 is 28.999… in floating point
    if level > 0 and allowed < 1:
        return None
    threshold = float(falling[allowed])
    hits, false = int((members > threshold).sum()), int((falling > threshold).sum())
    return Rate(
        level,
        hits / len(members),
        clopper_pearson_interval(hits, len(members), confidence),
        false / n_out,
        threshold,
        min(1.0, 2 * exceedance(hits, len(members), allowed, n_out)),
    )


def _checked(scores_in: _Scores, scores_out: _Scores) -> tuple[np.ndarray, np.ndarray]:
    members, others = (np.asarray(scores, dtype=np.float64) for scores in (scores_in, scores_out))
    for name, scores in (("members", members), ("non-members", others)):
        bad = int((~np.isfinite(scores)).sum())
        if scores.ndim != 1 or not len(scores) or bad:
            raise ValueError(
                f"scores of {name} have shape {scores.shape}, {bad} are not finite; expected (n,) finite numbers, n ≥ 1"
            )
    return members, others
