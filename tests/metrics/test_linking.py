"""Links beside links by lot: an exact test."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from dpfl_audit.metrics.linking import linked

ROUNDS, SENDERS = [0, 0, 0, 1, 1, 1], [4, 7, 2, 2, 4, 7]
RIGHT = [(0, 4), (1, 5), (2, 3)]


def by_hand(links: list[tuple[int, int]], rounds: list[int], senders: list[int]) -> tuple[float, float]:
    """Chance and p-value over all ways to trade messages within rounds."""
    groups = [[i for i, r in enumerate(rounds) if r == number] for number in sorted(set(rounds))]
    hits = []
    for orders in product(*(permutations(group) for group in groups)):
        traded = list(senders)
        for group, order in zip(groups, orders):
            for place, other in zip(group, order):
                traded[place] = senders[other]
        hits.append(sum(traded[a] == traded[b] for a, b in links))
    reached = sum(senders[a] == senders[b] for a, b in links)
    return float(np.mean(hits)), float(np.mean([h >= reached for h in hits]))


@pytest.mark.parametrize("links", [RIGHT, [(0, 4), (1, 3), (2, 5)], [(0, 3), (1, 4), (2, 5)], [(0, 4)]])
def test_chance_and_p_value_are_those_of_all_permutations(links) -> None:
    scored = linked(links, ROUNDS, SENDERS)
    chance, p = by_hand(links, ROUNDS, SENDERS)
    assert scored is not None and scored.pairs == 3
    assert scored.share == sum(SENDERS[a] == SENDERS[b] for a, b in links) / 3
    assert scored.chance == pytest.approx(chance / 3, abs=0.01) and scored.p_value == pytest.approx(p, abs=0.02)
    assert scored.least == pytest.approx(by_hand(RIGHT, ROUNDS, SENDERS)[1], abs=0.02)


def test_senders_who_come_and_go() -> None:
    """Of five senders three take part in a round: a pair counts where it could have been found."""
    rounds, senders = [0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2, 2, 3, 4, 4, 0, 1]
    scored = linked([(2, 3), (0, 7), (0, 4)], rounds, senders)
    assert scored is not None and scored.pairs == 4 and scored.share == 0.5


def test_nobody_twice_is_no_question() -> None:
    assert linked([(0, 2)], [0, 0, 1, 1], [0, 1, 2, 3]) is None


def test_links_that_know_nothing_are_found_significant_no_more_often_than_stated() -> None:
    """Super-uniform p-values: of 200 random links of 4 rounds of 6 senders, 5 % at most below .05, but for luck."""
    rng = np.random.default_rng(0)
    rounds = np.repeat(np.arange(4), 6)
    below = 0
    for seed in range(200):
        senders = np.concatenate([rng.permutation(6) for _ in range(4)])
        links = [
            (6 * a + i, 6 * b + j)
            for a in range(4)
            for b in range(a + 1, 4)
            for i, j in enumerate(rng.permutation(6).tolist())
        ]
        scored = linked(links, rounds.tolist(), senders.tolist(), seed, permutations=199)
        assert scored is not None
        below += scored.p_value <= 0.05
    assert below <= 19  # Binomial(200, .05) exceeds it once in 300
