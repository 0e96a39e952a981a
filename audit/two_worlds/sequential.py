"""Draws in growing blocks, until a claim is refuted or cannot be.

One looks at the end of every block. By counting, skeptics bet on each block with what they learned from earlier draws
(`estimators/betting.py`). Where scores are Gaussian, one look's limit on μ has its share of the risk of error
(Bonferroni over the looks); where something comes after Gaussian noise, skeptics bet against its whole curve
(`estimators/curve_bets.py`). All bounds hold at all looks together, so the rule by which draws end costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from ..proof.theorems.gaussian import gaussian_multiplier
from ..say.words import number
from .estimators import LowerBound
from .estimators.betting import (
    STEP,
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
from .estimators.bound import GAUSSIAN, Scores
from .estimators.curve_bets import CurveBets, CurveWagers, curve_ceiling
from .estimators.gdp import mu_epsilon
from .estimators.mean_shift import mean_shift
from .estimators.separate import Separate

DrawBlock = Callable[[int, int], tuple[Scores, Scores]]
"""(first, end) → scores with the canary and without, (end − first,) each, of trials number first to end − 1."""

DELTAS = np.arange(100) / 100
LAST_SHARE = 0.75  # of a mean shift's risk of error is kept for the last look, whose bound most audits end with


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


@dataclass(frozen=True)
class BoundRule:
    """How draws become bounds.

    delta: of the bounds. confidence: of each of them, at all looks together.
    gaussian: whether scores may be Gaussian-shaped, by what is known of the mechanism, so that a bound on that
    condition is wanted too. noise_last: whether nothing nonlinear comes after the noise, so that scores are Gaussian as
    well and their means tell; else they are counted.
    targets: ε that end the draws when each is refuted or cannot be; without any, all are taken.
    """

    delta: float
    confidence: float = 0.95
    gaussian: bool = False
    noise_last: bool = True
    targets: tuple[float, ...] = ()


def take(draw: DrawBlock, past: Separate, draws: int, rule: BoundRule) -> Taken:
    """Takes draws until every target is refuted or cannot be, and `draws` a world at most.

    A target that not even `draws` draws without an error could refute ends nothing: the bound is then what counts.
    Draws that refute no more end only where nothing above the ceiling of those taken is within reach either, so that
    the ceiling of all planned ones is a fair word for what could have been shown; after a refutation it is that of
    those taken.

    Args:
        draw: called for one block after the other.
        past: scores of other draws, which the first bets are learned from.
        draws: tested trials a world, at most.
        rule: of the bounds.
    """
    alpha = 1 - rule.confidence
    most = betting_ceiling(draws, rule.delta, alpha)
    goals = sorted(t for t in rule.targets if isfinite(t) and (rule.gaussian or just_above(t) < most))
    grid = claims(rule.delta, most, goals)
    wagers = Wagers.on(Nulls(np.exp(grid), np.full(len(grid), rule.delta)))
    ends = block_ends(draws, [pairs_needed(t, rule.delta, alpha) for t in goals])
    scores_in, scores_out = np.zeros(0), np.zeros(0)
    on_curve = rule.gaussian and not rule.noise_last
    curve = CurveWagers.on(_shifts(draws, rule, goals) if on_curve else np.zeros(1))
    learned_in, learned_out, mu, looked = past.scores_in, past.scores_out, 0.0, list[int]()

    def decided(goal: float) -> bool:
        if _exceeds(wagers, grid, alpha, goal):
            return True
        within_reach = grid[wagers.reachable(draws - wagers.pairs, alpha)]
        if rule.gaussian:
            return not (within_reach > goal).any() and mu_epsilon(mu, rule.delta) > goal
        return not (within_reach > min(goal, betting_ceiling(wagers.pairs, rule.delta, alpha))).any()

    for end in ends:
        bets = Bets.best(wagers.nulls, learned_in, learned_out)
        curve_bets = None
        if on_curve:
            curve_bets = CurveBets.best(curve.mus, learned_in, learned_out)
        block_in, block_out = draw(wagers.pairs, end)
        wagers = wagers.after(block_in, block_out, bets)
        if curve_bets is not None:
            curve = curve.after(block_in, block_out, curve_bets)
            mu = curve.refuted(alpha)
        scores_in, scores_out = np.concatenate([scores_in, block_in]), np.concatenate([scores_out, block_out])
        learned_in, learned_out = np.concatenate([learned_in, block_in]), np.concatenate([learned_out, block_out])
        looked.append(end)
        if rule.gaussian and rule.noise_last:
            mu = max(mu, mean_shift(scores_in, scores_out, alpha * _share(end, ends), past.middle))
        if goals and all(map(decided, goals)):
            break
    shown = float(grid[max(wagers.refuted(alpha) - 1, 0)]), mu_epsilon(mu, rule.delta) if rule.gaussian else 0.0
    refuted = bool(goals) and max(shown) > goals[-1]
    counted = bound_of(wagers, grid, rule.delta, rule.confidence, wagers.pairs if refuted else draws)
    return Taken(
        scores_in,
        scores_out,
        past,
        tuple(looked),
        draws,
        counted,
        _if_gaussian(mu, counted, past.middle, scores_in, scores_out, rule.noise_last) if rule.gaussian else None,
        _why(goals, *shown, len(scores_in), draws),
    )


def _share(end: int, ends: list[int]) -> float:
    """Of the risk of error, that of the look after `end` draws."""
    if len(ends) == 1:
        return 1.0
    if end == ends[-1]:
        return LAST_SHARE
    return (1 - LAST_SHARE) / (len(ends) - 1)


def _shifts(draws: int, rule: BoundRule, goals: list[float]) -> Scores:
    """The grid of μ that are bet against: from 0 to the ceiling, and for each ε of `goals` one just above its μ."""
    most = curve_ceiling(draws, 1 - rule.confidence)
    aimed = [1 / gaussian_multiplier(just_above(goal), rule.delta) for goal in goals]
    grid = np.linspace(0.0, most, 1 + round(most / STEP))
    return np.unique(np.concatenate([grid, [mu for mu in aimed if mu < most]]))


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
        method="mean shift" if noise_last else "f-DP betting",
        counts={"tp": tp, "fp": fp, "fn": n - tp, "tn": n - fp},
        threshold=middle,
        ceiling=inf if noise_last else mu_epsilon(curve_ceiling(n, 1 - counted.confidence), counted.delta),
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
