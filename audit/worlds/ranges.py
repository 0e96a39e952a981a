"""Numbers that an audit of own code is asked with: in their ranges, or one sentence before the code is called thousands
of times.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from ...defenses.terms import ADJACENCIES, UNITS, Observer
from ..setup.reading import short

MOST = 10_000_000  # draws, trainings, steps, messages, numbers in a tensor
LEAST_DRAWS = 10
SEEDS = 2**63


def whole(name: str, value: object, least: int, most: int = MOST) -> int:
    """A whole number in [least, most].

    Raises:
        ValueError: it is none, or beyond these.

    >>> whole("draws", 300, 10)
    300
    >>> whole("draws", 1e3, 10)
    Traceback (most recent call last):
    ValueError: draws = 1000.0: expected a whole number from 10 to 10,000,000
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= value <= most:
        return int(value)
    most_said = "2^63 - 1" if most == SEEDS - 1 else f"{most:,}"
    raise ValueError(f"{name} = {short(value)}: expected a whole number from {least} to {most_said}")


def real(
    name: str, value: object, expected: str, *, least: float = -inf, above: float = -inf, below: float = inf
) -> float:
    """A finite number in a range.

    Args:
        name, value: what is asked, for the sentence. expected: the range in words.
        least: the least that is taken. above, below: what it is to exceed, and to stay below.

    Raises:
        ValueError: it is none, or beyond these.

    >>> real("delta", float("nan"), "a number in [0, 1)", least=0, below=1)
    Traceback (most recent call last):
    ValueError: delta = nan: expected a number in [0, 1)
    """
    number = nan
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and not np.iscomplexobj(value):
        try:
            number = float(value)
        except OverflowError:
            number = inf
    if isfinite(number) and number >= least and above < number < below:
        return number
    raise ValueError(f"{name} = {short(value)}: expected {expected}")


def check_bounds_asked(*, delta: object, claim: object, confidence: object, seed: object) -> None:
    """What every audit is asked. Raises ValueError for what is out of its range."""
    real("delta", delta, "a number in [0, 1), 0 for pure DP", least=0, below=1)
    if claim is not None:
        real("the claimed ε", claim, "a finite number from 0 on, or none", least=0)
    real("confidence", confidence, "a number between 0.5 and 1", above=0.5, below=1)
    whole("seed", seed, 0, SEEDS - 1)


def check_draws_asked(draws: object, calibration: object) -> None:
    """Tested and further trials a world, None for as many as it takes. Raises ValueError."""
    for name, count in (("draws", draws), ("calibration", calibration)):
        if count is not None:
            whole(name, count, LEAST_DRAWS)


def check_vector_asked(sizes: Any, rounds: object, rate: object) -> None:
    """How a vector is made up. Raises ValueError."""
    if sizes is not None:
        if isinstance(sizes, str) or not isinstance(sizes, Iterable) or not (parts := list(sizes)):
            raise ValueError(f"sizes = {short(sizes)}: expected how many numbers each tensor has, in order")
        for size in parts:
            whole("a size of sizes", size, 1)
    whole("rounds", rounds, 1)
    real("rate", rate, "a number in (0, 1]", above=0, below=np.nextafter(1, 2))


def check_words_asked(unit: object, adjacency: object, observer: object, **flags: object) -> None:
    """What an ε is about, and options that are True or False. Raises ValueError."""
    for name, word, known in (("unit", unit, UNITS), ("adjacency", adjacency, ADJACENCIES)):
        if word not in known:
            raise ValueError(f"{name} = {short(word)}: expected {' or '.join(map(repr, known))}")
    if not isinstance(observer, str):
        raise ValueError(f"observer = {short(observer)}: expected a name, such as 'server'")
    Observer.parse(observer)
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{name} = {short(flag)}: expected True or False")


def check_function(name: str, value: object) -> None:
    """Raises ValueError where it cannot be called."""
    if not callable(value):
        raise ValueError(f"{name} is a {type(value).__name__}; expected a function")
