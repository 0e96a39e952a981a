"""The outcome of an audit: a lower bound on ε, with everything a reader needs to judge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...say.words import at_least, at_most

Scores = NDArray[np.float64]

GAUSSIAN = "the noise is Gaussian"
COINS = "each canary was included by its own fair coin"


@dataclass(frozen=True)
class LowerBound:
    """With probability at least `confidence`, the mechanism is not (ε', delta)-DP for any ε' below `epsilon`.

    epsilon: the bound, ≥ 0; 0 means nothing was shown.
    ceiling: the most a perfect attack could have shown with the same numbers of scores or guesses.
    counts: tp, fp, fn, tn of the tested scores, or m canaries, r guesses and v right ones.
    assumption: what must hold beyond independent trials, in words; "" for nothing.
    threshold: the score from which on a canary was called a member; None where no single one was used.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    counts: Mapping[str, int]
    ceiling: float
    assumption: str = ""
    threshold: float | None = None

    def __str__(self) -> str:
        condition = ""
        if self.assumption:
            condition = f", if {self.assumption}"
        most = ""
        if isfinite(self.ceiling):
            most = f"; a perfect attack could have shown {at_most(self.ceiling)}"
        told = f"{self.method}, {self.confidence:.4g} confidence{condition}{most}"
        return f"ε ≥ {at_least(self.epsilon)} at δ = {self.delta:g} ({told})"


def checked_scores(name: str, values: ArrayLike) -> Scores:
    """`values` as a float64 vector (n,). Raises ValueError unless it is one-dimensional, non-empty and free of NaN."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"{name} must be a vector of at least one score, got shape {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"{name} must be numbers, got {int(np.isnan(scores).sum())} NaN among {scores.size}")
    return scores


def checked_level(delta: float, confidence: float, *, delta_above_zero: bool = False) -> float:
    """The significance 1 - confidence.

    Raises ValueError unless 0 ≤ delta < 1 (0 < delta where asked) and 0.5 < confidence < 1.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta}")
    if delta_above_zero and delta == 0:
        raise ValueError("delta must be above 0 for a Gaussian-shaped mechanism, got 0: no pure ε is finite there")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must be in (0.5, 1), got {confidence}")
    return 1 - confidence
