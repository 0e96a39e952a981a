"""ε from the guesses about many canaries in a single run (Steinke, Nasr and Jagielski 2023, arXiv:2305.08846)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, expit, logit

from .bound import COINS, LowerBound, Scores, checked_level, checked_scores

_BLOCK = 64


@dataclass(frozen=True)
class Guesses:
    """Call the `members` highest scores members, the `non_members` lowest ones non-members, and abstain on the rest.

    They are k+ and k- in the paper.
    """

    members: int
    non_members: int = 0

    def __post_init__(self) -> None:
        if min(self.members, self.non_members) < 0 or self.total == 0:
            raise ValueError(
                f"the numbers of guesses must be ≥ 0 and not both 0, got {self.members} and {self.non_members}"
            )

    @property
    def total(self) -> int:
        return self.members + self.non_members


def ladder(m: int) -> tuple[Guesses, ...]:
    """The guesses tested by default: about a half, a sixth and a twentieth of m, members and non-members alike.

    >>> [guesses.total for guesses in ladder(1000)]
    [500, 166, 50]
    """
    sides = dict.fromkeys(max(round(m / divisor), 1) for divisor in (4, 12, 40))
    return tuple(Guesses(side, min(side, m - side)) for side in sides)


def one_run_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """At most how likely it is under (epsilon, delta)-DP that so many guesses about canaries are right.

    beta + 2 m delta · max_i P[v > Binomial(r, q) ≥ v - i] / i with q = e^ε / (1 + e^ε) and beta = P[Binomial(r, q) ≥
    v]: corollary 5.4 and appendix D of the paper.

    Args:
        m: canaries. r: guesses, fixed before the run. v: right ones, or more.
        epsilon, delta: the guarantee in question.

    >>> round(one_run_p_value(1000, 100, 75, 0.673, 1e-4), 3)
    0.05
    """
    if not 0 <= v <= r <= m:
        raise ValueError(f"need 0 ≤ right guesses ≤ guesses ≤ canaries, got {v}, {r} and {m}")
    if v == 0:
        return 1.0
    q = float(expit(epsilon))
    beta = float(betainc(v, r - v + 1, q))
    if delta == 0:
        return beta

    def worst(first: int, last: int) -> float:
        i = np.arange(first, last + 1)
        at_least = np.where(i < v, betainc(np.maximum(v - i, 1), r - v + i + 1, q), 1.0)
        return float(((at_least - beta) / i).max(initial=0.0))

    alpha = worst(1, min(v, _BLOCK))
    if alpha * _BLOCK < 1:  # the i-th term is at most 1 / i, so terms after 1 / alpha cannot win
        alpha = max(alpha, worst(_BLOCK + 1, v if alpha * v <= 1 else int(1 / alpha) + 1))
    return min(beta + alpha * delta * 2 * m, 1.0)


@lru_cache(maxsize=4096)
def one_run_epsilon(m: int, r: int, v: int, delta: float, alpha: float) -> float:
    """The largest epsilon that right guesses about canaries refute, or 0.

    Args:
        m: canaries. r: guesses, fixed before the run. v: right ones.
        delta: in [0, 1). alpha: significance.

    >>> round(one_run_epsilon(1000, 100, 75, 1e-4, 0.05), 3)     # the paper's example, appendix D
    0.673
    """
    if one_run_p_value(m, r, v, 0.0, delta) > alpha:
        return 0.0
    pure = float(logit(betaincinv(v, r - v + 1, alpha)))  # where P[Binomial(r, q) ≥ v] = alpha
    if delta == 0:
        return pure
    return float(brentq(lambda epsilon: one_run_p_value(m, r, v, epsilon, delta) - alpha, 0.0, pure + 1e-9, xtol=1e-9))


def right_guesses(scores_in: Scores, scores_out: Scores, rules: Sequence[Guesses]) -> NDArray[np.int64]:
    """How many guesses are right under each rule.

    Equal scores at the edge of a guess are counted as wrong as they can be: to sort them in any other way one would
    have to be sure not to use who is a member.
    """

    def right(of: Scores, others: Scores, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        of, others, pooled = np.sort(of), np.sort(others), np.sort(np.concatenate([of, others]))
        edge = pooled[len(pooled) - np.maximum(counts, 1)]
        above, higher = (len(each) - np.searchsorted(each, edge, side="right") for each in (of, pooled))
        equal = np.searchsorted(others, edge, side="right") - np.searchsorted(others, edge)
        return np.where(counts > 0, above + np.maximum(counts - higher - equal, 0), 0)

    members, non_members = np.array([(rule.members, rule.non_members) for rule in rules]).T
    return right(scores_in, scores_out, members) + right(-scores_out, -scores_in, non_members)


def best_guesses(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    guesses: Guesses | Sequence[Guesses] | None,
    alpha: float,
    largest: Callable[[int, int, int, float], float],
    refuted: Callable[[int, int, int, float, float], bool],
) -> tuple[float, dict[str, int], float]:
    """The best parameter over guesses fixed beforehand, Bonferroni-corrected; its counts; the same for perfect guesses.

    Args:
        scores_in, scores_out: of included and of other canaries.
        guesses: one or several rules, None for `ladder`.
        alpha: the significance of all rules together.
        largest: (m, r, v, alpha) → the largest refuted parameter.
        refuted: (m, r, v, parameter, alpha) → whether that parameter is refuted.
    """
    scores_in, scores_out = checked_scores("scores_in", scores_in), checked_scores("scores_out", scores_out)
    m = len(scores_in) + len(scores_out)
    if guesses is None:
        guesses = ladder(m)
    rules = (guesses,) if isinstance(guesses, Guesses) else tuple(guesses)
    if not rules:
        raise ValueError("guesses must name at least one number of guesses, got none")
    if (most := max(rule.total for rule in rules)) > m:
        raise ValueError(f"the guesses must be at most as many as the {m} canaries, got {most}")
    share = alpha / len(rules)
    totals = np.array([rule.total for rule in rules])

    def best(right: NDArray[np.int64]) -> tuple[float, dict[str, int]]:
        top, counts = 0.0, {"m": m, "r": int(totals[0]), "v": int(right[0])}
        for index in np.argsort(-right / totals, kind="stable"):  # the surest first, so that most others fail at once
            r, v = int(totals[index]), int(right[index])
            if refuted(m, r, v, top, share) and (value := largest(m, r, v, share)) > top:
                top, counts = value, {"m": m, "r": r, "v": v}
        return top, counts

    top, counts = best(right_guesses(scores_in, scores_out, rules))
    return top, counts, best(totals)[0]


def one_run(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Guesses | Sequence[Guesses] | None = None,
) -> LowerBound:
    """A lower bound on ε from one run in which each of m canaries was included by its own fair coin.

    The coins must be real: a fixed half-and-half split is not what the theorem is about. The canaries may interfere
    with each other. For delta > 0 the theorem needs fixed numbers of guesses, so thresholds and splits, whose number of
    guesses depends on the run, are not offered here.

    Args:
        scores_in: (n_in,), of the included canaries, m = n_in + n_out; a higher score means "more likely a member".
        scores_out: (n_out,), of the other canaries.
        delta: of the (ε, δ)-DP that is refuted.
        confidence: in (0.5, 1).
        guesses: how many to guess, fixed before the scores were seen or chosen on another run. Of several the best is
            taken, each tested at the significance over their number; `ladder(m)` if None.

    Raises:
        ValueError: a score vector is empty or has a NaN, there are more guesses than canaries, delta is outside [0, 1)
            or confidence outside (0.5, 1).

    >>> round(one_run([1.0] * 500, [0.0] * 500, delta=1e-5, guesses=Guesses(500, 500)).epsilon, 2)
    5.78
    """
    alpha = checked_level(delta, confidence)
    epsilon, counts, most = best_guesses(
        scores_in,
        scores_out,
        guesses,
        alpha,
        largest=lambda m, r, v, level: one_run_epsilon(m, r, v, delta, level),
        refuted=lambda m, r, v, epsilon, level: one_run_p_value(m, r, v, epsilon, delta) <= level,
    )
    return LowerBound(epsilon, delta, confidence, "one-run", counts, most, COINS)
