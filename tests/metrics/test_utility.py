"""Accuracy by hand."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.metrics.utility import accuracy


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
