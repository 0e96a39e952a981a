"""What a formula of a paper gives back: its value and what is wrong with it at these arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FormulaValue:
    """A formula's value and the assumptions of its proof that the arguments break.

    value: in the units of the formula; nan where the formula is undefined (a root or logarithm of a negative number).
    remarks: one sentence each, checked numerically from the arguments; empty if every assumption holds.
    """

    value: float
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recommendation:
    """A setting a paper's analysis would choose.

    what: the setting in words, with its paper's letter. value: where the bound is smallest (nan if it is defined
    nowhere). curve: the scanned settings and the bound at each. remarks: the constants assumed, and every assumption
    that does not hold.
    """

    what: str
    value: float
    curve: tuple[tuple[float, float], ...]
    remarks: tuple[str, ...]


def holding(*sentences: tuple[bool, str]) -> tuple[str, ...]:
    """The sentences whose condition holds, in order."""
    return tuple(sentence for condition, sentence in sentences if condition)


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """All sentences once, in order of first appearance."""
    return tuple(dict.fromkeys(sentence for group in groups for sentence in group))


def assumed(constants: object, *names: str) -> str:
    """The sentence that says which values an analysis takes for its constants of these names."""
    listed = ", ".join(f"{name} = {getattr(constants, name):.6g}" for name in names)
    return f"Constants of the analysis, assumed and not measured: {listed}."


def scan(
    what: str, bound: Callable[[float], FormulaValue], settings: Sequence[float], notes: Iterable[str] = ()
) -> Recommendation:
    """Scan `bound` over `settings` (ascending) and take the first of the smallest values; nan is never chosen.

    A scan, not a root of the derivative: several of these bounds have more than one stationary point. The remarks are
    `notes`, those of the bound at its best, and what the scan itself shows.
    """
    points = [(setting, bound(setting)) for setting in settings]
    curve = tuple((setting, point.value) for setting, point in points)
    values = [value for _, value in curve if not math.isnan(value)]
    if not values:
        return Recommendation(what, math.nan, curve, (*notes, "The bound is undefined at every scanned setting."))
    low, high = min(values), max(values)
    best, at = next((setting, point) for setting, point in points if point.value == low)
    shown = holding(
        (
            low < high and best in (settings[0], settings[-1]),
            (
                f"The smallest value lies at an end of the scanned range ({settings[0]:g} to {settings[-1]:g}): no "
                "optimum inside it."
            ),
        ),
        (low == high and len(settings) > 1, "The bound is the same at every scanned setting."),
        (low < 0, "The bound is negative there, which no true bound on a non-negative quantity can be."),
    )
    return Recommendation(what, best, curve, merged(notes, at.remarks, shown))


def geometric_sum(ratio: float, terms: int) -> float:
    """Σ_{i=0}^{terms−1} ratio^i, accurate near ratio = 1; inf on overflow.

    >>> geometric_sum(0.5, 3), geometric_sum(1.0, 4), geometric_sum(-1.0, 3)
    (1.75, 4.0, 1.0)
    """
    if ratio == 1:
        return float(terms)
    if ratio <= 0:
        return (1 - power(ratio, terms)) / (1 - ratio)
    try:
        return math.expm1(terms * math.log(ratio)) / math.expm1(math.log(ratio))
    except OverflowError:
        return math.inf


def power(base: float, exponent: float) -> float:
    """base^exponent, ±inf on overflow."""
    try:
        return float(base**exponent)
    except OverflowError:
        if base < 0 and exponent % 2:
            return -math.inf
        return math.inf


def mixed_sum(a: float, b: float, terms: int) -> float:
    """Σ_{i=1}^{terms} a^(terms−i)·b^(i−1) = (b^terms − a^terms)/(b − a), with its limit at a = b.

    >>> mixed_sum(2.0, 3.0, 2), mixed_sum(1.0, 1.0, 5)
    (5.0, 5.0)
    """
    small, large = sorted((a, b), key=abs)
    if large == 0:
        if terms == 1:
            return 1.0
        return 0.0
    return power(large, terms - 1) * geometric_sum(small / large, terms)
