"""ε from a membership test's two error rates, with exact binomial limits. It assumes nothing about the mechanism."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from .bound import LowerBound, Scores, checked_level, checked_scores


def upper_limit(errors: ArrayLike, trials: int, alpha: float) -> Scores:
    """The largest error rate that `errors` in `trials` do not refute: P[Binomial(trials, rate) ≤ errors] = alpha.

    Clopper and Pearson (1934), one-sided. The "rule of three": no error in 100 trials leaves about 3 %.

    >>> round(float(upper_limit(0, 100, 0.05)), 5)
    0.02951
    """
    errors = np.asarray(errors, dtype=np.float64)
    return np.where(errors < trials, betaincinv(errors + 1, np.maximum(trials - errors, 1), 1 - alpha), 1.0)


def error_limits(scores_in: Scores, scores_out: Scores, thresholds: ArrayLike, alpha: float) -> tuple[Scores, Scores]:
    """Upper limits on the false-negative and false-positive rate of "score ≥ threshold", for each threshold by itself.

    Each rate gets half the significance, so that both limits hold together with probability 1 - alpha.
    """
    missed = np.searchsorted(np.sort(scores_in), thresholds)
    false_alarms = len(scores_out) - np.searchsorted(np.sort(scores_out), thresholds)
    return upper_limit(missed, len(scores_in), alpha / 2), upper_limit(false_alarms, len(scores_out), alpha / 2)


def perfect_limits(n_in: int, n_out: int, alpha: float) -> tuple[Scores, Scores]:
    """`error_limits` of a test without an error."""
    return upper_limit(0, n_in, alpha / 2), upper_limit(0, n_out, alpha / 2)


def refuted_epsilon(fnr: ArrayLike, fpr: ArrayLike, delta: float) -> tuple[Scores, Scores]:
    """ln((TPR - delta) / FPR) and ln((TNR - delta) / FNR): what such a test refutes, -inf for nothing.

    The two are the two orders of the neighbouring data sets (Kairouz, Oh and Viswanath, arXiv:1311.0776).
    """
    fnr, fpr = np.asarray(fnr, dtype=np.float64), np.asarray(fpr, dtype=np.float64)
    with np.errstate(divide="ignore"):
        members = np.log(np.maximum(1 - fnr - delta, 0)) - np.log(fpr)
        non_members = np.log(np.maximum(1 - fpr - delta, 0)) - np.log(fnr)
    return members, non_members


def confusion(scores_in: Scores, scores_out: Scores, threshold: float) -> dict[str, int]:
    tp, fp = int((scores_in >= threshold).sum()), int((scores_out >= threshold).sum())
    return {"tp": tp, "fp": fp, "fn": len(scores_in) - tp, "tn": len(scores_out) - fp}


def best_threshold(scores_in: Scores, scores_out: Scores, delta: float, alpha: float) -> float:
    """The score at which the bound is highest; for choosing only, never for a bound of the same scores."""
    candidates = np.unique(np.concatenate([scores_in, scores_out]))
    limits = error_limits(scores_in, scores_out, candidates, alpha)
    return float(candidates[np.argmax(np.maximum(*refuted_epsilon(*limits, delta)))])


def clopper_pearson(
    scores_in: ArrayLike, scores_out: ArrayLike, *, delta: float, confidence: float = 0.95, threshold: float
) -> LowerBound:
    """A lower bound on ε from the scores of inserted and of left-out canaries.

    The same two limits bound both orders of the neighbouring data sets, so taking the better one costs nothing.

    Args:
        scores_in: (n_in,), of inserted canaries; a higher score means "more likely a member". Every score must be that
            of an independent trial; canaries inserted into one run are independent as far as they do not interfere.
        scores_out: (n_out,), of left-out canaries.
        delta: of the (ε, δ)-DP that is refuted.
        confidence: in (0.5, 1).
        threshold: a score from it on is called a member's; fixed before these scores were seen, else ε is overstated.

    Raises:
        ValueError: a score vector is empty or has a NaN, delta is outside [0, 1) or confidence outside (0.5, 1).

    Source: Jagielski, Ullman and Oprea (arXiv:2006.07709), with δ as in Nasr et al. (arXiv:2101.04535).

    >>> print(clopper_pearson([1.0] * 50, [0.0] * 50, delta=1e-5, threshold=0.5))
    ε ≥ 2.56 at δ = 1e-05 (clopper-pearson, 0.95 confidence; a perfect attack could have shown 2.57)
    """
    alpha = checked_level(delta, confidence)
    scores_in, scores_out = checked_scores("scores_in", scores_in), checked_scores("scores_out", scores_out)
    shown = refuted_epsilon(*error_limits(scores_in, scores_out, threshold, alpha), delta)
    most = refuted_epsilon(*perfect_limits(len(scores_in), len(scores_out), alpha), delta)
    return LowerBound(
        epsilon=max(*map(float, shown), 0.0),
        delta=delta,
        confidence=confidence,
        method="clopper-pearson",
        counts=confusion(scores_in, scores_out, threshold),
        threshold=float(threshold),
        ceiling=max(*map(float, most), 0.0),
    )
