"""Whether something in a message beside its value and noise shows: by squares, which honest ones seldom reach."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from dpfl_audit.audit.record.across import Energy, nothing_added, visible
from tiers import quick


def statuses(numbers: int, messages: int, added: float, draws: int = 400, bound: float = 2.0) -> list[str]:
    """Of so many recordings, in whose messages `added` standard deviations are beside the noise."""
    totals = np.random.default_rng(0).noncentral_chisquare(numbers, max(added, 1e-9) ** 2, (draws, messages))
    return [nothing_added([Energy(float(x), numbers, bound, "one") for x in row]).status for row in totals]


@pytest.mark.parametrize(("numbers", "messages"), quick([(500, 1), (16_512, 80), (3000, 12)], 0, 2))
def test_honest_messages_pass_and_what_is_said_to_be_visible_is_seen(numbers, messages):
    tests = messages + (messages > 1)
    length = sqrt(visible(numbers * messages, tests) / messages)
    assert "contradicted" not in statuses(numbers, messages, 0.0)
    seen = statuses(numbers, messages, length).count("contradicted")
    assert seen >= 0.92 * 400
    if messages > 1:  # what is half as long in squares is not, so the length that is named is not too long either
        assert statuses(numbers, messages, length / sqrt(2)).count("contradicted") < 200


def test_one_message_among_many_is_enough():
    honest = [Energy(16_512.0, 16_512, 2.0, f"message {i}") for i in range(300)]
    found = nothing_added([*honest, Energy(16_512.0 + 40**2, 16_512, 2.0, "message 300")])
    assert found.status == "contradicted" and "message 300" in found.why


@pytest.mark.parametrize(("bound", "status"), [(20.0, "checked"), (2.0, "declared")])
def test_it_is_checked_where_as_much_as_the_bound_would_have_shown(bound, status):
    """λ = 6.6·√(2·12·3000) + … over 12 messages is (12.6 standard deviations)² in each."""
    assert {*statuses(3000, 12, 0.0, 20, bound)} == {status}


def test_a_standard_deviation_that_was_rounded_contradicts_nothing():
    numbers = 10**9
    assert nothing_added([Energy(numbers * (4.8448 / 4.8428) ** 2, numbers, 2.0, "one")]).status != "contradicted"
    assert nothing_added([]).status == "declared"
