"""How much more often a hidden value is guessed of members than of others, whom the same messages say nothing of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import ndtri
from scipy.stats import hypergeom
from torch import Tensor

from .intervals import Interval

_Flags = Tensor | np.ndarray | Sequence[bool]


@dataclass(frozen=True)
class Advantage:
    """members, others: the shares guessed right. difference: members − others, in [−1, 1], the attribute advantage of
    Yeom et al. (2018, arXiv:1709.01604). interval: of it.

    p_value: twice the chance, at most 1, of as many right guesses among the members where who is a member is a matter
    of lot (Fisher's exact test). least: its value were all members' guessed right.
    """

    members: float
    others: float
    difference: float
    interval: Interval
    p_value: float
    least: float


def advantage(right_in: _Flags, right_out: _Flags, confidence: float = 0.95) -> Advantage:
    """Right guesses of members beside those of others.

    Args:
        right_in, right_out: (n,) bool each, n ≥ 1: whether the guess of a member, or of another record, is right.
        confidence: of the interval.

    >>> found = advantage([True, True, True, False], [True, False, False, False])
    >>> found.difference, round(found.p_value / 2, 6)      # (16 + 1)/70: of 4 right ones 3 or 4 fall to the members
    (0.5, 0.242857)

    Raises:
        ValueError: there are no members or no others.
    """
    members, others = (np.asarray(right, dtype=bool) for right in (right_in, right_out))
    n_in, n_out = len(members), len(others)
    if not n_in or not n_out:
        raise ValueError(f"{n_in} members and {n_out} others; an advantage needs one of each at least")
    hits_in, hits_out = int(members.sum()), int(others.sum())
    return Advantage(
        members=hits_in / n_in,
        others=hits_out / n_out,
        difference=hits_in / n_in - hits_out / n_out,
        interval=difference_interval(hits_in, n_in, hits_out, n_out, confidence),
        p_value=fisher_p_value(hits_in, n_in, hits_out, n_out),
        least=fisher_p_value(n_in, n_in, hits_out, n_out),
    )


def fisher_p_value(hits_in: int, n_in: int, hits_out: int, n_out: int) -> float:
    """Twice the chance, at most 1, that so many of all hits or more fall among n_in of n_in + n_out trials, if each
    choice of n_in of them is as likely: Fisher's exact test, whatever is common to all trials.

    >>> fisher_p_value(2, 2, 0, 2) == 2 / 6
    True
    """
    tail = float(hypergeom.sf(hits_in - 1, n_in + n_out, hits_in + hits_out, n_in))
    return min(1.0, 2 * tail)


def difference_interval(hits_a: int, n_a: int, hits_b: int, n_b: int, confidence: float = 0.95) -> Interval:
    """Of the difference of two shares, a − b: Newcombe (1998, Statistics in Medicine 17, 873, method 10), of Wilson's
    (1927) limits of each.

    Args:
        hits_a, n_a, hits_b, n_b: hits of so many trials. confidence: that the interval covers the difference.

    >>> [round(limit, 4) for limit in difference_interval(56, 70, 48, 80)]      # his table II, row (a)
    [0.0524, 0.3339]
    """
    (low_a, high_a), (low_b, high_b) = (_wilson(hits, n, confidence) for hits, n in ((hits_a, n_a), (hits_b, n_b)))
    a, b = hits_a / n_a, hits_b / n_b
    return a - b - sqrt((a - low_a) ** 2 + (high_b - b) ** 2), a - b + sqrt((high_a - a) ** 2 + (b - low_b) ** 2)


def _wilson(hits: int, n: int, confidence: float) -> Interval:
    z, share = float(ndtri(0.5 + confidence / 2)), hits / n
    middle, half = share + z**2 / (2 * n), z * sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)
