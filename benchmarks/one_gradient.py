"""One gradient of a batch at a network's weights, noised: what several benchmarks attack."""

from __future__ import annotations

import torch
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.randomness import generator
from torch import Tensor, nn
from torch.nn import functional as F


def batch_of(inputs: Tensor, targets: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows by lot, and the images and labels there."""
    rows = torch.randperm(len(inputs), generator=generator(seed, "benchmark batch"))[:count]
    return rows, inputs[rows], targets[rows]


def gradient_of(module: nn.Module, images: Tensor, labels: Tensor, noise: float, seed: int, round: int = 0) -> Target:
    """The mean gradient, with noise of known size whose norm is so many times the gradient's, another every round."""
    weights = Layout.of(module).join({name: p.detach() for name, p in module.named_parameters()})
    found = torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))
    gradient = torch.cat([g.flatten() for g in found])
    std = noise * float(gradient.norm()) / len(gradient) ** 0.5
    of_round = (round,) if round else ()
    sent = gradient + std * torch.randn(len(gradient), generator=generator(seed, "benchmark noise", *of_round))
    return Target(f"benchmark{round or ''}", weights, sent, labels, len(images), noise_std=std)
