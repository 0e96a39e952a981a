"""Noise that is right in every message and hangs together with other noise; and honest noise, on many draws."""

from __future__ import annotations

import dpfl_audit.audit.record.independence as independence
import dpfl_audit.audit.record.noise_tests as noise_tests
import numpy as np
import pytest
from dpfl_audit.audit.record.independence import independent, strongest_repeat
from dpfl_audit.audit.record.noise_tests import LeftOver


def left(rows: np.ndarray, law: str = "gaussian", exact: bool = True) -> list[LeftOver]:
    return [LeftOver(row, f"message {i}", exact, law=law, repeat=strongest_repeat(row)) for i, row in enumerate(rows)]


def laplace(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.laplace(0, 0.5**0.5, shape)


@pytest.mark.parametrize("clients", [3, 20, 100])
def test_noises_that_cancel_in_the_sum_are_found(clients):
    """Of 20 clients and more a pair correlates by 1/19 at most, which no pair shows; their sum has no noise at all."""
    rows = np.random.default_rng(0).standard_normal((clients, 3000))
    rows = (rows - rows.mean(0)) * (clients / (clients - 1)) ** 0.5
    assert independent(left(rows)).status == "contradicted"
    assert independent(left(rows, exact=False)).status != "checked"  # differences of runs hold more than noise


def test_a_small_part_in_common_of_many_noises_is_found():
    rng = np.random.default_rng(0)
    for law, draw in (("gaussian", lambda shape: rng.standard_normal(shape)), ("laplace", lambda s: laplace(rng, s))):
        alone = draw((100, 4000))
        assert independent(left(alone, law)).status == "checked"
        common = 0.98**0.5 * rng.standard_normal((100, 4000)) + 0.02**0.5 * rng.standard_normal(4000)
        found = independent(left(common))
        assert found.status == "contradicted" and "in common" in found.why


def test_messages_as_many_as_numbers_are_not_called_checked():
    found = independent(left(np.random.default_rng(0).standard_normal((900, 1000))))
    assert found.status == "declared" and "900 messages" in found.why


@pytest.mark.parametrize("sign", [1, -1])
def test_a_part_of_a_message_that_is_repeated_is_found(sign):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 3000))
    rows[1, 2000:] = sign * rows[1, 400:1400]
    found = independent(left(rows))
    assert found.status == "contradicted" and "message 1" in found.why and "1600 numbers" in found.why


def test_one_row_of_noise_for_all_rows_of_a_tensor_is_found():
    rng = np.random.default_rng(0)
    rows = np.stack([np.tile(rng.standard_normal(500), 12) for _ in range(2)])
    assert "500 numbers" in independent(left(rows)).why


def test_unknown_numbers_repeat_nothing():
    noise = np.random.default_rng(0).standard_normal(2000)
    noise[500:1900] = np.nan
    found = strongest_repeat(noise)
    assert found is not None and found.of < 700
    assert strongest_repeat(np.full(2000, np.nan)) is None and strongest_repeat(noise[:100]) is None


def test_honest_noise_is_seldom_contradicted_at_a_level_that_can_be_counted(monkeypatch):
    """Levels of 2 % instead of one in a million: of 120 recordings 10 would be too many (p = .0003) for either test."""
    monkeypatch.setattr(independence, "RARE", 0.02)
    rng = np.random.default_rng(0)
    together = repeated = 0
    for i in range(120):
        shape = (int(rng.choice([2, 8, 40])), int(rng.choice([600, 2000])))
        law = ("gaussian", "laplace")[i % 2]
        rows = left(rng.standard_normal(shape) if law == "gaussian" else laplace(rng, shape), law)
        together += bool(independence._together(rows)[0])
        repeated += bool(independence._repeated(rows))
    assert together < 10 and repeated < 10


def test_chances_are_chances():
    """Of honest numbers of every law each test's p-value is below 5 % in 5 % of 400 draws at most (34 are p < .003)."""
    rng = np.random.default_rng(0)
    draws = {
        "gaussian": lambda n: rng.standard_normal(n),
        "laplace": lambda n: laplace(rng, (n,)),
        "two laplaces": lambda n: (laplace(rng, (n,)) - laplace(rng, (n,))) / 2**0.5,
    }
    for law, draw in draws.items():
        below = dict.fromkeys(("size", "law", "largest"), 0)
        for _ in range(400):
            pool = noise_tests._Pool(draw(int(rng.choice([30, 300]))), law, "", True)
            for name, p in pool.chances().items():
                below[name] += p < 0.05
        assert max(below.values()) < 34, (law, below)
