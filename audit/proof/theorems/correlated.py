"""Noise that is correlated over the rounds: one Gaussian release, and the sensitivity that it has under participation.

Whoever sees the rounds of a chain sees no more than C x + Z (`defenses.strategies`), with Gaussian noise Z that is
independent in every row; values may follow from what was released before (arXiv:2202.08312, Theorem 2.1). A subject
that is in the rounds P, with values of norm at most b_t there, moves C x by at most

    max over P of  √(Σ_{s,t ∈ P} |⟨c_s, c_t⟩| b_s b_t),    c_t the columns of C.

P is what the ledger says; where it only says that rounds of P are so far apart, or how many they are, the worst such P
counts (arXiv:2306.08153, section 2). Nothing is amplified by sampling: a round's noise hides in the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, isclose, sqrt

import numpy as np
from numpy.typing import NDArray

from ....defenses.releases import CorrelatedLaw, Facts

_Matrix = NDArray[np.float64]

MOST_TRIED = 100_000  # sets of rounds; then a bound is taken instead


def chain_ratio(releases: Sequence[Facts], sensitivities: Sequence[float]) -> float:
    """Sensitivity over noise of all releases of one chain about a subject, as one Gaussian.

    Args:
        releases: of the rounds that the subject may be in, with noise and a bound each.
        sensitivities: b_t, how far the subject moves the value of each.

    Raises:
        ValueError: they are no chain: none of them, or of several noises, or what they say of participation differs.
    """
    known = [release.law for release in releases if isinstance(release.law, CorrelatedLaw)]
    alike = {(one.chain, one.separation, one.most) for one in known}
    std = 0.0
    if releases:
        std = releases[0].noise_std
    if len(known) < len(releases) or len(alike) != 1 or not all(isclose(r.noise_std, std) for r in releases):
        raise ValueError("correlated releases must be of one chain, with one noise and one rule of participation")
    if std == 0:
        if any(sensitivities):
            return inf
        return 0.0
    ordered = sorted(zip(releases, sensitivities), key=lambda one: one[0].round)
    columns = tuple(release.law.column for release, _ in ordered if isinstance(release.law, CorrelatedLaw))
    energy = _most_moved(
        tuple(release.round for release, _ in ordered),
        columns,
        tuple(size for _, size in ordered),
        known[0].separation,
        known[0].most,
    )
    return sqrt(energy) / std


@lru_cache(maxsize=4096)
def _most_moved(
    rounds: tuple[int, ...],
    columns: tuple[tuple[tuple[int, float], ...], ...],
    sizes: tuple[float, ...],
    separation: int,
    most: int | None,
) -> float:
    place = {row: i for i, row in enumerate({row for column in columns for row, _ in column})}
    dense = np.zeros((len(place), len(columns)))
    for t, (column, size) in enumerate(zip(columns, sizes)):
        for row, value in column:
            dense[place[row], t] = value * size
    return largest_sum(np.abs(dense.T @ dense), rounds, separation, most)


def largest_sum(gram: _Matrix, rounds: Sequence[int], separation: int = 1, most: int | None = None) -> float:
    """max over P of Σ_{s,t ∈ P} gram_st, rounds of P at least `separation` apart and at most `most` of them.

    Exact where gram_st = 0 for rounds that are so far apart, and wherever no more than `MOST_TRIED` sets need to be
    tried; else an upper bound, as each round's row is given the P that is worst for it (arXiv:2306.08153, eq. 4).

    Args:
        gram: (n, n), none of it below 0, symmetric. rounds: (n,) ascending.
        separation: from 1 on. most: None for any number.

    >>> tree = np.array([[2.0, 1.0], [1.0, 2.0]])  # two leaves below one node
    >>> largest_sum(tree, (0, 1)), largest_sum(tree, (0, 1), separation=2), largest_sum(tree, (0, 1), most=1)
    (6.0, 2.0, 2.0)
    """
    times, count = np.asarray(rounds), len(rounds)
    together = not count or (count == 1) or int(np.diff(times).min()) >= separation
    if together and (most is None or most >= count):
        return float(gram.sum())
    follows = np.searchsorted(times, times + separation)  # the first round that may come after each
    apart = np.abs(times[:, None] - times) >= separation
    if most is not None and most >= _longest(follows):
        most = None
    if not (gram * apart).any():
        return _chosen(np.diag(gram), follows, most)
    exact = _tried(gram, times, follows, apart, separation, most)
    if exact is not None:
        return float(exact)
    before = np.searchsorted(times, times - separation, side="right")  # how many may come before each
    rows = np.zeros(count)
    for i in range(count):
        left = _chosen(gram[i, : before[i]], np.minimum(follows[: before[i]], before[i]), most)
        right = _chosen(gram[i, follows[i] :], follows[follows[i] :] - follows[i], most)
        rows[i] = gram[i, i] + left + right
    return _chosen(rows, follows, most)


def _longest(follows: NDArray[np.intp]) -> int:
    """How many rounds a P has at most: the earliest ones that may follow each other."""
    count, at = 0, 0
    while at < len(follows):
        count, at = count + 1, int(follows[at])
    return count


def _chosen(values: _Matrix, follows: NDArray[np.intp], most: int | None) -> float:
    """The largest sum of values whose places may follow each other, by dynamic programming from the end."""
    if not len(values):
        return 0.0
    if most is None:
        best = [0.0] * (len(values) + 1)
        for i in range(len(values) - 1, -1, -1):
            best[i] = max(best[i + 1], float(values[i]) + best[int(follows[i])])
        return best[0]
    table = np.zeros((len(values) + 1, most + 1))  # with at most so many of them
    for i in range(len(values) - 1, -1, -1):
        table[i] = table[i + 1]
        table[i, 1:] = np.maximum(table[i, 1:], values[i] + table[follows[i], :-1])
    return float(table[0, -1])


def _tried(
    gram: _Matrix,
    times: NDArray[np.intp],
    follows: NDArray[np.intp],
    apart: NDArray[np.bool_],
    separation: int,
    most: int | None,
) -> float | None:
    """By trying; None where there is too much to try.

    Left out are sets to which a round could be added, and rounds whose neighbour before them may stand in their place
    and adds as much with whatever else is in P: among the best sets there is one without either.
    """
    count = len(times)
    no_better = np.zeros(count, dtype=bool)
    for i in range(1, count):
        both = apart[i] & apart[i - 1]  # what may be in P with either of the two
        no_better[i] = gram[i - 1, i - 1] >= gram[i, i] and bool((gram[i - 1] >= gram[i])[both].all())
    best, left = 0.0, MOST_TRIED
    todo: list[tuple[int, float, _Matrix, int]] = [(0, 0.0, np.zeros(count), 0)]
    while todo:
        first, value, cross, size = todo.pop()
        if first >= count or size == most:
            best = max(best, value)
            continue
        latest = count
        if most is None:  # beyond it another round would fit in between
            latest = int(np.searchsorted(times, times[first] + separation))
        for i in range(first, latest):
            if i > first and no_better[i]:
                continue
            left -= 1
            if left < 0:
                return None
            todo.append((int(follows[i]), value + gram[i, i] + 2 * cross[i], cross + gram[i], size + 1))
    return best
