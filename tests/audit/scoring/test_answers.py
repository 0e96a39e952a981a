"""What all messages of an attack say together, in worlds whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dpfl_audit.audit.judge.judgement import AuditEvidence, judge
from dpfl_audit.audit.results.checks import checks, rebuilt_together
from dpfl_audit.audit.results.format import AttackResult, Metrics
from dpfl_audit.audit.scoring.answers import Lots, of_margins
from dpfl_audit.audit.scoring.line_ups import LineUps
from dpfl_audit.audit.scoring.questions import judged_together
from dpfl_audit.defenses.data.dataset import DEALT_BY_LOT
from dpfl_audit.metrics.intervals import clopper_pearson_interval, share_p_value
from dpfl_audit.metrics.reidentification import line_up
from tiers import quick

LABELS = 3


def images(n: int, seed: int, brighter: float = 0.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 5, 5, generator=rng) * (1 - brighter) + brighter


def world(
    seed: int, records: int = 16, left_over: int = 0, brighter: float = 0.0, others: int = 90, lot: str = ""
) -> Any:
    """Records of one client, and images of other splits, which may be brighter."""
    truth = SimpleNamespace(
        inputs=images(records, 3 * seed),
        targets=torch.arange(records) % LABELS,
        pool_inputs=images(left_over, 3 * seed + 1),
        pool_targets=torch.arange(left_over) % LABELS,
        gallery_inputs=images(others, 3 * seed + 2, brighter),
        gallery_targets=torch.arange(others) % LABELS,
        by_holder=None,
    )
    knowledge = SimpleNamespace(auxiliary_inputs=images(0, 0), auxiliary_targets=torch.zeros(0, dtype=torch.long))
    setup = SimpleNamespace(manifest=SimpleNamespace(data=SimpleNamespace(name="photos", description={"test": lot})))
    return LineUps(setup, truth, knowledge)  # type: ignore[arg-type]


def pictures(line_ups: Any, sent: Sequence[Sequence[int]], back: Sequence[int], seed: int) -> list[Any]:
    """Of each message: its records but for some noise, if it is one that came back; else of nothing, dark."""
    made = []
    for place, rows in enumerate(sent):
        picture = images(len(rows), 10_000 + 100 * seed + place) * 0.8
        if place in back:
            picture = line_ups.truth.inputs[list(rows)] + 0.1 * (picture - 0.5)
        made.append(SimpleNamespace(images=picture, message_ids=(str(place),), sender="a"))
    return made


def judged(line_ups: Any, sent: Sequence[Sequence[int]], made: Sequence[Any], others: int = 0) -> list[AttackResult]:
    """The entries of such messages, with a margin of 5 dB where they were rebuilt."""
    entries = []
    for rows, one in zip(sent, made):
        beside, _ = line_ups.others(rows)
        found = line_up(line_ups.truth.inputs[list(rows)], beside).pick(one.images)
        alone = {"reidentified": share_p_value(found.hits, found.n, found.chance)}
        least = {"reidentified": share_p_value(found.n, found.n, found.chance)}
        numbers = {"reidentified": found.share, "reidentified_chance": found.chance, "exact": 0.0}
        entries.append(
            AttackResult(
                attack="inversion",
                observer="server",
                manner="one-round",
                round=len(entries),
                n=found.n,
                metrics=Metrics.of({**numbers, "psnr_margin": 5.0 if found.hits else -1.0}),
                intervals={"reidentified": clopper_pearson_interval(found.hits, found.n)},
                p_values=alone,
                least_p_values=least,
            )
        )
    truth = line_ups.truth
    truth.messages = {str(place): tuple(rows) for place, rows in enumerate(sent)}
    auditor: Any = SimpleNamespace(truth=truth, setup=SimpleNamespace(behind=lambda message: (message,)))
    return judged_together(entries, auditor, made, line_ups, Lots(others, 0))


def leaks(entries: Sequence[AttackResult]) -> bool:
    return any(check.beats for own in checks(entries, []) for check in own)


def apart(messages: int, each: int = 1) -> list[list[int]]:
    return [list(range(each * k, each * k + each)) for k in range(messages)]


# --- line-ups


@pytest.mark.parametrize(("back", "leak"), [(8, True), (0, False)])
def test_many_messages_do_not_drown_what_each_of_them_shows(back: int, leak: bool) -> None:
    """Each of many messages of two images was judged by itself among all others (a review's many2.py)."""
    line_ups, sent = world(0, records=40), apart(20, 2)
    entries = judged(line_ups, sent, pictures(line_ups, sent, range(back), 0), others=20)
    assert leaks(entries) is leak


@pytest.mark.parametrize(("back", "level"), [(20, "severe"), (8, "high"), (0, "none found")])
def test_messages_of_one_image_are_as_bad_as_one_message_of_many(back: int, level: str) -> None:
    """Twenty of twenty came back, a message each, and no message alone has a lower limit above 2.5 %: "moderate"."""
    line_ups, sent = world(1, records=20), apart(20)
    entries = judged(line_ups, sent, pictures(line_ups, sent, range(back), 1))
    found = judge(AuditEvidence(tuple(entries), ()))
    assert found.level == level
    if back == 20:
        together = {rebuilt_together(each.checks) for each in found.attacks}
        ((low, high),) = filter(None, together)
        assert (round(low, 3), high) == (0.832, 1.0)  # Clopper and Pearson's of 20 of 20


@pytest.mark.parametrize("brighter", quick([0.0, 0.6], 1))
def test_pictures_of_nothing_are_seldom_picked_though_other_splits_are_of_another_kind(brighter: float) -> None:
    alarms, worlds = 0, 20
    for seed in range(worlds):
        line_ups, sent = world(seed, brighter=brighter), apart(12)
        alarms += leaks(judged(line_ups, sent, pictures(line_ups, sent, (), seed)))
    assert alarms <= 0.05 * worlds + 3 * (0.05 * 0.95 * worlds) ** 0.5


@pytest.mark.parametrize(
    ("records", "back", "leak"), [(6, range(6, 30), True), (6, range(0), False), (4, range(6, 30), True)]
)
def test_records_that_come_again_count_each_time(records: int, back: Sequence[int], leak: bool) -> None:
    """Five epochs over six records, one a message; all but the first epoch came back, and only that one counted: "none
    found" (a review's shared.py).
    """
    line_ups, sent = world(3, records=records + 2), [[k % records] for k in range(30)]
    assert leaks(judged(line_ups, sent, pictures(line_ups, sent, back, 3))) is leak


@pytest.mark.parametrize("lot", [DEALT_BY_LOT, ""])
@pytest.mark.parametrize(("back", "leak"), [(True, True), (False, False)])
def test_messages_that_all_hold_the_same_records_are_told_by_other_splits(back: bool, leak: bool, lot: str) -> None:
    """Changing places changes nothing there, so p was 1, and with it that of all else: "none found" at z = 5 (a
    review's full.py).
    """
    line_ups, sent = world(6, records=12, lot=lot), [list(range(12))] * 6
    made = pictures(line_ups, sent, range(6) if back else (), 6)
    assert leaks(judged(line_ups, sent, made)) is leak


@pytest.mark.parametrize(("back", "leak"), [((0, 3), True), ((), False)])
def test_two_records_that_come_back_in_every_epoch_are_found(back: Sequence[int], leak: bool) -> None:
    """Two of eight records in each of four epochs: they counted once, as every record stays in its place: "none found"
    (a review's rec.py).
    """
    line_ups, sent = world(4, records=10), [[(k * 3 + k // 8) % 8] for k in range(32)]
    assert all(sorted(row for (row,) in sent[8 * e : 8 * e + 8]) == list(range(8)) for e in range(4))
    made = pictures(line_ups, sent, [i for i, (row,) in enumerate(sent) if row in back], 4)
    assert leaks(judged(line_ups, sent, made)) is leak


def test_four_of_forty_that_came_back_do_not_drown_in_slack() -> None:
    """A decibel of slack a message was more than what four pictures, 7 dB closer, bring together: "none found" (a
    review's sparse2.py).
    """
    line_ups, sent = world(5, records=40), apart(40)
    assert leaks(judged(line_ups, sent, pictures(line_ups, sent, range(4), 5)))


@pytest.mark.full
def test_pictures_of_nothing_are_seldom_told_apart_over_epochs() -> None:
    """Five epochs over nine records in an order of each epoch's own; a picture of nothing is the same in each epoch."""
    alarms, worlds = 0, 80
    for seed in range(worlds):
        line_ups, rng = world(seed, records=10), torch.Generator().manual_seed(seed)
        sent = [[int(row)] for _ in range(5) for row in torch.randperm(9, generator=rng)]
        made = pictures(line_ups, sent, (), seed)
        for i, one in enumerate(made):
            one.images = made[i % 9].images
        alarms += leaks(judged(line_ups, sent, made))
    assert alarms <= 0.05 * worlds + 3 * (0.05 * 0.95 * worlds) ** 0.5


# --- margins


def margins(line_ups: Any, sent: Sequence[Sequence[int]], back: Sequence[int], seed: int) -> Any:
    made = pictures(line_ups, sent, back, seed)
    return of_margins(list(zip(sent, made)), line_ups, Lots(2, seed))


@pytest.mark.parametrize(("left_over", "back"), [(0, 2), (0, 4), (40, 2)])
def test_a_few_messages_that_came_back_are_found(left_over: int, back: int) -> None:
    answer = margins(world(1, left_over=left_over), apart(12), range(back), 1)
    assert answer is not None and answer.p_value <= 0.025 and answer.least <= 1e-3


@pytest.mark.few(1)
@pytest.mark.parametrize(("left_over", "brighter"), [(0, 0.0), (0, 0.5), (40, 0.5)])
def test_pictures_of_nothing_are_no_closer_though_other_splits_are_of_another_kind(
    left_over: int, brighter: float
) -> None:
    """All twelve dark pictures are nearer to the clients' records than to the test split's, which is brighter."""
    alarms, worlds = 0, 30
    for seed in range(worlds):
        answer = margins(world(seed, left_over=left_over, brighter=brighter), apart(12), (), seed)
        alarms += answer is not None and answer.p_value <= 0.05
    assert alarms <= 0.05 * worlds + 3 * (0.05 * 0.95 * worlds) ** 0.5


def test_messages_over_the_same_records_are_asked_together() -> None:
    answer = margins(world(2, left_over=40), [list(range(6))] * 5, range(5), 2)
    assert answer is not None and answer.p_value <= 0.001
