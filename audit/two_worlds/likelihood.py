"""Which of two worlds a noisy message comes from, for an attacker who knows what either would send but for the noise.

For noise of one size everywhere the statistic is ⟨m − v₀, v₁ − v₀⟩/(‖v₁ − v₀‖·std), up to a scale and an offset: N(0,
1) in world 0 and N(‖v₁ − v₀‖/std, 1) in world 1. In general it is the log-likelihood ratio of the messages seen, with
the noise's size measured on draws of the attacker's own, tensor by tensor: a layer without noise, or a noise scale that
depends on the data, shows by itself. Whatever the noise really is, the score is only a score: the bounds do not trust
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...defenses.steps.perturb import Mechanism

Deviations = NDArray[np.float64]  # (trials, parts + 1), against one world

_BLOCK = 1024  # float32 sums of this many numbers, then float64: exact to .01 over millions
_SAME = 4.0  # standard errors within which the two worlds' noise counts as of one size
_FLOOR = 1e-12  # of the largest variance; what stands for no noise at all


@dataclass(frozen=True, eq=False)
class Expected:
    """What one world sends but for the noise: centre (d,). shape: the noise's std as it is declared, a number or (d,);
    what it really is, a factor for each tensor, is measured.
    """

    centre: Tensor
    shape: float | Tensor = 1.0


def deviations(
    messages: Tensor, expected: Expected, sizes: Sequence[int], mechanism: Mechanism = "gaussian"
) -> Deviations:
    """How far messages (k, d) are from `expected`: Σ (r/shape)² over each tensor of `sizes` numbers.

    For Laplace it is Σ|r/shape|. The last column counts components that are finite where they should not be, or
    the other way round; others that are not finite are left out.
    """
    sums = _sums(messages - expected.centre, expected.shape, sizes, mechanism)
    odd = torch.zeros(len(messages), dtype=torch.float64)
    if not bool(sums.isfinite().all()):  # else every component is finite: looking at each takes a tenth of an audit
        residual = messages - expected.centre
        odd = (torch.isfinite(messages) != torch.isfinite(expected.centre)).sum(1).double()
        sums = _sums(torch.where(torch.isfinite(residual), residual, 0.0), expected.shape, sizes, mechanism)
    return torch.cat([sums, odd[:, None]], 1).numpy()


def _sums(residual: Tensor, shape: float | Tensor, sizes: Sequence[int], mechanism: Mechanism) -> Tensor:
    """(k, parts) of float64; `residual` (k, d) is used up."""
    scale = 1.0 if isinstance(shape, Tensor) else shape
    if isinstance(shape, Tensor):
        residual = residual / shape
    powers = residual.square_() if mechanism == "gaussian" else residual.abs_()
    scale = scale**2 if mechanism == "gaussian" else scale
    return torch.stack([_sum(part) / scale for part in powers.split(list(sizes), 1)], 1)


def _sum(values: Tensor) -> Tensor:
    """Row sums of (k, n) in blocks."""
    if values.shape[1] <= _BLOCK:
        return values.sum(1, dtype=torch.float64)
    values = F.pad(values, (0, -values.shape[1] % _BLOCK))
    return values.view(len(values), -1, _BLOCK).sum(-1).sum(-1, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """ln(P[message | canary] / P[message | none]), with the noise's size in each tensor and world fitted to separate
    draws.

    spread: (2, parts + 1) mean deviation per component in a world's own messages. sizes: (parts + 1,) components. rate:
    the chance that the canary's client is drawn into the round at all, unseen.
    """

    spread: NDArray[np.float64]
    sizes: NDArray[np.float64]
    mechanism: Mechanism = "gaussian"
    rate: float = 1.0

    @classmethod
    def fitted(
        cls,
        own_0: Deviations,
        own_1: Deviations,
        sizes: Sequence[int],
        mechanism: Mechanism = "gaussian",
        rate: float = 1.0,
    ) -> LikelihoodRatio:
        """The ratio that these deviations make best.

        Args:
            own_0, own_1: deviations of a world's messages, with the client drawn, from what that world expects.
            sizes: how many components each parameter tensor has, in order.
            mechanism: the noise's law.
            rate: the chance that the client is drawn at all.
        """
        count = np.array([*sizes, 1], dtype=np.float64)
        spread = np.stack([own_0.mean(0), own_1.mean(0)]) / count
        trials = np.array([[len(own_0)], [len(own_1)]])
        pooled = (spread * trials).sum(0) / trials.sum()
        error = np.sqrt(2 / count * (1 / trials).sum())  # of the logarithm of two variances' ratio
        same = np.abs(spread[0] - spread[1]) <= _SAME * error * pooled
        spread = np.where(same, pooled, spread)
        return cls(np.maximum(spread, _FLOOR * (spread[:, :-1].max() or 1.0)), count, mechanism, rate)

    @property
    def one_size(self) -> bool:
        """Whether the noise showed one size in both worlds: the ratio is then linear in the message."""
        return bool((self.spread[0] == self.spread[1]).all())

    def __call__(self, from_0: Deviations, from_1: Deviations) -> NDArray[np.float64]:
        """The ratio (n,) of messages with these deviations from either world."""
        half = 1.0
        if self.mechanism == "gaussian":
            half = 0.5
        ratio = half * (from_0 / self.spread[0] - from_1 / self.spread[1]).sum(1)
        ratio = ratio + half * float((self.sizes * np.log(self.spread[0] / self.spread[1])).sum())
        if self.rate == 1.0:
            return ratio
        return np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + ratio)

    def shift(self, between: Deviations) -> float:
        """‖v₁ − v₀‖ in standard deviations of the noise, from the deviation (1, parts + 1) of v₁ from world 0: the μ of
        Gaussian noise of one size.
        """
        if self.mechanism == "gaussian":
            return float(np.sqrt((between[0] / self.spread[0]).sum()))
        return float("nan")
