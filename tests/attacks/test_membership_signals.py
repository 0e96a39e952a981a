"""Signals of models on records: right by hand, the same for many models at once as for one after another."""

from __future__ import annotations

import math

import pytest
import torch
from dpfl_audit.attacks.membership import signals
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.losses import loss_of
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))


def lstm() -> nn.Module:
    class Lines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.last = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.lstm(x)[0][:, -1])

    return Lines()


def many(module: nn.Module, count: int) -> Tensor:
    return torch.randn(count, Layout.of(module).dim, generator=torch.Generator().manual_seed(1))


def test_phi_by_hand() -> None:
    outputs = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64)
    assert signals.phi(outputs, torch.tensor([0])).item() == pytest.approx(2 - math.log(math.e + 1), abs=1e-12)


def test_signals_agree_with_probabilities() -> None:
    outputs = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.arange(50) % 4
    p = outputs.softmax(1)[torch.arange(50), targets]
    torch.testing.assert_close(signals.confidence(outputs, targets), p)
    torch.testing.assert_close(signals.phi(outputs, targets), (p / (1 - p)).log())
    torch.testing.assert_close(
        signals.cross_entropy(outputs, targets), F.cross_entropy(outputs, targets, reduction="none")
    )
    torch.testing.assert_close(signals.probabilities(outputs, targets), outputs.softmax(1))


def test_records_fitted_beyond_rounding_are_still_told_apart() -> None:
    outputs = torch.tensor([[50.0, 0.0], [60.0, 0.0]], dtype=torch.float64)
    losses = signals.cross_entropy(outputs, torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(losses, torch.tensor([-50.0, -60.0], dtype=torch.float64).exp())


def test_regression_has_a_loss_and_nothing_else() -> None:
    outputs, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])
    assert signals.loss_signal(loss_of("squared_error"))(outputs, targets).tolist() == [0.5, 2.0]
    for signal in (signals.phi, signals.confidence, signals.probabilities):
        with pytest.raises(ValueError, match="needs class labels"):
            signal(outputs, targets)


def test_a_single_score_for_two_classes_has_a_hinge_loss_and_a_margin() -> None:
    """The margin is φ of the logits (0, z)."""
    scores, targets = torch.tensor([[2.0], [0.5], [0.5]], dtype=torch.float64), torch.tensor([1, 1, 0])
    assert signals.loss_signal(loss_of("hinge"))(scores, targets).tolist() == [0.0, 0.5, 1.5]
    logits = torch.cat([torch.zeros_like(scores), scores], 1)
    torch.testing.assert_close(signals.phi(scores, targets), signals.phi(logits, targets))


@pytest.mark.parametrize(("make", "shape"), [(mlp, (6,)), (cnn, (1, 3, 2)), (lstm, (3, 2))])
@pytest.mark.parametrize("chunk", [2**24, 64])
def test_many_models_equal_one_after_another(
    make, shape: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "CHUNK_NUMBERS", chunk)
    module, weights = make(), many(make(), 7)
    inputs, targets = torch.rand(20, *shape, generator=torch.Generator().manual_seed(2)), torch.arange(20) % 3
    layout = Layout.of(module)
    expected = torch.stack(
        [signals.phi(functional_call(module, layout.split(w), (inputs,)).detach().double(), targets) for w in weights]
    )
    torch.testing.assert_close(
        signals.of_models(signals.phi, module, weights, inputs, targets), expected, atol=1e-4, rtol=1e-5
    )
    torch.testing.assert_close(
        signals.of_model(signals.phi, module, weights[3], inputs, targets), expected[3], atol=1e-4, rtol=1e-5
    )
    assert signals.of_models(signals.probabilities, module, weights, inputs, targets).shape == (7, 20, 3)


def test_models_are_asked_in_evaluation_mode_and_left_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)).train()
    weights, inputs, targets = many(module, 2), torch.rand(30, 6), torch.arange(30) % 3
    first, second = (signals.of_models(signals.cross_entropy, module, weights, inputs, targets) for _ in range(2))
    assert torch.equal(first, second)
    assert module.training


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 5\), expected \(models, 53\)"):
        signals.of_models(
            signals.cross_entropy, mlp(), torch.zeros(2, 5), torch.zeros(1, 6), torch.zeros(1, dtype=torch.long)
        )
