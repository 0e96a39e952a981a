"""What a recording's tests say of honest noise, and of noise that is not as declared; on many draws."""

from __future__ import annotations

import re

import numpy as np
import pytest
from dpfl_audit.audit.record.independence import MOST_PAIRED, independent
from dpfl_audit.audit.record.noise_tests import (
    ENOUGH,
    LeftOver,
    Projection,
    TensorPart,
    length_of_sent,
    noise_law,
    norm_bound,
)


def left(rows: np.ndarray) -> list[LeftOver]:
    return [LeftOver(row, f"message {i}") for i, row in enumerate(rows)]


def test_honest_noise_is_checked_and_a_third_more_or_less_contradicted():
    rng = np.random.default_rng(0)
    for _ in range(20):
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


def test_messages_without_any_noise_stop_nothing():
    """Their sum has no variance to compare, and a division by nothing was a traceback."""
    assert independent(left(np.zeros((3, 2000)))).status == "declared"
    assert noise_law(left(np.zeros((3, 2000)))).status == "contradicted"


def test_numbers_that_float32_is_too_coarse_for_are_left_out():
    rows = np.random.default_rng(0).standard_normal((2, 3000))
    rows[:, ::2] = np.nan
    assert noise_law(left(rows)).status == independent(left(rows)).status == "checked"


def test_noise_of_one_seed_is_found_among_hundreds():
    rows = np.random.default_rng(0).standard_normal((200, 2000))
    rows[150] = rows[3]
    assert re.findall(r"message (\d+)", independent(left(rows)).why) == ["3", "150"]


def test_of_more_messages_than_are_compared_independence_is_no_more_than_declared():
    rows = np.random.default_rng(0).standard_normal((MOST_PAIRED + 1, 2000))
    assert independent(left(rows[:-1])).status == "checked"
    found = independent(left(rows))
    assert found.status == "declared" and "1 others" in found.why


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


@pytest.mark.parametrize("end", [3**0.5, 2.0, 2.5, 3.0])
def test_noise_that_ends_somewhere_is_found(end):
    """Uniform, or Gaussian clamped to 2, 2.5 or 3 standard deviations, whose law is Gaussian to Kolmogorov's eye."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-end, end, (10, 1000)) if end < 2 else rng.standard_normal((10, 1000)).clip(-end, end)
    found = noise_law(left(rows))
    assert found.status == "contradicted" and "largest" in found.why


def test_one_number_beyond_all_noise_is_found():
    rows = np.random.default_rng(0).standard_normal((5, 2000))
    rows[3, 7] = -9.0
    assert re.search(r"largest of 2000 .* message 3 is 9", noise_law(left(rows)).why)


def with_a_bias(rows: np.ndarray, numbers: int) -> list[LeftOver]:
    rest = rows.shape[1] - numbers
    parts = (TensorPart("weight", rest, rest, 0, 0.1), TensorPart("bias", numbers, numbers, 0, 0.1))
    return [LeftOver(row, f"message {i}", parts=parts) for i, row in enumerate(rows)]


@pytest.mark.few(1)
@pytest.mark.parametrize("scale", [0.1, 0.4, 2.0])
def test_another_size_of_noise_in_a_small_tensor_is_found(scale):
    for seed in range(20):
        rows = np.random.default_rng(seed).standard_normal((6, 2000))
        assert noise_law(with_a_bias(rows, 10)).status == "checked"
        rows[:, -10:] *= scale
        found = noise_law(with_a_bias(rows, 10))
        assert found.status == "contradicted" and "'bias'" in found.why


def test_a_tensor_too_small_to_tell_is_not_called_checked():
    found = noise_law(with_a_bias(np.random.default_rng(0).standard_normal((6, 2000)), 3))
    assert found.status == "declared" and "18 numbers" in found.why and "'bias'" in found.why


def test_sixty_messages_check_a_bound_behind_noise_of_half_of_it():
    """(4.75 + 1.645)·.5/(√2 − 1) is 7.72, squared 59.6; a hundred that are hardly longer than the bound take nothing
    away. A clip to √2 of C is found by as many 19 times in 20.
    """
    rng = np.random.default_rng(0)
    many, hardly = ([Projection(raw, 1.0, 0.5, "one")] * n for raw, n in ((9.0, 60), (1.001, 100)))
    assert norm_bound(many).status == norm_bound([*many, *hardly]).status == "checked"
    assert norm_bound(many[:58]).status == "declared"
    found = 0
    for _ in range(200):
        along = 2**0.5 + 0.5 * rng.standard_normal(60)
        found += norm_bound([Projection(9.0, float(a), 0.5, "one") for a in along]).status == "contradicted"
    assert found > 175
    for _ in range(200):  # as long as the bound exactly
        along = 1 + 0.5 * rng.standard_normal(60)
        assert norm_bound([Projection(9.0, float(a), 0.5, "one") for a in along]).status == "checked"
