"""Answers of coins: every number of 20,000 coins summed by scipy is what those that may come up give."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.response import response_epsilon
from scipy.stats import binom


@pytest.mark.parametrize("fair", [False, True])
def test_numbers_that_hardly_ever_come_up_change_nothing(fair):
    """All numbers of 20,000 coins summed, by scipy's binomial; of 5·10⁷ they took a minute."""
    epsilon, count, delta = 0.3, 20_000, 1e-6
    truth = exp(epsilon) / (exp(epsilon) + 1)
    k = np.arange(count + 1)
    of_truth, of_toss = binom.logpmf(k, count, truth), binom.logpmf(k, count, 0.5)
    pairs = [(of_truth, of_toss), (of_toss, of_truth)] if fair else [(of_truth, binom.logpmf(k, count, 1 - truth))]
    found = response_epsilon(epsilon, count, delta, fair)

    def needed(target: float) -> float:
        return max(float(np.sum(np.exp(p) * -np.expm1(np.minimum(target + q - p, 0)))) for p, q in pairs)

    assert needed(found) <= delta * (1 + 1e-6) < needed(found * (1 - 1e-6))


def test_a_delta_next_to_nothing_costs_nearly_all():
    assert 4.9 < response_epsilon(1.0, 5, 1e-310) <= 5.0
