"""Noise that is drawn once and sent twice is found wherever it stands; independent noise never is."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.copies import NoisesSeen
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup

D, STD = 4160, 0.5


def drawn(seed: int, count: int = D) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def shifted(t: int, c: int) -> np.ndarray:
    """A generator of the client's seed, which something else used first: a batch order, a dropout."""
    return drawn(1000 + c, D + 500)[37 * t : 37 * t + D]


def permuted(t: int, c: int) -> np.ndarray:
    return np.random.default_rng(t).permutation(drawn(1000 + c))


def with_signs(t: int, c: int) -> np.ndarray:
    return drawn(1000 + c) * np.random.default_rng(t).choice((-1, 1), D)


def part(t: int, c: int) -> np.ndarray:
    """A sixteenth of it is that of the round before."""
    once = drawn(1000 + c, D // 16)
    place = 300 * t
    return np.concatenate([drawn(10 * t + c, place), once, drawn(500 + 10 * t + c, D - place - len(once))])


def recorded(folder: Path, noise: Callable[[int, int], np.ndarray], by: str) -> None:
    mechanism = Gaussian(clip=1.0, noise_std=STD, by=by)
    with Recorder(folder, {"w": np.zeros(D)}, mechanism=mechanism, average="mean") as rec:
        model = np.zeros(D)
        for t in range(4):
            rec.broadcast(t, [model])
            for c in range(3 if t < 3 else 0):
                raw = drawn(7 * t + c) / np.sqrt(2 * D)
                sent = raw + STD * noise(t, c) if by == "client" else raw
                rec.upload(t, c, [sent], num_examples=20)
                if by == "client":
                    rec.raw(t, c, [raw])
                model = model + sent / 3
            if by == "server":
                model = model + STD * noise(t, 0)


@pytest.mark.parametrize(
    ("noise", "by"),
    [(shifted, "client"), (shifted, "server"), (permuted, "client"), (with_signs, "server"), (part, "client")],
)
def test_noise_that_was_sent_before_proves_nothing(noise, by, tmp_path):
    """ "checked: … none repeats itself" was said of it, and a finite ε."""
    recorded(tmp_path / "s", noise, by)
    found = {d.what: d for d in check_setup(tmp_path / "s")[1].declared}
    assert found["independence"].status == "contradicted" and "round 0" in found["independence"].why
    assert all(row.proven == inf for row in table(tmp_path / "s", observers=["downlink"]).rows)


@pytest.mark.parametrize("by", ["client", "server"])
def test_independent_noise_is_checked_as_before(by, tmp_path):
    recorded(tmp_path / "s", lambda t, c: drawn(10_000 + 10 * t + c), by)
    assert {d.what: d.status for d in check_setup(tmp_path / "s")[1].declared}["independence"] == "checked"


def test_hundreds_of_honest_messages_have_nothing_in_common():
    seen, rng = NoisesSeen(), np.random.default_rng(0)
    assert not any(seen.copied(rng.standard_normal(int(rng.integers(100, 9000))), str(i)) for i in range(200))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_message_is_found_among_many_to_the_last_place(sign):
    seen, rng = NoisesSeen(), np.random.default_rng(0)
    sent = [rng.standard_normal(100_000) for _ in range(10)]
    assert not any(seen.copied(one, f"message {i}") for i, one in enumerate(sent))
    late = np.concatenate([rng.standard_normal(99_000), sign * sent[7][50_000:51_000]])
    assert "message 7" in seen.copied(late, "late")
