"""Accuracy by hand."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.metrics.utility import accuracy, majority_accuracy


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
