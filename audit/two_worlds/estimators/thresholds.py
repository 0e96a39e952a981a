"""Where to cut the scores. A threshold chosen on the scores it is tested on overstates ε, so no strategy here does.

A strategy is called with an estimator, the scores (n_in,) of inserted and (n_out,) of left-out canaries and the
significance, and returns the bound. `benchmarks/validity.py` measures how often each one is wrong, next to the
uncorrected "best threshold".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ....defenses.randomness import stream
from .bound import LowerBound, Scores, checked_scores


class Estimator(Protocol):
    """What a strategy needs of an estimator: the bound at a threshold, and the threshold at which it is highest."""

    def bound(self, scores_in: Scores, scores_out: Scores, threshold: float, alpha: float) -> LowerBound: ...

    def pick(self, scores_in: Scores, scores_out: Scores, alpha: float) -> float: ...


class ThresholdStrategy(Protocol):
    def __call__(self, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float) -> LowerBound: ...


@dataclass(frozen=True)
class Fixed:
    """One threshold, fixed before the scores were seen: a score ≥ threshold is called a member."""

    threshold: float

    def __call__(self, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float) -> LowerBound:
        return estimator.bound(scores_in, scores_out, self.threshold, alpha)


@dataclass(frozen=True)
class Bonferroni:
    """The best of several thresholds, all fixed before the scores were seen, each tested at alpha over their number."""

    thresholds: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.thresholds) == 0:
            raise ValueError("Bonferroni needs at least one threshold, got none")

    def __call__(self, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float) -> LowerBound:
        share = alpha / len(self.thresholds)
        bounds = [estimator.bound(scores_in, scores_out, threshold, share) for threshold in self.thresholds]
        return max(bounds, key=lambda bound: bound.epsilon)


@dataclass(frozen=True)
class Split:
    """The threshold that is best on a random `fraction` of the scores, tested on the rest."""

    fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(f"the fraction of scores to pick the threshold on must be in (0, 1), got {self.fraction}")

    def __call__(self, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float) -> LowerBound:
        return self.repeat(0, estimator, scores_in, scores_out, alpha)

    def repeat(
        self, number: int, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float
    ) -> LowerBound:
        """The bound of one split of the scores.

        Args:
            number: of the split; each is another random one.
            estimator: what gives a bound of tested scores. scores_in, scores_out: of both worlds.
            alpha: its error probability.
        """
        rng = np.random.default_rng(stream(self.seed, "threshold split", number))
        pick_in, test_in = self._parts("scores_in", scores_in, rng)
        pick_out, test_out = self._parts("scores_out", scores_out, rng)
        return estimator.bound(test_in, test_out, estimator.pick(pick_in, pick_out, alpha), alpha)

    def _parts(self, name: str, scores: Scores, rng: np.random.Generator) -> tuple[Scores, Scores]:
        if len(scores) < 2:
            raise ValueError(f"{name} must hold at least 2 scores to be split, got {len(scores)}")
        cut = min(max(round(self.fraction * len(scores)), 1), len(scores) - 1)
        shuffled = rng.permutation(scores)
        return shuffled[:cut], shuffled[cut:]


@dataclass(frozen=True)
class MultiSplit:
    """The median over many random splits, each at alpha / 2: less luck than one split, for the price of the factor 2.

    The median exceeds the truth only if half the splits do, which by Markov's inequality has probability at most 2 ·
    alpha / 2 (Meinshausen, Meier and Bühlmann 2009, arXiv:0811.2177). Of two medians the lower is taken.
    """

    repeats: int = 25
    fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"the number of repeats must be at least 1, got {self.repeats}")

    def __call__(self, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float) -> LowerBound:
        split = Split(self.fraction, self.seed)
        bounds = [split.repeat(number, estimator, scores_in, scores_out, alpha / 2) for number in range(self.repeats)]
        return sorted(bounds, key=lambda bound: bound.epsilon)[(self.repeats - 1) // 2]


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Thresholds at the given false-positive rates of separate null scores, together Bonferroni-corrected.

    null_scores: scores (n,) of canaries that were never inserted and are not among the tested ones. A random update
    that was never sent costs one dot product, so there can be as many as one likes.
    """

    null_scores: Sequence[float] | Scores
    rates: Sequence[float] = (0.1, 0.01, 0.001)

    def __post_init__(self) -> None:
        if len(self.rates) == 0 or not all(0 < rate < 1 for rate in self.rates):
            raise ValueError(f"the false-positive rates must be at least one number in (0, 1), got {tuple(self.rates)}")

    def __call__(self, estimator: Estimator, scores_in: Scores, scores_out: Scores, alpha: float) -> LowerBound:
        nulls = checked_scores("null_scores", self.null_scores)
        thresholds = np.unique(np.quantile(nulls, [1 - rate for rate in self.rates], method="higher"))
        return Bonferroni(tuple(thresholds.tolist()))(estimator, scores_in, scores_out, alpha)
