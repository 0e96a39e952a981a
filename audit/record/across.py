"""Whether anything is in a message beside its clipped value and its noise, as a momentum is that never was clipped.

Along the raw value `noise_tests.norm_bound` looks. Across it nothing but noise is to be left over, whose squares have a
known sum; whatever else is added makes that larger, and what adds less than the sum's own spread does not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from scipy.stats import chi2

from .noise_tests import LIKELY, RARE, Tested

ROUNDED = 5e-4  # of a standard deviation that is declared in four digits
MATERIAL = 1.0  # times the bound: with the value itself √2 of it, as in `norm_bound`


@dataclass(frozen=True)
class Energy:
    """Of what is left of a message without its clipped value. total: the sum of squares, in declared variances, of so
    many numbers. bound: of the value, in standard deviations. name: whose and when.
    """

    total: float
    numbers: int
    bound: float
    name: str


def nothing_added(energies: Sequence[Energy], *, independent: bool = True) -> Tested:
    """Tests of every message's sum of squares, and of that of all together, which is χ² of Gaussian noise alone.

    independent: whether the messages' noises are; else each is looked at by itself.

    >>> nothing_added([Energy(10_000.0, 10_000, 100.0, "one")]).status
    'checked'
    >>> nothing_added([Energy(10_100.0, 10_000, 2.0, "one")]).status
    'declared'
    >>> nothing_added([Energy(10_800.0, 10_000, 2.0, "one")]).status
    'contradicted'
    """
    known = [one for one in energies if one.numbers]
    if not known:
        return Tested("declared", "no raw value shows what else is in a message")
    squares = sum(one.bound**2 for one in known)
    together = Energy(
        sum(one.total for one in known), sum(one.numbers for one in known), sqrt(squares), "all messages together"
    )
    every = [*known, together] if len(known) > 1 and independent else known
    for one in reversed(every):
        if one.total > _most(one.numbers, len(every)):
            added = sqrt((one.total - one.numbers) / (len(known) if one is together else 1))
            return Tested(
                "contradicted",
                f"what is left of {one.name} without the clipped value is longer than noise, as with {added:.3g}"
                " standard deviations of something else in it",
            )
    hidden = sqrt(visible(together.numbers, len(every)) / squares)
    if not independent:
        hidden = max(sqrt(visible(one.numbers, len(every))) / one.bound for one in known)
    long = sqrt(together.total / together.numbers)
    found = (
        f"{len(known)} messages less their clipped values are {long:.4g} times as long as the noise;"
        f" another value of {hidden:.3g} times the bound in each would have been seen"
    )
    if hidden > MATERIAL:
        return Tested("declared", f"{found}, a shorter one would not")
    return Tested("checked", found)


def _most(numbers: int, tests: int) -> float:
    """What noise alone passes too seldom, in one of so many tests."""
    return float(chi2.isf(RARE / tests, numbers)) * (1 + ROUNDED) ** 2


def visible(numbers: int, tests: int) -> float:
    """The squared length that would be noticed 19 times in 20, in variances: χ²(d, λ) is d + λ ± √(2d + 4λ)."""
    beyond = found = _most(numbers, tests) - numbers
    for _ in range(50):  # each step is a contraction
        found = beyond + LIKELY * sqrt(2 * numbers + 4 * found)
    return found
