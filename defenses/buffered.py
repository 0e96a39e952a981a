"""Buffered linear Toeplitz (BLT) strategy matrices: correlated noise that streams with a few buffers.

Source: Dvijotham et al. 2024, arXiv:2404.16706; for several participations McMahan, Xu and Zhang 2024,
arXiv:2408.08868. C is lower triangular and Toeplitz with the coefficients

    c_0 = 1,    c_i = Σ_j ω_j θ_j^(i−1),

of the generating function Π_j (1 − θ̂_j x)/(1 − θ_j x); C⁻¹ is the same with θ and θ̂ exchanged. Where these interlace,
1 > θ_1 > θ̂_1 > θ_2 > … > θ̂_d > 0, every ω_j = Π_i (θ_j − θ̂_i)/Π_{i≠j} (θ_j − θ_i) is above 0 and their sum, Σ θ − Σ θ̂,
is below 1: the coefficients fall and stay above 0. Of such a matrix the participations at rounds 0, b, 2b, … move the
most of all that are at least b apart (arXiv:2405.13763, Theorem 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

_Array = NDArray[np.float64]
ErrorOf = Literal["mean", "max"]

STEPS = 2000  # of L-BFGS, at most


@dataclass(frozen=True)
class Buffers:
    """θ and θ̂, (d) each, interlacing and falling."""

    decays: tuple[float, ...]
    inverse: tuple[float, ...]

    @property
    def scales(self) -> tuple[float, ...]:
        """ω of C, which C⁻¹ reads with the other sign: η_t = z_t − Σ ω_j s_j, s_j ← θ_j s_j + η_t (Alg. 3)."""
        return tuple(_scales(*self._both).tolist())

    @property
    def _both(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.decays, dtype=torch.float64), torch.tensor(self.inverse, dtype=torch.float64)

    def coefficients(self, rounds: int) -> _Array:
        """c_0 to c_(n−1), (n,). rounds: n."""
        return _coefficients(*self._both, rounds).numpy()

    def sensitivity(self, rounds: int, separation: int, most: int) -> float:
        """‖C x‖₂ of who takes part in at most so many of n rounds, at least `separation` apart, with norm 1 in each."""
        return float(_moved(torch.from_numpy(self.coefficients(rounds)), separation, most).norm())


@lru_cache(maxsize=16)
def buffered_optimum(rounds: int, buffers: int, separation: int, most: int, error: ErrorOf = "mean") -> Buffers:
    """The θ and θ̂ of the least sensitivity² · error of the prefix sums under white noise, as far as L-BFGS finds it.

    Args:
        rounds: n ≥ 1. buffers: d ≥ 1. separation, most: of a client's participations, see `Buffers.sensitivity`.
        error: "mean" of all prefix sums' squared errors, as BandMF's, or "max", the last one's.

    Raises:
        ValueError: one is out of its range.

    >>> best = buffered_optimum(100, 2, 100, 1, "max")
    >>> coefficients = best.coefficients(100)
    >>> bool((np.diff(coefficients) < 0).all()), round(best.sensitivity(100, 100, 1), 3)
    (True, 1.587)
    """
    if min(rounds, buffers, separation, most) < 1:
        raise ValueError("a BLT needs at least one round, buffer, round of separation and participation")

    def loss(x: _Array) -> tuple[float, _Array]:
        """The logarithm of sensitivity² · error and its gradient."""
        at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        decays, inverse = _interlaced(at)
        moved = _moved(_coefficients(decays, inverse, rounds), separation, most).square().sum()
        sums = _coefficients(inverse, decays, rounds).cumsum(0).square()
        weights = torch.arange(rounds, 0, -1, dtype=torch.float64) / rounds if error == "mean" else torch.tensor(1.0)
        value = moved.log() + (sums * weights).sum().log()
        value.backward()
        assert at.grad is not None
        return value.item(), at.grad.numpy()

    starts = [np.ones(2 * buffers)]
    if rounds > 1:  # 1 − θ from about 1/n on, and a θ̂ below each
        falling = 1 - np.geomspace(1 / (2 * rounds), 0.4, 2 * buffers)
        shares = np.concatenate([falling[:1], falling[1:] / falling[:-1]])
        starts.append(np.log(shares) - np.log1p(-shares))
    limits = [(-30.0, 30.0)] * (2 * buffers)
    options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
    ends = [minimize(loss, x, jac=True, method="L-BFGS-B", bounds=limits, options=options) for x in starts]
    decays, inverse = _interlaced(torch.from_numpy(min(ends, key=lambda end: end.fun).x))
    return Buffers(tuple(decays.tolist()), tuple(inverse.tolist()))


def _interlaced(x: Tensor) -> tuple[Tensor, Tensor]:
    """θ and θ̂, each number a share of the one before: any 2d numbers give 1 > θ_1 > θ̂_1 > θ_2 > … > 0."""
    falling = torch.sigmoid(x).cumprod(0)
    return falling[::2], falling[1::2]


def _scales(decays: Tensor, inverse: Tensor) -> Tensor:
    count = len(decays)
    above = (decays[:, None] - inverse).prod(1)
    others = decays[:, None] - decays + torch.eye(count, dtype=decays.dtype)
    return above / others.prod(1)


def _coefficients(decays: Tensor, inverse: Tensor, rounds: int) -> Tensor:
    powers = decays ** torch.arange(rounds - 1, dtype=torch.float64)[:, None]
    return torch.cat([torch.ones(1, dtype=torch.float64), powers @ _scales(decays, inverse)])


def _moved(coefficients: Tensor, separation: int, most: int) -> Tensor:
    """Σ of the columns 0, b, 2b, …, (n,)."""
    rounds = len(coefficients)
    whole = coefficients
    for start in range(separation, min(rounds, separation * most), separation):
        shifted = torch.cat([torch.zeros(start, dtype=torch.float64), coefficients[: rounds - start]])
        whole = whole + shifted
    return whole
