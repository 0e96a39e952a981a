"""Kernels of torch that inversions ask for: float32 in full, and attention that can be differentiated twice."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.search import PixelDescent
from dpfl_audit.attacks.inversion.strategies.strategy import Found
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N = (1, 8, 8), 2


class Attention(nn.Module):
    """Four patches that attend to each other: by products where their weights are asked for, else torch's fast way."""

    def __init__(self, by_products: bool) -> None:
        super().__init__()
        self.patches, self.end = nn.Conv2d(1, 8, 4, stride=4), nn.Linear(8, 4)
        self.attention, self.by_products = nn.MultiheadAttention(8, 2, batch_first=True), by_products

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        return self.end(self.attention(x, x, x, need_weights=self.by_products)[0].mean(1))


def attending(by_products: bool) -> tuple[nn.Module, Target]:
    torch.manual_seed(0)
    module, labels = Attention(by_products).eval(), torch.tensor([0, 1])
    images = torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(1))
    gradient = torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    return module, Target("t", weights, torch.cat([g.flatten() for g in gradient]), labels, N)


def test_attention_is_differentiated_twice() -> None:
    """torch's fast kernels of attention have no second derivative."""
    settings = Inversion(objective="euclidean", iterations=8, tv=0.0)
    fast, slow = (
        solve(module, [target], SHAPE, settings, 0)[0] for module, target in (attending(False), attending(True))
    )
    assert fast.loss == pytest.approx(slow.loss, rel=1e-3)


def test_convolutions_are_of_whole_float32_and_what_a_caller_chose_comes_back(monkeypatch) -> None:
    """By default cuDNN takes ten bits of every number: a gradient would be told to 1e-3, not 1e-7."""
    cudnn, seen = torch.backends.cudnn, []

    def read(self, cases, found, work) -> list[Found]:
        seen.append((cudnn.allow_tf32, cudnn.deterministic))
        return search(self, cases, found, work)

    search = PixelDescent.solve
    monkeypatch.setattr(PixelDescent, "solve", read)
    module, target = attending(True)
    for chosen in (True, False):
        with cudnn.flags(enabled=True, deterministic=chosen, allow_tf32=chosen):
            solve(module, [target], SHAPE, Inversion(iterations=1), 0)
            assert (cudnn.allow_tf32, cudnn.deterministic) == (chosen, chosen)
    assert seen == [(False, True), (False, False)]
