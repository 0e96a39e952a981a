"""Records change places with each other: exact by enumeration, right in null worlds, and what is there is found."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from dpfl_audit.metrics.closer_test import closeness_by_record
from dpfl_audit.metrics.image import psnr
from dpfl_audit.metrics.pool_test import Rebuilt
from dpfl_audit.metrics.reidentification import picked_from_pool
from dpfl_audit.metrics.swapped_test import hits_of_records, least_swapped, swapped_p_value
from torch import Tensor


def images(count: int, seed: int) -> Tensor:
    return torch.rand(count, 1, 5, 5, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("easy", [0.05, 0.3, 0.9])
def test_pictures_that_know_nothing_seldom_pass_however_easy_the_line_ups_are(easy: float) -> None:
    """A record is picked as often by any other record's pictures, up to nine times in ten."""
    rng, runs, alarms = np.random.default_rng(0), 200, 0
    for run in range(runs):
        of_record, of_picture = rng.random((12, 1)), rng.random((1, 12))  # some line-ups, some pictures do better
        hits = (rng.random((12, 12)) < easy * (of_record + of_picture)).astype("float32")
        alarms += swapped_p_value([torch.from_numpy(hits)], seed=run, swaps=399) <= 0.05
    assert alarms / runs <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5


def test_it_is_the_share_of_all_ways_that_do_as_well() -> None:
    counted = torch.from_numpy(np.random.default_rng(1).integers(0, 3, (5, 5)).astype("float32"))
    ways = list(permutations(range(5)))
    share = np.mean([sum(counted[i, j] for i, j in enumerate(p)) >= counted.diagonal().sum() for p in ways])
    assert swapped_p_value([counted], swaps=20_000) == pytest.approx(float(share), abs=0.015)
    assert least_swapped([torch.arange(5)], [torch.arange(5)]) == pytest.approx(1 / len(ways))


def test_as_many_records_as_a_hospital_has_are_counted_without_an_overflow() -> None:
    """170! is the largest factorial of a float; `audit choose` on 400 records a client ended in an OverflowError. All
    copies of one record but one: 400 places for it, so 1/400; six such blocks are below what 9,999 swaps can show.
    """
    every, alike = torch.arange(400), (torch.arange(400) == 0).long()
    assert least_swapped([alike], [every]) == 1 / 400
    assert least_swapped([alike] * 6, [every] * 6) == 1e-4 == least_swapped([every], [every])
    assert least_swapped([every], [torch.zeros(400)]) == 1.0


def test_records_of_the_same_messages_cannot_be_told_by_changing_places() -> None:
    """Rows are equal there: every way has the same sum, and p is 1 whatever came back."""
    counted = torch.rand(1, 6).expand(6, 6)
    assert swapped_p_value([counted]) == 1.0
    assert least_swapped([torch.arange(6)], [torch.zeros(6)]) == 1.0
    assert least_swapped([torch.arange(4)], [torch.tensor([0, 0, 1, 1])]) == pytest.approx(4 / 24)


def test_eleven_of_fifteen_are_no_luck_where_other_records_pictures_have_one_or_none() -> None:
    hits = torch.zeros(15, 15)
    hits[range(11), range(11)], hits[3, 7], hits[12, 2] = 1, 1, 1
    assert swapped_p_value([hits]) == 1e-4


def test_what_is_counted_for_a_record_is_what_each_message_says_by_itself() -> None:
    """Three messages, two over the same record; one record is sent twice, one has no other image of its label."""
    originals, others = images(4, 0), images(9, 1)
    labels, of_others = torch.tensor([0, 0, 1, 2]), torch.arange(9) % 2
    messages = [
        Rebuilt([0, 1], torch.cat([originals[1:2] * 0.7, images(1, 2)])),
        Rebuilt([1, 2], images(2, 3)),
        Rebuilt([3], originals[3:] * 0.5),
    ]
    hits, close = (
        hits_of_records(originals, labels, messages, others, of_others),
        closeness_by_record(messages, 4, originals),
    )
    for r in range(4):
        for s in range(4):
            own = [message.images for message in messages if r in message.records]
            found = [picked_from_pool(originals[s : s + 1], labels[s : s + 1], m, others, of_others) for m in own]
            expected = [one.hits if one is not None else 1 for one in found]  # nothing to be told from
            assert hits[r, s] == sum(expected)
            nearest = [max(float(psnr(one[None], originals[s : s + 1])) for one in m) for m in own]
            assert float(close[r, s]) == pytest.approx(sum(nearest), abs=1e-4)
    assert hits[0, 1] == 1 and hits[0, 0] == 0 and hits[1, 1] >= 1 and hits[3, 3] == 1
