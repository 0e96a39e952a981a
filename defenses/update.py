"""How a merged value changes the model. State that lasts over rounds goes in and comes out by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .nearest import instead
from .schedule import RoundPlan

KeptTensors = Mapping[str, Tensor]


class Update(Protocol):
    def __call__(
        self, model: Tensor, merged: Tensor, state: KeptTensors, plan: RoundPlan
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The new model (d,) and the state to keep."""
        ...


@dataclass(frozen=True)
class Add:
    """FedAvg on updates: w ← w + merged (McMahan et al. 2017)."""

    def __call__(
        self, model: Tensor, merged: Tensor, state: KeptTensors, plan: RoundPlan
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return model + merged, {}


@dataclass(frozen=True)
class AddWithMomentum:
    """V ← βV + merged, w ← w + lr·V (Hsu et al. 2019, arXiv:1909.06335), V kept as "velocity".

    Sums of increments are follow-the-regularised-leader: without momentum w_t = w_0 + lr·Σ merged (arXiv:2103.00039,
    Alg. 1), with momentum its section 3.1, where V is one of prefix sums.
    """

    lr: float
    momentum: float = 0.0

    def __call__(
        self, model: Tensor, merged: Tensor, state: KeptTensors, plan: RoundPlan
    ) -> tuple[Tensor, dict[str, Tensor]]:
        velocity = merged + self.momentum * state["velocity"] if "velocity" in state else merged
        kept = {"velocity": velocity} if self.momentum else {}
        return model + self.lr * plan.lr * velocity, kept


@dataclass(frozen=True)
class Replace:
    """FedAvg on weights: w ← merged."""

    def __call__(
        self, model: Tensor, merged: Tensor, state: KeptTensors, plan: RoundPlan
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return merged.clone(), {}


@dataclass(frozen=True)
class Optimise:
    """FedSGD: the merged gradient drives an optimiser on the server.

    optimiser: sgd, momentum, adam or rmsprop, with torch's formulas.
    """

    optimiser: str
    lr: float
    momentum: float = 0.9

    def __call__(
        self, model: Tensor, merged: Tensor, state: KeptTensors, plan: RoundPlan
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weights = model.clone().requires_grad_()
        weights.grad = merged.to(model.dtype)
        optimiser = make_optimiser(self.optimiser, [weights], self.lr * plan.lr, self.momentum)
        mine = {name.removeprefix(PREFIX): value.clone() for name, value in state.items() if name.startswith(PREFIX)}
        if mine:
            optimiser.state[weights] = mine
        optimiser.step()
        kept = {
            PREFIX + k: v.detach().clone() for k, v in optimiser.state[weights].items() if isinstance(v, torch.Tensor)
        }
        return weights.detach(), kept


def make_optimiser(
    name: str, weights: list[Tensor], lr: float, momentum: float, smoothing: float = 0.99, fused: bool = False
) -> torch.optim.Optimizer:
    """torch's optimiser by our name; the one place that names are translated.

    Args:
        name: in `OPTIMISERS`. weights: what it updates. lr: the learning rate.
        momentum: for "momentum" alone. smoothing: RMSprop's γ. fused: torch's fused kernel, where there is one.

    Raises:
        ValueError: an unknown name.
    """
    match name:
        case "sgd":
            return torch.optim.SGD(weights, lr=lr, fused=fused or None)
        case "momentum":
            return torch.optim.SGD(weights, lr=lr, momentum=momentum, fused=fused or None)
        case "adam":
            return torch.optim.Adam(weights, lr=lr, fused=fused or None)
        case "rmsprop":
            return torch.optim.RMSprop(weights, lr=lr, alpha=smoothing)
    raise ValueError(f"unknown optimiser {name!r}{instead(name, OPTIMISERS)}")


PREFIX = "optimiser."  # a party's kept tensors are shared with the steps of its scheme

OPTIMISERS = ("sgd", "momentum", "adam", "rmsprop")
