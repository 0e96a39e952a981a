"""Values as whole numbers of steps under discrete Gaussian noise, for sums modulo m by secure aggregation.

Source: Kairouz, Liu and Steinke 2021, the distributed discrete Gaussian, arXiv:2102.06387, Alg. 1 and Theorem 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt
from typing import ClassVar, Literal

from torch import Tensor

from ..randomness import Keystream
from ..scheme import Context
from ..wire import Parcel
from .perturb import release_discrete

TRIES = 200  # of a rounding, each of which is within its bound with a chance of 1 − β or more


def rounded_norm(norm: float, numbers: int, beta: float) -> float:
    """What the L2 norm of a value of norm ≤ `norm` is limited to after its numbers are rounded to whole ones:
    min(C + √d, √(C² + d/4 + √(2 log 1/β)(C + √d/2))) (Theorem 1, Δ₂ in steps).

    Args:
        norm: C ≥ 0, in steps. numbers: d ≥ 1. beta: β in [0, 1).

    >>> round(rounded_norm(100.0, 10_000, 0.6065), 2), rounded_norm(100.0, 10_000, 0.0)
    (112.47, 200.0)
    """
    always = norm + sqrt(numbers)
    if beta == 0:
        return always
    return min(always, sqrt(norm**2 + numbers / 4 + sqrt(-2 * log(beta)) * (norm + sqrt(numbers) / 2)))


@dataclass(frozen=True)
class RoundToSteps:
    """Each number up or down to a whole number of steps, by chance and without bias; again until the norm is within
    `rounded_norm` (conditional rounding, which has a little bias).

    step: γ, a power of two, in parameter units. beta: β in [0, 1); a rounding is done again with at most that chance.
    Guarantee: ‖value‖₂ ≤ γ·rounded_norm(C/γ), and 0 stays 0. A plan without noise leaves the value as it is.
    """

    step: float
    beta: float

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        bound = parcel.bound
        if bound is None or isinstance(bound.norm, Tensor) or bound.order != 2 or bound.of != "client":
            raise ValueError("rounding to whole steps needs a value whose L2 norm was clipped before it")
        limit = rounded_norm(bound.norm / self.step, context.layout.numbers, self.beta)
        value = parcel.vector.double() * (1 / self.step)
        if context.plan.noise:
            value = self._rounded(value, limit, context)
        vector = value.mul_(self.step)
        return replace(parcel, vector=vector, bound=replace(bound, norm=limit * self.step), step=self.step)

    def _rounded(self, value: Tensor, limit: float, context: Context) -> Tensor:
        """Squares of whole numbers below 2²⁶ sum up exactly, so that the comparison does not round."""
        low = value.floor()
        for attempt in range(TRIES):
            coins = Keystream(context.seed, "rounding", context.round, context.party, attempt).uniform(len(value))
            whole = low + (coins < value - low)
            if float(whole.square().sum()) <= limit**2:
                return whole
        return value.trunc()  # towards 0, where no norm grows


@dataclass(frozen=True)
class PerturbDiscrete:
    """Discrete Gaussian noise of σ = noise_std/γ steps on whole numbers of steps γ, then all modulo m.

    noise_std: in parameter units. modulus: m, even.
    """

    noise_std: float
    modulus: int
    mechanism: ClassVar[Literal["discrete"]] = "discrete"

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        return release_discrete(parcel, self.noise_std, self.modulus, context)
