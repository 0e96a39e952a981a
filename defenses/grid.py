"""Values and noise as multiples of one public step, so that float64 holds their sums exactly.

A sum of a value and noise that a floating-point number rounds tells, by its last bits, which values it can have come
from (Mironov 2012, "On significance of the least significant bits for differential privacy"). Here the value is rounded
to a multiple of the step g and so is the noise, each by itself; both are whole numbers of steps below 2⁵³, their sum is
exact, and rounding noise to the steps of a value that lies on them is the same as rounding the noisy value: what comes
out is a function of (rounded value + continuous noise), post-processing of a mechanism whose sensitivity is that of the
rounded value (`rounded`). So is whatever is done to the sum later, its cast to float32 on the wire included. g is a
function of public numbers only.

A sum of several senders' messages is another thing: each message cast to float32 rounds by its own size, and the last
bits of their sum tell which message was small. Whoever sees sums alone may count all noises only where the sum is one
of whole numbers of steps (`total`), as secure aggregation computes it, and `adds_up` says whether it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import frexp, inf, isfinite, ldexp, sqrt
from typing import Literal

import torch
from torch import Tensor

from .wire import Bound

FINE = 36  # a step is at most 2⁻³⁶ of the noise's standard deviation
EXACT = 51  # and at least 2⁻⁵¹ of the largest sum, which leaves two bits of float64 for the noise's tail
SPLIT = 26  # the bits of a value, from the last of its step on, that are summed apart from those above
# A step times its count is at most 2⁻⁸, or 2⁻²⁴, of any noise in a sum: see `adds_up`.
SMOOTH = {"gaussian": 8, "laplace": 24}
LEAST, MOST = -1000, 900  # exponents: 1/g and 2⁵³·g are numbers of float64
TAIL = 64.0  # standard deviations that no noise drawn here reaches: 12.2 of a Gaussian, 52.5 of a Laplace


def step_of(noise_std: float | Tensor, reach: float) -> float:
    """g: the largest power of two ≤ noise_std·2⁻³⁶, of the least that is above 0, but not finer than reach·2⁻⁵¹.

    Args:
        noise_std: a number or (d,), 0 for no noise. reach: what no number of the noisy value exceeds.

    >>> step_of(1.0, 100.0) == 2.0**-36, step_of(1.0, 1e6) == 2.0**-31
    (True, True)
    """
    if isinstance(noise_std, Tensor):
        drawn = noise_std[noise_std > 0]
        noise_std = float(drawn.min()) if len(drawn) else 0.0
    exponents = [LEAST]
    if 0 < noise_std < inf:
        exponents.append(frexp(noise_std)[1] - 1 - FINE)
    if 0 < reach < inf:
        exponents.append(frexp(reach)[1] - EXACT)
    return ldexp(1.0, min(max(exponents), MOST))


def in_steps(vector: Tensor, step: float) -> Tensor:
    """A vector as whole numbers of steps, float64."""
    return (vector.double() * (1 / step)).round_()


def noisy(vector: Tensor, noise: Tensor, step: float, bounded: bool) -> Tensor:
    """vector + noise, each rounded to steps first: exact multiples of the step, float64.

    bounded: cut the value off at ±2⁵² steps, which brings no two values further apart. Only a sum whose terms have very
    unequal noises comes near; a value without a bound is left alone, so that one that is not finite still shows.
    """
    steps = in_steps(vector, step)
    if bounded:
        steps.clamp_(-(2.0**52), 2.0**52)
    return steps.add_(in_steps(noise, step)).mul_(step)


@dataclass(frozen=True, eq=False)
class PartialSum:
    """Some senders' part of a sum, exact: high · unit + low, (d,) each of float64.

    unit: 0 where a value is on no grid.
    """

    high: Tensor
    low: Tensor
    unit: float


def total(vectors: Sequence[Tensor], counts: Sequence[int], steps: Sequence[float]) -> Tensor:
    """Σ k_i · vector_i, (d,) of float64: the float64 next to the exact sum, where each vector is a whole number below
    2⁵³ of its steps and Σ k_i · max g / min g ≤ 2²⁶.

    The last 26 bits and the bits above are summed apart: both sums are below 2⁵³ of their units, so exact, and only
    adding them rounds.

    Args:
        vectors: (n) of shape (d,). counts: k_i ≥ 0. steps: g_i; with a 0 among them, for a value that is on no grid,
            it is float64's sum in the order given.
    """
    return whole_sum([partial_sum(vectors, counts, steps)])


def partial_sum(vectors: Sequence[Tensor], counts: Sequence[int], steps: Sequence[float]) -> PartialSum:
    """Σ k_i · vector_i as `total` computes it, before it is rounded. Args as for `total`."""
    high = torch.zeros_like(vectors[0], dtype=torch.float64)
    low, unit = torch.zeros_like(high), min(steps) * 2.0**SPLIT
    for vector, count in zip(vectors, counts):
        if unit > 0:
            head = (vector.double() * (1 / unit)).round_()
            high.add_(head, alpha=count)
            low.add_(torch.sub(vector, head.mul_(unit)), alpha=count)
        else:
            low.add_(vector, alpha=count)
    return PartialSum(high, low, unit)


def whole_sum(parts: Sequence[PartialSum]) -> Tensor:
    """What `total` gives of all senders together, to the last bit, where all are on grids: the parts' units are powers
    of two, so each is a whole number of the finest, and sums of high and of low parts stay exact.
    """
    unit = min(part.unit for part in parts)
    high = torch.zeros_like(parts[0].high)
    low = torch.zeros_like(high)
    for part in parts:
        if unit > 0:
            head = (part.low * (1 / unit)).round_()
            high.add_(part.high, alpha=part.unit / unit).add_(head)
            low.add_(torch.sub(part.low, head.mul_(unit)))
        else:
            low.add_(part.high, alpha=part.unit).add_(part.low)
    return high.mul_(unit).add_(low)


def wrapped(steps: Tensor, modulus: int) -> Tensor:
    """Whole numbers modulo an even number, between −modulus/2 and modulus/2 − 1."""
    return torch.remainder(steps + modulus // 2, modulus).sub_(modulus // 2)


def adds_up(
    counts: Sequence[int], steps: Sequence[float], stds: Sequence[float], mechanism: Literal["gaussian", "laplace"]
) -> bool:
    """Whether `total` of noisy values reveals no more than Σ k_i · value_i + Σ k_i · n_i with continuous noises n_i.

    It must be exact. Then it is Σ k_i·round(value_i) + Σ k_i·round(n_i), whatever the single messages were. A noise
    rounded to steps has on each of them g times the density of n_i + U_i, U_i uniform on one step. So Σ k_i·round(n_i)
    has on the common grid, of step h = gcd(k_i·g_i), h times the density of Σ k_i·(n_i + U_i), but for aliasing; and
    that is the law of Σ k_i·n_i plus independent noise (the boxes k_i·U_i, short of one of width h), rounded to h:
    post-processing.

    Aliasing (Poisson's summation formula) is the products of the noises' characteristic functions around unlike
    multiples of 2π/(k_i·g_i). With r = max k · max g / min std it is at most of the order exp(−π²/r²) for Gaussians: at
    2⁻⁸ less than 10⁻²⁰⁰⁰⁰⁰. For Laplace noises it is not nothing: a mass can be off by (2r/π)² of itself for every
    sender, 2⁻⁴⁹ at 2⁻²⁴, which over 10⁹ numbers sent moves ε by some 10⁻⁶.

    Args:
        counts, steps: as for `total`. stds: of the noises, > 0. All of them public.
    """
    if not min(steps) > 0 or sum(counts) * max(steps) > 2.0**SPLIT * min(steps):
        return False
    return max(counts) * max(steps) <= ldexp(min(stds), -SMOOTH[mechanism])


def rounded(bound: Bound, step: float, numbers: int) -> Bound:
    """The bound that holds between any two values after they are rounded to steps: per component 2g more, √d·2g in L2
    and d·2g in L1.

    Each value moves by less than g in a component: half a step to the grid, and less than half by float64's own sums
    (`reach` counts their terms). A clip's float64 norm over d numbers is right to (d + 16)·2⁻⁵³ of itself, in whatever
    order its squares are added.

    Args:
        bound: before. step: g. numbers: d, of the real value also where it is planned on fewer.
    """
    near = 1 + (numbers + 16) * 2.0**-53
    if isinstance(bound.norm, Tensor):
        return replace(bound, norm=bound.norm.double() * near + 2 * step)
    return replace(bound, norm=bound.norm * near + 2 * step * (sqrt(numbers) if bound.order == 2 else numbers))


def reach(
    bound: Bound | None, vector: Tensor, start: Tensor, noise_std: float | Tensor, within: float | Tensor, terms: int
) -> float:
    """What no number of the noisy value exceeds, from public numbers; times the terms it was summed from, so that these
    sums' own roundings stay below half a step. Without a bound nothing is proven, and the value itself says it.

    Args:
        bound: on the value, or on one term of it; around `start` (d,) if it is centred. vector: (d,).
        noise_std: of the noise to add. within: of the noise that a term already has; numbers or (d,).
        terms: how many values were summed.
    """
    if bound is None:
        peak = _largest(vector)
    else:
        peak = terms * (_largest(bound.norm) + (_largest(start) if bound.centred else 0.0) + TAIL * _largest(within))
    return terms * (peak + TAIL * _largest(noise_std))


def _largest(value: float | Tensor) -> float:
    peak = float(torch.linalg.vector_norm(value, inf)) if isinstance(value, Tensor) else abs(value)
    return peak if isfinite(peak) else 0.0
