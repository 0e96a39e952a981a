"""A draw of exactly so many clients, as it looks to whoever knows of some of them whether they were drawn."""

from __future__ import annotations

from functools import lru_cache
from math import exp, fsum, log

Shares = tuple[tuple[float, int, int], ...]  # how likely, and then how many of how many the rest of the draw takes
MOST_SHARES = 40  # that are told apart
RARE = 45.0  # e-folds below the most likely one, where outcomes count as the next worse one


@lru_cache(maxsize=256)
def shares(population: int, cohort: int, known: int) -> Shares:
    """How the draw of `cohort` of `population` goes on, given how many of the `known` are in it: hypergeometric, and
    then so many of the others, all as likely. The chances add up to 1.

    The fewer of the known are drawn, the likelier is anybody else: outcomes that are rare, or many, count as the worst
    of those beside them.

    >>> shares(10, 1, 0), [(round(chance, 9), left, of) for chance, left, of in shares(3, 1, 1)]
    (((1.0, 1, 10),), [(0.666666667, 1, 2), (0.333333333, 0, 2)])
    """
    others = population - known
    first, last = max(0, cohort - others), min(known, cohort)
    logs = [0.0]
    for j in range(first, last):  # how much likelier one more of the known is
        logs.append(logs[-1] + log((known - j) / (j + 1)) + log((cohort - j) / (others - cohort + j + 1)))
    top = max(logs)
    kept = [j for j, value in enumerate(logs) if value > top - RARE]
    whole = fsum(exp(value - top) for value in logs)
    apart = -(-len(kept) // MOST_SHARES)
    bounds = [0, *range(kept[0] + apart, kept[-1] + 1, apart), len(logs)]
    return tuple(
        (fsum(exp(value - top) for value in logs[begin:end]) / whole, cohort - first - begin, others)
        for begin, end in zip(bounds, bounds[1:])
    )
