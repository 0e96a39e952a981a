"""Who sees the draw of cohorts sees in which rounds a client is. As the draw looks at no data, δ(ε) is the mean of
δ_k(ε) over the number k of these rounds, binomial: exactly, as k is part of what is seen.
"""

from __future__ import annotations

from functools import lru_cache
from math import fsum, isfinite, sqrt

from scipy.optimize import brentq

from .gaussian import gaussian_delta, gaussian_epsilon

TAIL = 1e-9  # of δ: counts of rounds that are rarer, all together, are taken to reveal everything


@lru_cache(maxsize=64)  # rows of other units and adjacencies ask for the same
def epsilon_of_drawn(multiplier: float, rounds: int, rate: float, delta: float) -> float:
    """The ε of Gaussian releases in those of `rounds` that a client is drawn in, seen by somebody who sees who is.

    multiplier: noise over sensitivity of one. rate: the chance of being drawn, in (0, 1]. Never below the exact value.

    >>> round(epsilon_of_drawn(1.0, 1, 1.0, 1e-5), 4), epsilon_of_drawn(1.0, 1, 1e-5, 1e-5)
    (4.3772, 0.0)
    """
    from scipy.stats import binom  # of whoever is drawn by lot alone: it takes half a second

    low, high = (int(end(TAIL * delta, rounds, rate)) for end in (binom.ppf, binom.isf))
    left = float(binom.cdf(low - 1, rounds, rate) + binom.sf(high, rounds, rate))
    counts = range(max(1, low), max(1, high) + 1)
    chances = binom.pmf(counts, rounds, rate)

    def excess(epsilon: float) -> float:
        deltas = (gaussian_delta(multiplier=multiplier / sqrt(k), epsilon=epsilon) for k in counts)
        return left + fsum(p * d for p, d in zip(chances, deltas)) - delta

    if excess(0.0) <= 0:
        return 0.0
    most = gaussian_epsilon(multiplier / sqrt(counts[-1]), delta / 2)
    if not isfinite(most) or excess(most) >= 0:  # so large that float64 does not tell the δ at it
        return most
    root = float(brentq(excess, 0.0, most, xtol=1e-12, rtol=1e-12))
    step = 1e-12 * root or 1e-15
    while excess(root) > 0:
        root, step = root + step, 2 * step
    return root
