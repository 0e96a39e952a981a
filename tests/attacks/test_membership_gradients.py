"""Inner products and norms of candidates' gradients against gradients formed one by one."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.membership import gradients
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.losses import loss_of
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Normalise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.3))
        self.register_buffer("std", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Recurrent(nn.Module):
    """For which torch has neither a forward mode on oneDNN nor a batching rule."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lstm(x.flatten(2))[0][:, -1])


NETWORKS = {
    "lstm": Recurrent,
    "mlp": lambda: nn.Sequential(
        Normalise(), nn.Flatten(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
    ),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)),
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 3)),
    "cnn": lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3)),
}


def one_by_one(module: nn.Module, weights: Tensor, inputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    """Gradients (n, d), each by its own backward pass."""
    layout, rows = Layout.of(module), []
    for x, y in zip(inputs, targets):
        named = {name: value.clone().requires_grad_() for name, value in layout.split(weights).items()}
        value = loss_of(loss).values(functional_call(module, named, (x[None],)), y[None]).sum()
        rows.append(layout.join(dict(zip(named, torch.autograd.grad(value, list(named.values()))))))
    return torch.stack(rows)


@pytest.mark.parametrize("chunk", [2**24, 40])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_equal_gradients_formed_one_by_one(
    network: str, loss: str, dtype: torch.dtype, tolerance: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "CHUNK_NUMBERS", chunk)
    rng = torch.Generator().manual_seed(0)
    module = NETWORKS[network]()
    dim = Layout.of(module).dim
    weights, direction = (torch.randn(dim, generator=rng, dtype=torch.float64).to(dtype) for _ in range(2))
    inputs, targets = torch.rand(13, 2, 2, 2, generator=rng), torch.arange(13) % 3
    each = one_by_one(module.to(dtype), weights, inputs.to(dtype), targets, loss)
    module.float()
    products = gradients.inner_products(module, weights, direction, inputs, targets, loss)
    norms = gradients.squared_norms(module, weights, inputs, targets, loss)
    scale = each.norm(dim=1) * direction.norm()
    assert ((products - each @ direction).abs() / scale).max() < tolerance
    assert (norms / each.square().sum(1) - 1).abs().max() < 3 * tolerance


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\), expected \(27,\)"):
        gradients.squared_norms(
            NETWORKS["logistic"](), torch.zeros(4), torch.zeros(1, 8), torch.zeros(1, dtype=torch.long)
        )


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_all_candidates_are_asked_in_one_forward_pass(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many candidates there are, the network runs once, and nothing runs backward."""
    calls = []

    def counted(*arguments):
        calls.append(1)
        return functional_call(*arguments)

    def refused(*_, **__):
        raise AssertionError("a backward pass")

    monkeypatch.setattr(gradients, "functional_call", counted)
    monkeypatch.setattr(torch.autograd, "grad", refused)
    monkeypatch.setattr(torch.Tensor, "backward", refused)
    module = NETWORKS[network]()
    weights = torch.randn(Layout.of(module).dim)
    for n in (1, 500):
        calls.clear()
        found = gradients.inner_products(module, weights, weights, torch.rand(n, 2, 2, 2), torch.arange(n) % 3)
        assert found.shape == (n,) and len(calls) == 1


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        ("cross_entropy", torch.randint(0, 3, (4, 5, 5), generator=torch.Generator().manual_seed(1))),
        ("bce_with_logits", torch.ones(4, 3, 5, 5)),
        ("squared_error", torch.linspace(-1, 1, 300).view(4, 3, 5, 5)),
    ],
)
def test_products_of_records_with_a_target_for_each_pixel(loss, targets):
    torch.manual_seed(0)
    module = nn.Conv2d(1, 3, 3, padding=1).double()
    weights, inputs = Layout.of(module).join(dict(module.named_parameters())).detach(), torch.rand(4, 1, 5, 5).double()
    along, rows = torch.randn(len(weights)).double(), range(4)
    found = gradients.inner_products(module, weights, along, inputs, targets, loss)
    each = [
        torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss_of(loss).mean(module(x), y), list(module.parameters()))]
        )
        for x, y in ((inputs[i : i + 1], targets[i : i + 1]) for i in rows)
    ]
    torch.testing.assert_close(found, torch.stack(each) @ along)
    norms = gradients.squared_norms(module, weights, inputs, targets, loss)
    torch.testing.assert_close(norms, torch.stack(each).square().sum(1))


def test_of_linear_layers_no_gradient_is_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy whose parameters were frozen was no chain any more, and every gradient was formed: ten times as slow."""
    module = NETWORKS["mlp"]()
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(Layout.of(module).dim, generator=rng)
    inputs, targets = torch.rand(6, 2, 2, 2, generator=rng), torch.arange(6) % 3
    each = one_by_one(module, weights, inputs, targets, "cross_entropy")
    monkeypatch.delattr(gradients, "_gradients")
    torch.testing.assert_close(gradients.squared_norms(module, weights, inputs, targets), each.square().sum(1))
    torch.testing.assert_close(gradients.gram(module, weights, inputs, targets), each @ each.T)


class Written(TorchDispatchMode):
    """How many numbers torch's operations give."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.numbers += sum(t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor))
        return result


def test_a_gradient_is_written_a_few_times_and_not_once_for_each_parameter():
    """Of a ResNet-18 it was once for each of 62 parameters: 3.3 CPU seconds a record and not 0.04."""
    layers = [layer for _ in range(30) for layer in (nn.Conv1d(8, 8, 1), nn.Tanh())]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 2))
    layout = Layout.of(module)
    weights, inputs = torch.randn(layout.dim) / 4, torch.rand(3, 8, 2)
    with Written() as written:
        gradients.squared_norms(module, weights, inputs, torch.tensor([0, 1, 1]))
    assert written.numbers < 20 * len(inputs) * layout.dim
