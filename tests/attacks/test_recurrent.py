"""An LSTM's gradients by record, for which torch has neither a forward mode on oneDNN nor a batching rule."""

from __future__ import annotations

import torch
from dpfl_audit.attacks.membership import gradients, signals
from dpfl_audit.defenses.layout import Layout
from torch import nn
from torch.func import functional_call


class Lines(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.lstm(x)[0][:, -1])


def test_slopes_norms_and_losses_are_those_of_each_record_by_itself():
    module = Lines()
    layout = Layout.of(module)
    rng = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(5, 6, 4, generator=rng), torch.arange(5) % 2
    weights, direction = (torch.randn(layout.dim, generator=rng) for _ in range(2))
    expected = []
    for x, y in zip(inputs, targets):
        flat = weights.clone().requires_grad_()
        loss = nn.functional.cross_entropy(functional_call(module, layout.split(flat), (x[None],)), y[None])
        expected.append(torch.autograd.grad(loss, flat)[0])
    rows = torch.stack(expected)
    products = gradients.inner_products(module, weights, direction, inputs, targets)
    assert torch.allclose(products, rows @ direction, atol=1e-5)
    assert torch.allclose(gradients.squared_norms(module, weights, inputs, targets), rows.square().sum(1), atol=1e-5)
    several = signals.of_models(signals.cross_entropy, module, torch.stack([weights, direction]), inputs, targets)
    alone = signals.of_model(signals.cross_entropy, module, direction, inputs, targets)
    assert torch.equal(several[1], alone)
