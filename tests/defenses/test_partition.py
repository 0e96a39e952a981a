"""Partitions are disjoint, of the asked size, and have the shape their name promises."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.defenses.data.partition import PARTITIONS, partition

TARGETS = torch.arange(1000) % 10
WRITERS = torch.arange(1000) // 40


def split(kind, clients=10, each=40, seed=0, **options):
    values = WRITERS if kind == "writer" else TARGETS
    return partition(kind, values, clients, each, torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_disjoint_in_range_of_the_asked_size_and_seeded(kind):
    held = split(kind)
    rows = torch.cat(held)
    assert (
        [len(h) for h in held] == [40] * 10
        and len(rows.unique()) == len(rows)
        and rows.min() >= 0
        and rows.max() < 1000
    )
    assert all(torch.equal(a, b) for a, b in zip(held, split(kind)))
    if kind != "sorted":
        assert not all(torch.equal(a, b) for a, b in zip(held, split(kind, seed=1)))


def test_everything_is_dealt_where_no_size_is_asked():
    assert len(torch.cat(partition("iid", TARGETS, 7, None, torch.Generator()))) == 7 * (1000 // 7)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_hold_exactly_k_classes(shards):
    held = partition("shards", TARGETS, 20, 50, torch.Generator().manual_seed(3), shards=shards)
    assert all(len(TARGETS[h].unique()) == shards for h in held)


MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_shards_of_everything_are_as_large_as_uneven_classes_allow():
    """THESIS 3.3.3: 200 shards of one class each. Of 300 images only 194 fit; 293 is the most that gives 200."""
    targets = torch.repeat_interleave(torch.arange(10), torch.tensor(MNIST_COUNTS))
    most = max(s for s in range(1, 301) if sum(min(100, n // s) for n in MNIST_COUNTS) >= 200)
    held = partition("shards", targets, 100, None, torch.Generator().manual_seed(0))
    assert sum(n // 300 for n in MNIST_COUNTS) == 194 and {len(h) for h in held} == {2 * most}
    assert all(torch.bincount(targets[h], minlength=10).sort().values[-2:].tolist() == [most, most] for h in held)
    assert len(torch.cat(held).unique()) == 200 * most


def test_writers_without_a_size_bring_all_they_have():
    writers = torch.repeat_interleave(torch.arange(4), torch.tensor([1, 5, 2, 9]))
    held = partition("writer", writers, 4, None, torch.Generator().manual_seed(0))
    assert [len(h) for h in held] == [1, 5, 2, 9] and torch.cat(held).tolist() == list(range(17))
    few = partition("writer", writers, 2, None, torch.Generator().manual_seed(0))
    assert all(len(writers[h].unique()) == 1 and len(h) == int((writers == writers[h[0]]).sum()) for h in few)


def test_dirichlet_goes_from_skewed_to_uniform():
    def spread(alpha):
        counts = torch.stack(
            [torch.bincount(TARGETS[h], minlength=10) for h in split("dirichlet", 5, 100, alpha=alpha)]
        )
        return counts.double().std(1).mean()

    assert spread(0.05) > 15 and spread(1000.0) < 5  # a uniform multinomial of 100 over 10 classes has std 3


def test_sorted_gives_ordered_pieces():
    held = split("sorted")
    assert all(TARGETS[a].max() <= TARGETS[b].min() for a, b in zip(held, held[1:]))


def test_writers_are_not_mixed():
    assert all(len(WRITERS[h].unique()) == 1 for h in split("writer"))


@pytest.mark.parametrize(
    ("kind", "clients", "each", "options", "words"),
    [
        ("iit", 1, 1, {}, "not a partition"),
        ("iid", 11, 100, {}, "ask for 1100"),
        ("shards", 2, 10, {"shards": 11}, "shards = 11"),
        ("dirichlet", 2, 10, {"alpha": 0}, "alpha"),
        ("writer", 20, 41, {}, "writers"),
        ("iid", 2, 2, {"alpha": 1}, "no option"),
        ("iid", 0, None, {}, "at least one"),
        ("shards", 2, None, {"shards": 0}, "shards = 0"),
        ("shards", 5000, None, {}, "5000 clients"),
        ("writer", 26, None, {}, "25 writers"),
    ],
)
def test_the_impossible_is_refused_in_one_sentence(kind, clients, each, options, words):
    with pytest.raises(ValueError, match=words) as error:
        split(kind, clients, each, **options)
    assert "\n" not in str(error.value)
