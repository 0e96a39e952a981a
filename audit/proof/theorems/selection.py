"""What it costs to show the best of many trainings, and nothing of the others.

A number K of candidates is drawn, each independently of the data; each is trained; the one with the highest score, a
number computed from what the training shows, is shown. With K from a Poisson distribution this costs far less than
showing all of them (Papernot and Steinke 2022, arXiv:2110.03620, Theorem 6). dp_accounting's `RepeatAndSelectDpEvent`
prices one event so; here the candidates differ, so the theorem is applied to the worst curve of all of them, order by
order: whoever also saw which one was drawn would have no more.
"""

from __future__ import annotations

from math import inf, log, log1p

import numpy as np
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon

from .accountants import ORDERS


def selected_renyi(curve: np.ndarray, mean: float) -> np.ndarray:
    """The Rényi divergences at `ORDERS` of the best of a Poisson number of runs.

    Args:
        curve: of one run, its score included, at `ORDERS`; ∞ where nothing is known. mean: of the number, at least 1.

    Raises:
        ValueError: the mean is below 1.
    """
    if not mean >= 1:
        raise ValueError(f"the mean number of candidates is {mean:g}; it must be at least 1")
    selected = np.full_like(curve, inf)
    for i, order in enumerate(ORDERS):
        if np.isfinite(curve[i]):
            delta, _ = compute_delta(ORDERS, curve, log1p(1 / (order - 1)))
            selected[i] = curve[i] + mean * delta + log(mean) / (order - 1)
    return selected


def selection_epsilon(curve: np.ndarray, mean: float, again: int, delta: float) -> float:
    """The ε of what a selection shows, and of `again` more runs of what it chose.

    Args:
        curve: as for `selected_renyi`, the worst of all candidates. mean: of their number. again: how many more runs.
        delta: above 0.
    """
    more = again * curve if again else 0.0
    return float(compute_epsilon(ORDERS, selected_renyi(curve, mean) + more, delta)[0])
