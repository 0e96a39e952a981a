"""STOPGAP by the owner until helper's models.py lands (overwrite me)."""
from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

MODELS = {"mlp": "fully connected", "logistic": "one linear layer", "lenet": "sigmoid LeNet"}


class Normalise(nn.Module):
    def __init__(self, mean, std) -> None:
        super().__init__()
        shape = (-1, 1, 1) if True else (-1,)
        self.register_buffer("mean", torch.tensor(mean).view(shape), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean.to(x.dtype)) / self.std.to(x.dtype)


def build(name, *, input_shape, classes, mean, std, seed, allow=None, **options) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "mlp" or name == "logistic":
            widths = list(options.get("widths", [1024, 1024, 1024] if name == "mlp" else []))
            sizes = [prod(input_shape), *widths, classes]
            layers: list[nn.Module] = [Normalise(mean, std), nn.Flatten()]
            for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
                layers += [nn.Linear(a, b)] + ([nn.ReLU()] if i < len(sizes) - 2 else [])
            return nn.Sequential(*layers)
        raise ValueError(f"unknown model {name!r}; known are {', '.join(MODELS)}" + (" (pass --allow-model)" if ":" in name else ""))


def describe(module):
    return [str(m) for m in module.children()]
