"""What a recording's tests say of honest noise, and of noise that is not as declared; on many draws."""

from __future__ import annotations

import numpy as np
import pytest
from dpfl_audit.audit.record.noise_tests import (
    ENOUGH,
    MOST_PAIRED,
    LeftOver,
    Projection,
    independent,
    length_of_sent,
    noise_law,
    norm_bound,
)


def left(rows: np.ndarray) -> list[LeftOver]:
    return [LeftOver(row, f"message {i}") for i, row in enumerate(rows)]


def test_honest_noise_is_checked_and_a_third_more_or_less_contradicted():
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows = rng.standard_normal((int(rng.integers(1, 20)), int(rng.integers(ENOUGH["gaussian"], 4096))))
        assert noise_law(left(rows)).status == "checked" and independent(left(rows)).status != "contradicted"
        assert noise_law(left(rows * 2 / 3)).status == noise_law(left(rows * 3 / 2)).status == "contradicted"


def test_one_message_among_many_with_less_noise_is_found():
    rows = np.random.default_rng(0).standard_normal((30, 2000))
    rows[17] *= 2 / 3
    found = noise_law(left(rows))
    assert found.status == "contradicted" and "message 17" in found.why


@pytest.mark.parametrize("law", ["laplace", "uniform"])
def test_another_law_of_the_same_size_is_found(law):
    rng = np.random.default_rng(0)
    draws = rng.laplace(0, 0.5**0.5, 20_000) if law == "laplace" else rng.uniform(-(3**0.5), 3**0.5, 20_000)
    assert noise_law(left(draws[None])).status == "contradicted"


def test_too_few_numbers_tell_nothing():
    rows = np.random.default_rng(0).standard_normal((1, 300))
    assert noise_law(left(rows)).status == independent(left(rows)).status == "declared"
    assert noise_law([]).status == norm_bound([]).status == "declared"


def test_numbers_that_float32_is_too_coarse_for_are_left_out():
    rows = np.random.default_rng(0).standard_normal((2, 3000))
    rows[:, ::2] = np.nan
    assert noise_law(left(rows)).status == independent(left(rows)).status == "checked"


def test_noise_of_one_seed_is_found_among_hundreds():
    rows = np.random.default_rng(0).standard_normal((200, 2000))
    rows[150] = rows[3]
    assert "message 3 and of message 150 is the same" in independent(left(rows)).why


def test_of_more_messages_than_are_compared_independence_is_no_more_than_declared():
    rows = np.random.default_rng(0).standard_normal((MOST_PAIRED + 1, 1000))
    assert independent(left(rows[:-1])).status == "checked"
    found = independent(left(rows))
    assert found.status == "declared" and "1 others were not compared" in found.why


def test_a_bound_is_tested_only_by_longer_values_and_only_where_the_noise_lets_it():
    assert norm_bound([Projection(0.8, 0.8, 0.01, "one")]).status == "declared"
    assert norm_bound([Projection(1.5, 1.0, 0.5, "one")]).status == "declared"
    assert norm_bound([Projection(9.0, 1.0, 0.5, "one")]).status == "declared"  # as √2 of it would be
    assert norm_bound([Projection(9.0, 1.0, 0.05, "one")]).status == "checked"
    many = [Projection(3.0, 3.0 + 0.1 * i, 0.5, "one") for i in range(4)]
    assert norm_bound(many).status == "contradicted"


def test_a_clip_of_every_tensor_by_itself_is_not_called_checked():
    """Of four tensors of one length each clipped to C, twice C is left; of two, √2 C; on many draws of the noise."""
    rng = np.random.default_rng(0)
    for tensors, spread, messages in ((4, 0.5, 12), (4, 2.0, 40), (2, 0.5, 12), (2, 0.3, 30)):
        for _ in range(50):
            along = tensors**0.5 + spread * rng.standard_normal(messages)
            found = norm_bound([Projection(8.0, float(a), spread, "one") for a in along])
            assert found.status != "checked", (tensors, spread)


def test_a_length_that_fits_says_nothing_and_honest_ones_always_fit():
    rng = np.random.default_rng(0)
    for _ in range(200):
        sent = 0.5 * rng.standard_normal(3000)
        sent[0] += 1.0
        assert length_of_sent(float(np.linalg.norm(sent)), 3000, 1.0, 0.5, "one") is None
    assert length_of_sent(0.5 * 3000**0.5 * 1.5, 3000, 1.0, 0.5, "one") is not None
