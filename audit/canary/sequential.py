"""Draws in growing blocks, until a claim is refuted or cannot be.

One looks at the end of every block. By counting, skeptics bet on each block with what they learned from earlier draws
(`demonstrated/betting.py`); where scores are Gaussian, one look's limit on μ has its share of the risk of error
(Bonferroni over the looks). Both bounds hold at all looks together, so the rule by which draws end costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from ..demonstrated import LowerBound
from ..demonstrated.betting import (
    Bets,
    Nulls,
    Wagers,
    bet,
    betting_ceiling,
    block_ends,
    bound_of,
    claims,
    just_above,
    pairs_needed,
)
from ..demonstrated.bound import GAUSSIAN, Scores
from ..demonstrated.ceilings import ceiling
from ..demonstrated.gdp import mu_epsilon
from ..demonstrated.mean_shift import counted_shift, mean_shift
from ..demonstrated.separate import Separate
from ..say.words import number

DrawBlock = Callable[[int, int], tuple[Scores, Scores]]
"""(first, end) → scores with the canary and without, (end − first,) each, of trials number first to end − 1."""

DELTAS = np.arange(100) / 100


@dataclass(frozen=True, eq=False)
class Taken:
    """Draws that were taken, and what they show at the moment they ended.

    scores_in, scores_out: (n,), in the order drawn. past: scores of earlier draws, which count for nothing else. ends:
    after which draws one looked. planned: draws a world at most.
    counted: by betting, whatever the mechanism. if_gaussian: if the noise is; None where it was not looked at.
    why: draws ended, in words.
    """

    scores_in: Scores = field(repr=False)
    scores_out: Scores = field(repr=False)
    past: Separate = field(repr=False)
    ends: tuple[int, ...]
    planned: int
    counted: LowerBound
    if_gaussian: LowerBound | None
    why: str

    @property
    def draws(self) -> int:
        return len(self.scores_in)

    @property
    def sentence(self) -> str:
        return f"Draws were taken in {len(self.ends)} block{'s' * (len(self.ends) != 1)}: {self.why}."

    def delta_at(self, epsilon: float) -> float:
        """The largest δ, to a hundredth, that the same draws refute at `epsilon`, with the confidence of `counted`."""
        nulls = Nulls(np.full(len(DELTAS), np.exp(min(epsilon, 700.0))), DELTAS)
        past = self.past.scores_in, self.past.scores_out
        done = bet(nulls, self.scores_in, self.scores_out, past, self.ends).refuted(1 - self.counted.confidence)
        return float(DELTAS[max(done - 1, 0)])


def take(
    draw: DrawBlock,
    past: Separate,
    *,
    draws: int,
    delta: float,
    confidence: float,
    targets: Iterable[float] = (),
    gaussian: bool = False,
    noise_last: bool = True,
) -> Taken:
    """Takes draws until every target is refuted or cannot be, and `draws` a world at most.

    A target that not even `draws` draws without an error could refute ends nothing: the bound is then what counts.
    Draws that refute no more end only where nothing above the ceiling of those taken is within reach either, so that
    the ceiling of all planned ones is a fair word for what could have been shown; after a refutation it is that of
    those taken.

    Args:
        draw: called for one block after the other.
        past: scores of other draws, which the first bets are learned from.
        draws: tested trials a world, at most.
        delta: of the bounds. confidence: of each of them, at all looks together.
        targets: ε to refute.
        gaussian: whether the noise is, so that a bound on that condition is wanted too.
        noise_last: whether nothing nonlinear comes after the noise, so that scores are Gaussian as well and their means
            tell; else they are counted.
    """
    alpha = 1 - confidence
    most = betting_ceiling(draws, delta, alpha)
    goals = sorted(t for t in targets if isfinite(t) and (gaussian or just_above(t) < most))
    grid = claims(delta, most, goals)
    wagers = Wagers.on(Nulls(np.exp(grid), np.full(len(grid), delta)))
    ends = block_ends(draws, [pairs_needed(t, delta, alpha) for t in goals])
    scores_in, scores_out = np.zeros(0), np.zeros(0)
    limit = mean_shift if noise_last else counted_shift
    learned_in, learned_out, mu, looked = past.scores_in, past.scores_out, 0.0, list[int]()

    def decided(goal: float) -> bool:
        if _exceeds(wagers, grid, alpha, goal):
            return True
        within_reach = grid[wagers.reachable(draws - wagers.pairs, alpha)]
        if gaussian:
            return not (within_reach > goal).any() and mu_epsilon(mu, delta) > goal
        return not (within_reach > min(goal, betting_ceiling(wagers.pairs, delta, alpha))).any()

    for end in ends:
        bets = Bets.best(wagers.nulls, learned_in, learned_out)
        block_in, block_out = draw(wagers.pairs, end)
        wagers = wagers.after(block_in, block_out, bets)
        scores_in, scores_out = np.concatenate([scores_in, block_in]), np.concatenate([scores_out, block_out])
        learned_in, learned_out = np.concatenate([learned_in, block_in]), np.concatenate([learned_out, block_out])
        looked.append(end)
        if gaussian:
            mu = max(mu, limit(scores_in, scores_out, alpha / len(ends), past.middle))
        if goals and all(map(decided, goals)):
            break
    shown = float(grid[max(wagers.refuted(alpha) - 1, 0)]), mu_epsilon(mu, delta) if gaussian else 0.0
    refuted = bool(goals) and max(shown) > goals[-1]
    counted = bound_of(wagers, grid, delta, confidence, wagers.pairs if refuted else draws)
    return Taken(
        scores_in,
        scores_out,
        past,
        tuple(looked),
        draws,
        counted,
        _if_gaussian(mu, counted, past.middle, scores_in, scores_out, noise_last) if gaussian else None,
        _why(goals, *shown, len(scores_in), draws),
    )


def _exceeds(wagers: Wagers, grid: Scores, alpha: float, goal: float) -> bool:
    done = wagers.refuted(alpha)
    return done > 0 and bool(grid[done - 1] > goal)


def _if_gaussian(
    mu: float, counted: LowerBound, middle: float, scores_in: Scores, scores_out: Scores, noise_last: bool
) -> LowerBound:
    tp, fp, n = int((scores_in >= middle).sum()), int((scores_out >= middle).sum()), len(scores_in)
    return LowerBound(
        epsilon=mu_epsilon(mu, counted.delta),
        delta=counted.delta,
        confidence=counted.confidence,
        method="mean shift" if noise_last else "gdp",
        direction="both",
        counts={"tp": tp, "fp": fp, "fn": n - tp, "tn": n - fp},
        threshold=middle,
        ceiling=inf if noise_last else ceiling("gdp", n, n, delta=counted.delta, confidence=counted.confidence),
        assumption=GAUSSIAN,
    )


def _why(goals: list[float], counted: float, if_gaussian: float, taken: int, planned: int) -> str:
    of_planned = f"{taken:,} draws a world, of {planned:,} at most"
    if not goals or taken == planned:
        return f"all {planned:,} draws a world"
    goal = goals[-1]
    if counted > goal:
        return f"{of_planned}, as ε = {number(goal)} was then refuted"
    if if_gaussian > goal:
        return f"{of_planned}, as ε = {number(goal)} was then refuted if {GAUSSIAN}"
    return f"{of_planned}, as even {planned - taken:,} more without an error could not have refuted ε = {number(goal)}"
