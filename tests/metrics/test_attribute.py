"""An advantage is what members' values are told beyond the population: exact tests, published intervals, controls."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from dpfl_audit.metrics.attribute import advantage, difference_interval, fisher_p_value


def flags(hits: int, n: int) -> list[bool]:
    return [place < hits for place in range(n)]


def test_the_p_value_is_fishers() -> None:
    """By hand: of C(8, 4) = 70 ways to deal four right guesses, 16 + 1 give the members three or more of four."""
    assert fisher_p_value(3, 4, 1, 4) == pytest.approx(2 * 17 / 70)
    assert fisher_p_value(4, 4, 0, 4) == pytest.approx(2 / 70)
    tail = sum(comb(30, k) * comb(70, 20 - k) for k in range(12, 21)) / comb(100, 20)
    assert fisher_p_value(12, 30, 8, 70) == pytest.approx(2 * tail)


@pytest.mark.parametrize(
    ("a", "n_a", "b", "n_b", "low", "high"),
    [
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (5, 56, 0, 29, -0.0381, 0.1926),
        (10, 10, 0, 10, 0.6075, 1.0),
    ],
)
def test_the_interval_is_newcombes(a: int, n_a: int, b: int, n_b: int, low: float, high: float) -> None:
    """His table II (1998, Statistics in Medicine 17, 873), method 10."""
    assert difference_interval(a, n_a, b, n_b) == pytest.approx((low, high), abs=6e-5)


def test_whatever_passes_the_test_has_an_interval_above_nothing() -> None:
    for n_in, n_out in product((1, 2, 5, 12), repeat=2):
        for hits_in, hits_out in product(range(n_in + 1), range(n_out + 1)):
            found = advantage(flags(hits_in, n_in), flags(hits_out, n_out))
            assert found.interval[0] <= found.difference <= found.interval[1]
            assert found.p_value > 0.05 or found.interval[0] > 0, (hits_in, n_in, hits_out, n_out)
            assert found.least <= found.p_value


def test_what_the_population_tells_is_no_advantage() -> None:
    """Nine in ten right of either: a guess from what is frequent, however good, shows nothing."""
    found = advantage(flags(90, 100), flags(180, 200))
    assert found.members == found.others == 0.9 and found.difference == 0
    assert found.p_value == 1 and found.interval[0] < 0 < found.interval[1]


def test_of_luck_alone_few_pass() -> None:
    rng = np.random.default_rng(0)
    p_values = [advantage(rng.random(40) < 0.3, rng.random(80) < 0.3).p_value for _ in range(1000)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05


def test_there_must_be_both() -> None:
    with pytest.raises(ValueError, match="0 members and 2 others"):
        advantage([], [True, False])
