"""μ of Gaussian scores from their means and spread: the fewest draws, on the strongest condition."""

from __future__ import annotations

from math import sqrt

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student

from .bound import Scores
from .clopper_pearson import error_limits
from .gdp import mu_limit


def mean_shift(scores_in: Scores, scores_out: Scores, alpha: float, middle: float) -> float:
    """A lower limit on μ of scores N(m + μs, s²) with the canary against N(m, s²) without.

    It is how far the means lie apart, by Student's t, over the standard deviation of scores without the canary, by χ².
    It holds with probability 1 − alpha of Gaussian scores.

    Where the noise has at least σC beside a clip of C, the truth of this is 1/σ at most, whatever the scores' shape: a
    mean moves by C at most, and what other records add only widens the scores.

    Args:
        scores_in, scores_out: (n,), (m,), at least two each.
        alpha: the probability of error.
        middle: a threshold to count at instead, where a score is not finite or the scores of a world do not differ.

    >>> rng = np.random.default_rng(0)
    >>> round(mean_shift(rng.normal(1.0, 1, 500), rng.normal(0.0, 1, 4500), 0.03, 0.5), 2)       # the truth: 1
    0.86
    """
    finite = np.isfinite(scores_in).all() and np.isfinite(scores_out).all()
    spreads = [part.std(ddof=1) for part in (scores_in, scores_out)] if finite else [0.0, 0.0]
    if min(spreads) == 0:
        return max(0.0, float(mu_limit(*error_limits(scores_in, scores_out, middle, alpha))))
    counts = len(scores_in), len(scores_out)
    error = sqrt(sum(spread**2 / n for spread, n in zip(spreads, counts)))
    apart = float(scores_in.mean() - scores_out.mean()) - float(student.isf(2 * alpha / 3, min(counts) - 1)) * error
    wide = spreads[1] * sqrt((counts[1] - 1) / chi2.ppf(alpha / 3, counts[1] - 1))
    return max(0.0, apart / float(wide))
