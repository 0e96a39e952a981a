"""Rebuilt images against their pools: exact by enumeration, right in null worlds, and what is there is found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
import torch
from dpfl_audit.metrics import pool_test
from dpfl_audit.metrics.pool_test import Rebuilt, least_p_value, p_value_of_draws, pool_p_value
from tiers import quick
from torch import Tensor


def images(count: int, seed: int) -> Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def by_enumeration(originals: Tensor, messages: Sequence[Rebuilt], pool: Tensor) -> float:
    """The share of all orders of the images with as many hits, one at a time."""
    every = torch.cat([originals, pool])

    def hits(order: Sequence[int]) -> int:
        found = 0
        for message in messages:
            for record in message.records:
                own, others = every[order[record]], [every[j] for j in order[len(originals) :]]
                found += any(
                    correlation(image, own) > max(correlation(image, other) for other in others)
                    for image in message.images
                )
        return found

    orders = list(permutations(range(len(every))))
    return sum(hits(order) >= hits(orders[0]) for order in orders) / len(orders)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_the_p_value_is_the_share_of_relabellings_that_do_as_well(seed: int) -> None:
    """Two messages share a record; one of them has two images. Drawn 9,999 times, or until 20 do as well."""
    originals, pool = images(3, seed), images(2, seed + 100)
    messages = [Rebuilt([0, 1], images(2, seed + 200)), Rebuilt([1, 2], originals[2:] * 0.5 + 0.1)]
    exact = by_enumeration(originals, messages, pool)
    labels = torch.zeros(3), torch.zeros(2)
    found = [pool_p_value(originals, labels[0], messages, pool, labels[1], seed=s) for s in range(30)]
    assert sum(found) / 30 == pytest.approx(exact, rel=0.12)


@pytest.mark.parametrize("made", quick(["one picture of all", "each its own"], 1))
def test_images_made_without_the_records_are_seldom_called_a_leak(made: str) -> None:
    """Forty messages of one record, all of one label and beside a small pool, whose hits hang together: a binomial of
    the same chance rejects 13 % at 5 % where one picture is made for all: C(40, 9)/C(49, 9).
    """
    worlds, below = 60, {0.05: 0, 0.01: 0}
    for world in range(worlds):
        originals, pool = images(40, world), images(9, world + 1000)
        guess = images(1, world + 2000) if made == "one picture of all" else images(40, world + 2000)
        messages = [Rebuilt([i], guess[i % len(guess)][None]) for i in range(40)]
        p = pool_p_value(originals, torch.zeros(40), messages, pool, torch.zeros(9), seed=world)
        assert p is not None
        for level in below:
            below[level] += p <= level
    assert all(found <= level * worlds + 3 * (level * (1 - level) * worlds) ** 0.5 for level, found in below.items())


def test_some_messages_that_came_back_are_found_among_those_that_did_not() -> None:
    """Twelve of twenty, each of one record beside thirty others (found by a review: called "none found")."""
    originals, pool = images(20, 0), images(30, 1)
    made = [originals[i] if i < 12 else images(1, 50 + i)[0] for i in range(20)]
    messages = [Rebuilt([i], image[None]) for i, image in enumerate(made)]
    assert pool_p_value(originals, torch.zeros(20), messages, pool, torch.zeros(30)) == 1 / 10_000


@pytest.mark.full
def test_copies_of_records_hide_no_leak_and_raise_no_alarm() -> None:
    """Of a data set with each record four times fifteen came back, and none was "picked": its copy was a rival."""
    kinds, of_kind = images(30, 3), torch.arange(30).repeat(4)
    alarms, worlds = 0, 150
    for world in range(worlds):
        order = torch.randperm(120, generator=torch.Generator().manual_seed(world))
        sent, left = order[:15], order[15:70]
        labels = torch.zeros(15), torch.zeros(55)
        guess = [Rebuilt([i], images(1, 500 + 15 * world + i)) for i in range(15)]
        p = pool_p_value(kinds[of_kind[sent]], labels[0], guess, kinds[of_kind[left]], labels[1], seed=world)
        alarms += p is not None and p <= 0.05
        back = [Rebuilt([i], kinds[of_kind[place]][None]) for i, place in enumerate(sent)]
        if world < 3:
            assert pool_p_value(kinds[of_kind[sent]], labels[0], back, kinds[of_kind[left]], labels[1]) == 1 / 10_000
    assert alarms <= 0.05 * worlds + 3 * (0.05 * 0.95 * worlds) ** 0.5


def test_what_copies_leave_to_tell_is_the_least_p_value() -> None:
    """One record, and three of its five places are its copies: three relabellings of five do as well."""
    picture, pool, labels = images(1, 0), images(4, 1), torch.zeros(5)
    pool[:2] = picture
    assert least_p_value(picture, labels[:1], pool, labels[1:]) == 3 / 5
    found = [pool_p_value(picture, labels[:1], [Rebuilt([0], picture)], pool, labels[1:], seed=s) for s in range(20)]
    assert sum(p or 0.0 for p in found) / 20 == pytest.approx(3 / 5, abs=0.1)


def test_labels_stand_apart_and_a_flat_image_finds_nothing() -> None:
    originals, pool = images(4, 0), images(6, 1)
    labels, pool_labels = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 1])
    assert pool_p_value(originals, labels, [Rebuilt([0], torch.full((1, 1, 4, 4), 0.5))], pool, pool_labels) == 1.0
    assert pool_p_value(originals[3:], labels[3:], [Rebuilt([0], originals[3:])], pool, pool_labels) is None
    # One of label 1 beside three others: one relabelling in four does as well.
    p = pool_p_value(originals[2:3], labels[2:3], [Rebuilt([0], originals[2:3])], pool, pool_labels, permutations=999)
    assert p == pytest.approx(0.25, abs=0.12)


@pytest.mark.parametrize("seed", range(3))
def test_where_all_would_cost_too_much_messages_are_drawn_whatever_came_of_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the first ones: a review hid the leak behind these, and nothing was found."""
    originals, pool = images(40, 0), images(30, 1)
    messages = [Rebuilt([i], images(1, 99 + i) if i < 16 else originals[i][None]) for i in range(40)]
    monkeypatch.setattr(pool_test, "WORK", 999 * (12 + 12 + 30))
    lots = pool_test._affordable(messages, 1, 30, 999, seed)
    assert len(lots) == 12 and list(lots) != messages[:12]
    nothing = [Rebuilt([i], images(1, 0)) for i in range(40)]
    assert [m.records for m in lots] == [m.records for m in pool_test._affordable(nothing, 1, 30, 999, seed)]
    assert pool_p_value(originals, torch.zeros(40), messages, pool, torch.zeros(30), seed, 999) == 0.001


def test_drawing_ends_where_luck_explains_it_and_goes_on_where_it_does_not() -> None:
    """A p-value near one took all 200,000 draws of hundreds of records: minutes of scoring a setting."""
    rng, counts = torch.Generator().manual_seed(0), []

    def drawn(count: int) -> Tensor:
        counts.append(count)
        return torch.rand(count, generator=rng)

    assert p_value_of_draws(drawn, 0.5, 200_000, 1_000) == pytest.approx(0.5, rel=0.4) and sum(counts) == 100
    counts.clear()
    assert p_value_of_draws(drawn, 2.0, 20_000, 1_000) == 1 / 20_001 and sum(counts) == 20_000
    alarms = sum(p_value_of_draws(drawn, float(drawn(1)), 999, 100) <= 0.05 for _ in range(2_000)) / 2_000
    assert 0.02 < alarms <= 0.05 + 3 * (0.05 * 0.95 / 2_000) ** 0.5
