"""How many messages of one sender were linked, beside what links that know nothing would get. An exact test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERMUTATIONS = 9_999
AT_ONCE = 2**22  # pairs looked up
RESAMPLES = 2_000


@dataclass(frozen=True)
class Linked:
    """share: of the pairs of messages of one sender in different rounds, those that were linked. chance: its mean where
    senders trade messages within rounds. interval: of the share, 95 %, by bootstrap over senders; None of one sender.
    p_value, least: of the permutation test, and what it gives where all pairs are linked and no others. pairs: how many
    there are.
    """

    share: float
    chance: float
    interval: tuple[float, float] | None
    p_value: float
    least: float
    pairs: int


def linked(
    links: Sequence[tuple[int, int]],
    rounds: Sequence[int],
    senders: Sequence[int],
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Linked | None:
    """Links beside the truth.

    If messages tell nothing of who sent them, then whatever was linked, senders might as well have traded their
    messages within each round: p is the share of such permutations in which as many links are right, the real one
    counted. That is exact, however the links came about. The least value is 1/(permutations + 1).

    Args:
        links: pairs of places of messages of different rounds, each once. rounds, senders: (k,), of each message; a
            sender has one message a round at most. seed: of the permutations and the bootstrap.

    Returns:
        None where no sender has messages in two rounds.
    """
    times, who = np.asarray(rounds), np.unique(np.asarray(senders), return_inverse=True)[1]
    first, second = np.triu_indices(len(who), 1)
    true = (who[first] == who[second]) & (times[first] != times[second])
    perfect = np.stack([first[true], second[true]], 1)
    if not len(perfect):
        return None
    pairs = np.asarray(links, dtype=np.int64).reshape(-1, 2)
    right = int((who[pairs[:, 0]] == who[pairs[:, 1]]).sum())
    rng = np.random.default_rng(seed)
    as_good = as_perfect = total = drawn = 0
    size = max(1, AT_ONCE // max(1, len(pairs), len(perfect)))
    while drawn < permutations:
        count = min(size, permutations - drawn)
        traded = np.empty((count, len(who)), dtype=np.int64)
        for number in np.unique(times):
            own = np.flatnonzero(times == number)
            traded[:, own] = rng.permuted(np.tile(who[own], (count, 1)), axis=1)
        hits = (traded[:, pairs[:, 0]] == traded[:, pairs[:, 1]]).sum(axis=1)
        whole = (traded[:, perfect[:, 0]] == traded[:, perfect[:, 1]]).sum(axis=1)
        as_good += int((hits >= right).sum())
        as_perfect += int((whole >= len(perfect)).sum())
        total += int(hits.sum())
        drawn += count
    return Linked(
        share=right / len(perfect),
        chance=total / drawn / len(perfect),
        interval=_interval(pairs, perfect, who, rng),
        p_value=(1 + as_good) / (1 + drawn),
        least=(1 + as_perfect) / (1 + drawn),
        pairs=len(perfect),
    )


def _interval(
    pairs: np.ndarray, perfect: np.ndarray, who: np.ndarray, rng: np.random.Generator
) -> tuple[float, float] | None:
    """By senders drawn again, each with all its pairs; of those who have any."""
    possible = np.bincount(who[perfect[:, 0]], minlength=who.max() + 1)
    own = pairs[who[pairs[:, 0]] == who[pairs[:, 1]]]
    found = np.bincount(who[own[:, 0]], minlength=who.max() + 1)
    found, possible = found[possible > 0], possible[possible > 0]
    if len(possible) < 2:
        return None
    drawn = rng.integers(len(possible), size=(RESAMPLES, len(possible)))
    low, high = np.quantile(found[drawn].sum(axis=1) / possible[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)
