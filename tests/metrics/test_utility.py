"""Accuracy and loss by hand, and the same in batches as at once."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.metrics.utility import accuracy, loss_and_accuracy
from torch.nn.functional import cross_entropy, mse_loss


def test_evaluate_does_not_depend_on_the_batch_size():
    rng = torch.Generator().manual_seed(0)
    model, x, y = torch.nn.Linear(4, 3), torch.randn(101, 4, generator=rng), torch.randint(3, (101,), generator=rng)
    loss, share = loss_and_accuracy(model, x, y, batch_size=7)
    assert loss == pytest.approx(cross_entropy(model(x), y).item(), abs=1e-6)
    assert share == accuracy(model(x), y) == pytest.approx((model(x).argmax(1) == y).float().mean().item())


def test_regression_has_a_loss_and_no_accuracy():
    assert loss_and_accuracy(lambda x: x, torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]), mse_loss) == (2.0, None)


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError):
        accuracy(torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(ValueError):
        loss_and_accuracy(lambda x: x, torch.zeros(3, 2), torch.zeros(2))
