"""Accuracy by hand."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.metrics.utility import accuracy, area_under_roc, class_balanced_accuracy, majority_accuracy


def test_accuracy_is_the_share_of_right_answers():
    rng = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(101, 3, generator=rng), torch.randint(3, (101,), generator=rng)
    right = sum(int(row.argmax()) == int(target) for row, target in zip(outputs, targets))
    assert accuracy(outputs, targets) == right / 101
    assert accuracy(torch.eye(4), torch.arange(4)) == 1.0 and accuracy(torch.eye(4), torch.tensor([1, 2, 3, 0])) == 0.0


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError):
        accuracy(torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(ValueError):
        accuracy(torch.zeros(3, 1), torch.zeros(3))


def test_no_answer_that_looks_at_no_record_is_right_more_often_than_the_most_frequent_class():
    targets = torch.tensor([2, 0, 2, 2, 5, 0, 2])
    constant = [(targets == label).double().mean().item() for label in range(6)]
    assert majority_accuracy(targets) == pytest.approx(max(constant)) == pytest.approx(4 / 7)
    with pytest.raises(ValueError):
        majority_accuracy(targets[:0])


def test_balanced_accuracy_and_auc_are_those_of_their_definitions():
    rng = torch.Generator().manual_seed(0)
    targets = (torch.rand(200, generator=rng) < 0.2).long()
    scores = torch.randint(9, (200,), generator=rng) + targets  # with ties
    right = [float((scores[targets == k] > 4).long().eq(k).double().mean()) for k in (0, 1)]
    assert class_balanced_accuracy((scores > 4).long(), targets) == pytest.approx(sum(right) / 2)
    pairs = scores[targets == 1][:, None] - scores[targets == 0][None]
    assert area_under_roc(scores, targets) == pytest.approx(
        float((pairs > 0).double().mean() + (pairs == 0).double().mean() / 2)
    )
    assert (
        class_balanced_accuracy(torch.ones(200).long(), targets) == 0.5
        and area_under_roc(torch.ones(200), targets) == 0.5
    )
    assert area_under_roc(scores, torch.ones(200).long()) is None
