"""The pictures of a message before its own line-up, beside those of other messages before it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from dpfl_audit.metrics.swapped_test import least_swapped, swapped_p_value


@pytest.mark.parametrize("easy", [0.05, 0.3, 0.9])
def test_pictures_that_know_nothing_seldom_pass_however_easy_the_line_ups_are(easy):
    """A picture picks a message's image as often as any other message's picture does, up to nine times in ten."""
    rng, runs, alarms = np.random.default_rng(0), 400, 0
    for run in range(runs):
        of_message, of_picture = rng.random((12, 1)), rng.random((1, 12))  # some line-ups, some pictures do better
        hits = (rng.random((12, 12)) < easy * 2 * (of_message + of_picture) / 2).astype("float32")
        alarms += swapped_p_value(torch.from_numpy(hits), [1] * 12, seed=run, swaps=399) <= 0.05
    assert alarms / runs <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5


def test_it_is_the_share_of_all_swaps_that_do_as_well():
    """Of five messages all 120 ways are counted, but for those between messages that are not alike."""
    hits = torch.from_numpy(np.random.default_rng(1).integers(0, 3, (5, 5)).astype("float32"))
    for alike in ([1] * 5, [1, 1, 1, 2, 2]):
        ways = [p for p in permutations(range(5)) if all(alike[i] == alike[j] for i, j in enumerate(p))]
        share = np.mean([sum(hits[i, j] for i, j in enumerate(p)) >= hits.diagonal().sum() for p in ways])
        assert swapped_p_value(hits, alike, swaps=20_000) == pytest.approx(float(share), abs=0.015)
        assert least_swapped(alike) == pytest.approx(1 / len(ways))


def test_eleven_of_fifteen_are_no_luck_where_other_messages_pictures_have_one_or_none():
    hits = torch.zeros(15, 15)
    hits[range(11), range(11)], hits[3, 7], hits[12, 2] = 1, 1, 1
    assert swapped_p_value(hits, [1] * 15) == 1e-4
