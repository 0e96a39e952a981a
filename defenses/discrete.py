"""The discrete Gaussian law: integers k with probability proportional to exp(−k²/2σ²).

Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010. Drawn by inversion instead of their rejection, so that a
vector costs one search: the table's numbers are the law's own to 124 bits, and so many coin flips are compared with
them. What is drawn is off by less than 2⁻¹⁰⁰ in total variation; no floating-point number is on the way.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .randomness import Keystream

BITS = 62  # of one word of a table; there are two
DIGITS = 60  # decimals that the law is computed to: 10⁻⁶⁰ is 2⁻¹⁹⁹
MOST_STEPS = 2.0**17  # σ, beyond which a table would take seconds
TAIL = 13.3  # standard deviations: what lies beyond has less than 2⁻¹²⁶ of the mass
_Words = NDArray[np.int64]


def discrete_gaussian(noise_std: float, count: int, rng: Keystream) -> Tensor:
    """(count,) independent draws, whole numbers in float64.

    noise_std: σ, from 0 (all are 0) to `MOST_STEPS`; their standard deviation is a little less, and as good as σ from
    σ = 1 on. Raises ValueError beyond.
    """
    if noise_std == 0:
        return torch.zeros(count, dtype=torch.float64)
    upper, lower = _below(noise_std)
    words = rng.words(2 * count).numpy()
    first, second = words[:count], words[count:]
    sign = 1 - 2 * (first & 1)
    size, rest = (first >> 2) & (2**BITS - 1), (second >> 2) & (2**BITS - 1)
    at = np.searchsorted(upper, size, side="left")  # how many of the table's first words are below
    for i in np.flatnonzero(upper[np.minimum(at, len(upper) - 1)] == size):  # hardly ever: the second word decides
        last = int(np.searchsorted(upper, size[i], side="right"))
        at[i] += int(np.searchsorted(lower[at[i] : last], rest[i], side="right"))
    return torch.from_numpy((sign * at).astype(np.float64))


@lru_cache(maxsize=16)
def _below(noise_std: float) -> tuple[_Words, _Words]:
    """P(|k| ≤ j) for j = 0, 1, …, each as two words of 62 bits, rounded down."""
    if not 0 < noise_std <= MOST_STEPS:
        raise ValueError(
            f"discrete noise of std {noise_std:.4g} steps: it must be above 0 and at most {MOST_STEPS:g};"
            " a larger granularity makes it fewer"
        )
    with localcontext() as numbers:
        numbers.prec = DIGITS
        falls = (-1 / (2 * Decimal(noise_std) ** 2)).exp()  # exp(−1/2σ²), right to the last digit
        weights, weight, ratio = [Decimal(1)], Decimal(1), falls
        for _ in range(int(TAIL * noise_std) + 2):
            weight *= ratio  # exp(−k²/2σ²) by exp(−(2k − 1)/2σ²)
            ratio *= falls * falls
            weights.append(2 * weight)
        whole = sum(weights)
        words, total = [], Decimal(0)
        for each in weights:
            total += each
            words.append(int(total / whole * 2 ** (2 * BITS)))
    words[-1] = 2 ** (2 * BITS) - 1
    high = np.array([word >> BITS for word in words], dtype=np.int64)
    return high, np.array([word & (2**BITS - 1) for word in words], dtype=np.int64)
