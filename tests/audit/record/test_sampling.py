"""A declared lot that what was recorded cannot come from is contradicted, and proves nothing."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.noise_tests import drawn_too_evenly, drawn_too_often, records_as_said
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.releases import Sampling

START = {"weight": torch.zeros(30, 10)}


def sampling(folder) -> tuple[str, str]:
    found = next(d for d in check_setup(folder)[1].declared if d.what == "sampling")
    return found.status, found.why


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("count", "kind", "status"),
    [
        (600, "poisson", "declared"),  # all that it has
        (800, "poisson", "declared"),  # more than is said: drawn more seldom than is priced
        (1210, "poisson", "declared"),  # twenty steps of 60
        (527, "poisson", "declared"),  # 600 (1 - .9²⁰): each once
        (60, "poisson", "contradicted"),  # the same 60 of 60 in every step, priced as a tenth
        (10, "poisson", "contradicted"),  # fewer than a batch
        (599, "poisson", "contradicted"),
        (600, "without_replacement", "declared"),
        (10, "without_replacement", "contradicted"),
    ],
)
def test_numbers_of_records_that_no_such_lot_gives(count, kind, status, tmp_path):
    lot = Sampling(kind, 600, 60, unit="record")
    with Recorder(tmp_path / "s", START, mechanism=Gaussian(1.0, 1.1, of="record", steps=20, sampling=lot)) as rec:
        rec.broadcast(0, START)
        rec.upload(0, 0, torch.randn(300), num_examples=count)
        rec.upload(0, 1, torch.randn(300), num_examples=600)
    assert sampling(tmp_path / "s")[0] == status
    row = next(r for r in table(tmp_path / "s").rows if (r.observer, r.unit) == ("server", "record"))
    assert (row.proven == inf) == (status == "contradicted")


@pytest.mark.full
def test_true_counts_are_not_contradicted():
    """300 recordings of 50 uploads, which tell how many records their steps drew."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        drawn = rng.binomial(5 * 300, 0.1, 50)
        assert records_as_said(drawn.tolist(), 5, 300, 30, "poisson").status == "declared"
        once = rng.binomial(300, 1 - 0.9**5, 50)
        assert records_as_said(once.tolist(), 5, 300, 30, "poisson").status == "declared"
        times = dict(enumerate(rng.binomial(40, 0.1, 100).tolist()))
        assert drawn_too_often(times, 40, 100, 10) == ""


@pytest.mark.parametrize(("clients", "seen", "words"), [(20, range(10), "20 clients"), (None, range(10), "at a rate")])
def test_clients_who_are_fewer_than_the_population_that_is_said(clients, seen, words, tmp_path):
    """The same ten in all of twelve rounds, as the draws of a thousand: as many a round as is said."""
    noise = Gaussian(1.0, 1.0, by="server", sampling=Sampling("poisson", 1000, 10))
    with Recorder(tmp_path / "s", START, mechanism=noise, average="unknown", clients=clients) as rec:
        for t in range(12):
            rec.broadcast(t, START)
            for c in seen:
                rec.upload(t, c, torch.zeros(300), num_examples=5)
    status, why = sampling(tmp_path / "s")
    assert status == "contradicted" and words in why


def in_turn(rng):
    return [{(5 * t + i) % 20 for i in range(5)} for t in range(40)]


def by_epochs(rng):
    return [{int(c) for c in part} for _ in range(10) for part in np.split(rng.permutation(20), 4)]


def exactly(rng):
    return [{int(c) for c in rng.choice(20, 5, replace=False)} for _ in range(40)]


def by_coins(rng):
    return [{int(c) for c in np.flatnonzero(rng.random(20) < 0.25)} for _ in range(40)]


@pytest.mark.parametrize(
    ("drawn", "kind", "found"),
    [
        (in_turn, "poisson", True),  # a client is in 10 of 40 rounds for sure: ε 17.9, and 11.3 by coins
        (in_turn, "without_replacement", True),
        (by_epochs, "poisson", True),
        (by_epochs, "without_replacement", True),
        (exactly, "poisson", True),
        (exactly, "without_replacement", False),
        (by_coins, "poisson", False),
    ],
)
def test_turns_are_no_draws(drawn, kind, found):
    rng = np.random.default_rng(0)
    assert all(bool(drawn_too_evenly(drawn(rng), 20, 5, kind)) == found for _ in range(30))


def test_true_draws_are_not_too_even():
    """Of populations, rates and lengths of many kinds."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        population, rounds = int(rng.integers(1, 60)), int(rng.integers(1, 80))
        cohort = int(rng.integers(1, population + 1))
        coins = [set(np.flatnonzero(rng.random(population) < cohort / population)) for _ in range(rounds)]
        assert drawn_too_evenly(coins, population, cohort, "poisson") == ""
        some = [set(rng.choice(population, cohort, replace=False)) for _ in range(rounds)]
        assert drawn_too_evenly(some, population, cohort, "without_replacement") == ""


def test_clients_in_turn_prove_nothing_as_drawn_ones(tmp_path):
    noise = Gaussian(1.0, 1.0, by="server", on="sum", sampling=Sampling("poisson", 20, 5))
    with Recorder(tmp_path / "s", START, mechanism=noise, average="mean") as rec:
        for t in range(12):
            rec.broadcast(t, START)
            for i in range(5):
                rec.upload(t, (5 * t + i) % 20, torch.zeros(300), num_examples=5)
    assert sampling(tmp_path / "s")[0] == "contradicted"
    assert all(r.proven == inf for r in table(tmp_path / "s").rows if r.unit == "client")


def priced(folder, told, population=20, batch=2, steps=1) -> float:
    """ε per record towards the server, of DP-SGD at one client, which says of each upload how many records it was."""
    lot = Sampling("poisson", population, batch, unit="record")
    with Recorder(folder, START, mechanism=Gaussian(1.0, 1.0, of="record", steps=steps, sampling=lot)) as rec:
        for t, count in enumerate(told):
            rec.broadcast(t, START)
            rec.upload(t, 0, torch.full((300,), 0.01), num_examples=count)
        rec.broadcast(len(told), START)
    rows = table(folder, observers=["server"], unit="record", adjacency="zero_out").rows
    return rows[0].proven or 0.0


@pytest.mark.full
def test_a_count_that_the_coins_drew_shows_the_draw(tmp_path):
    """20 records, coins of a tenth: 2.36 was printed, and who sees (K, value) has 2.99 at least. All K are likely."""
    size, drawn = (priced(tmp_path / name, told) for name, told in (("size", [20] * 5), ("drawn", [2, 4, 1, 3, 2])))
    assert size == pytest.approx(2.3531, rel=0.01) and drawn >= 2.994
    assert priced(tmp_path / "steps", [5, 7, 6], steps=3) == pytest.approx(gaussian_epsilon(1 / 3, 1e-5))


@pytest.mark.full
@pytest.mark.parametrize("told", [[2, 20, 2, 20, 2], [2] * 5], ids=["twice", "by chance the same"])
def test_so_does_one_of_some_rounds_or_one_that_never_changed(told, tmp_path):
    assert priced(tmp_path, told) >= 2.994
