"""A threshold fixed on separate scores, for trials that one can have as many of as one likes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from .bound import Scores, checked_scores
from .clopper_pearson import best_threshold

_POINTS = 25  # of each score's kernel


@dataclass(frozen=True, eq=False)
class Separate:
    """The threshold that would be best if the tested scores were spread as separate ones are; these are not tested.

    scores_in (n,), scores_out (m,): scores of trials that are used for nothing else. They are smoothed by a Gaussian
    kernel (Silverman's width) and blown up to as many as are tested, so that a threshold far out in the tails can be
    chosen from fewer of them.
    """

    scores_in: Scores
    scores_out: Scores

    @property
    def middle(self) -> float:
        """The threshold halfway between the two kinds of scores, in their own widths.

        There the μ of Gaussian scores is measured best.
        """
        (low_in, at_in, high_in), (low_out, at_out, high_out) = (
            np.quantile(s, [0.25, 0.5, 0.75]) for s in (self.scores_in, self.scores_out)
        )
        wide_in, wide_out = high_in - low_in, high_out - low_out
        share = 0.5
        if wide_in + wide_out > 0:
            share = wide_out / (wide_in + wide_out)
        return float(at_out + share * (at_in - at_out))

    def best(self, n_in: int, n_out: int, delta: float, alpha: float) -> float:
        """The threshold at which `clopper_pearson` would be highest for so many tested scores of either kind."""
        like_in = smoothed(checked_scores("the separate scores_in", self.scores_in), n_in)
        like_out = smoothed(checked_scores("the separate scores_out", self.scores_out), n_out)
        best = best_threshold(like_in, like_out, delta, alpha)
        below = np.concatenate([like_in, like_out])
        below = below[below < best]
        if below.size:
            return float((best + below.max()) / 2)
        return best


def smoothed(scores: Scores, count: int) -> Scores:
    """`count` evenly spaced quantiles of the kernel density estimate of `scores`."""
    offsets = kernel_width(scores) * ndtri((np.arange(_POINTS) + 0.5) / _POINTS)
    spread = np.sort(np.add.outer(scores, offsets), axis=None)
    places = (np.arange(count) + 0.5) / count * (len(spread) - 1)
    return np.interp(places, np.arange(len(spread)), spread)  # np.quantile would sort again


def kernel_width(scores: Scores) -> float:
    """The standard deviation of a Gaussian kernel for these scores, by Silverman's rule; 0 where all are equal."""
    low, high = np.quantile(scores, [0.25, 0.75])
    width = min(float(scores.std()), float(high - low) / 1.349) or float(scores.std())
    return 0.9 * width * len(scores) ** -0.2
