"""The matrix of correlated noise, as somebody declares it: by its numbers, or by the name of the mechanism it is of.

C is the strategy matrix (`defenses.strategies`): with white noise Z, one vector a row, the server adds row t of C⁻¹ Z
in round t.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...defenses.strategies import BLT, BandMF, Matrix, Tree, decoder_of
from ..errors import BadInput
from ..setup.reading import short

MOST_ROUNDS = {"dp-ftrl": 2048, "band-mf": 512, "blt": 2048}  # beyond, a matrix takes minutes
MOST_ROWS = 512
NAMES = "{'name': 'dp-ftrl', 'rounds': n}, or of 'band-mf' (bands) or 'blt' (decays, scales)"

Declarable = Tree | BandMF | BLT | Matrix


@lru_cache(maxsize=64)
def decoded(strategy: Declarable) -> NDArray[np.float64]:
    """D, (n, rows): row t is what of each white vector is in the noise of round t."""
    return decoder_of(strategy)


def strategy_of(matrix: object) -> Declarable:
    """The strategy that a declared matrix stands for.

    Args:
        matrix: C, (n, n) numbers, lower triangular; or (n,), the first column of one that is the same along its
            diagonals; or a mapping: name, rounds and the mechanism's own numbers (restart and honaker of "dp-ftrl",
            bands of "band-mf", decays and scales of "blt"); or a strategy.

    Raises:
        BadInput: none of these.

    >>> strategy_of([1.0, 0.5]), strategy_of({"name": "band-mf", "rounds": 8, "bands": 2})
    (Matrix(lower=((1.0,), (0.5, 1.0))), BandMF(rounds=8, bands=2))
    """
    if isinstance(matrix, Declarable):
        return matrix
    if isinstance(matrix, Mapping):
        return _named(dict(matrix))
    try:
        numbers = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"Correlated: matrix = {short(matrix)}: expected numbers (n, n), or {NAMES}") from None
    square = numbers.ndim == 2 and numbers.shape[0] == numbers.shape[1]
    if not (square or numbers.ndim == 1) or not 1 <= len(numbers) <= MOST_ROWS:
        raise BadInput(
            f"Correlated: matrix of shape {numbers.shape}: expected (n, n), or (n,) of a Toeplitz one, n from 1 to"
            f" {MOST_ROWS}; or {NAMES}"
        )
    if numbers.ndim == 1:
        numbers = np.stack([np.pad(numbers[: t + 1][::-1], (0, len(numbers) - t - 1)) for t in range(len(numbers))])
    if not np.isfinite(numbers).all() or np.triu(numbers, 1).any() or not np.diag(numbers).all():
        raise BadInput(
            "Correlated: matrix must be lower triangular, of finite numbers, with none of its diagonal 0: row t says"
            " how much of the value of each round up to t stands behind white noise t"
        )
    made = Matrix(tuple(tuple(row[: t + 1].tolist()) for t, row in enumerate(numbers)))
    if not np.isfinite(decoded(made)).all() or not (stds_of(made) > 0).all():
        raise BadInput("Correlated: matrix has no inverse that float64 can hold")
    return made


def stds_of(strategy: Declarable) -> NDArray[np.float64]:
    """(n,) the standard deviation of each round's noise, where that of the white noise is 1."""
    return np.asarray(np.linalg.norm(decoded(strategy), axis=1))


def plain_of(strategy: Declarable) -> dict[str, Any] | list[Any]:
    """For JSON; `strategy_of` reads it."""
    if isinstance(strategy, Tree):
        return {"name": "dp-ftrl", "rounds": strategy.rounds, "restart": strategy.restart, "honaker": strategy.honaker}
    if isinstance(strategy, BandMF):
        return {"name": "band-mf", "rounds": strategy.rounds, "bands": strategy.bands}
    if isinstance(strategy, BLT):
        return {"name": "blt", "rounds": strategy.rounds, "decays": [*strategy.decays], "scales": [*strategy.scales]}
    last = strategy.lower[-1]
    if all(row == last[-t - 1 :] for t, row in enumerate(strategy.lower)):
        return [*reversed(last)]
    return [[*row, *(0.0,) * (strategy.rounds - t - 1)] for t, row in enumerate(strategy.lower)]


def correlation_words(strategy: Declarable) -> str:
    """
    >>> correlation_words(BandMF(8, 2)), correlation_words(Matrix(((1.0,), (0.5, 1.0))))
    ('correlated over 8 rounds by BandMF of 2 bands', 'correlated over 2 rounds by a declared matrix')
    """
    by = "a declared matrix"
    if isinstance(strategy, Tree):
        by = "a tree"
        if strategy.restart < strategy.rounds:
            by = f"trees of {strategy.restart} rounds"
        by += " (DP-FTRL)"
    elif isinstance(strategy, BandMF):
        by = f"BandMF of {strategy.bands} bands"
    elif isinstance(strategy, BLT):
        by = f"BLT of {len(strategy.decays)} buffers"
    return f"correlated over {strategy.rounds} rounds by {by}"


def _named(given: dict[str, Any]) -> Declarable:
    name, rounds = given.pop("name", None), given.pop("rounds", 0)
    if not isinstance(name, str) or name not in MOST_ROUNDS:
        raise BadInput(f"Correlated: matrix of {short(name)}: expected numbers (n, n), or {NAMES}")
    if not _whole(rounds, MOST_ROUNDS[name]):
        raise BadInput(
            f"Correlated: matrix of {name}: rounds = {short(rounds)}: expected a whole number from 1 to"
            f" {MOST_ROUNDS[name]}; a longer training's is not priced"
        )
    known = {"dp-ftrl": {"restart", "honaker"}, "band-mf": {"bands"}, "blt": {"decays", "scales"}}[name]
    if strange := sorted(set(given) - known):
        raise BadInput(f"Correlated: matrix of {name}: {short(strange[0])} is none of {', '.join(sorted(known))}")
    if name == "dp-ftrl":
        restart, honaker = given.get("restart", rounds), given.get("honaker", True)
        if not _whole(restart, rounds) or not isinstance(honaker, bool):
            raise BadInput(
                f"Correlated: matrix of dp-ftrl: restart = {short(restart)}, honaker = {short(honaker)}: expected a"
                f" number of rounds from 1 to {rounds}, and true or false"
            )
        return Tree(rounds, restart, honaker)
    if name == "band-mf":
        bands = given.get("bands", 0)
        if not _whole(bands, rounds):
            raise BadInput(
                f"Correlated: matrix of band-mf: bands = {short(bands)}: expected a number from 1 to {rounds}"
            )
        return BandMF(rounds, bands)
    decays, scales = _numbers(given.get("decays")), _numbers(given.get("scales"))
    if not decays or len(decays) != len(scales) or not all(0 <= decay <= 1 for decay in decays):
        raise BadInput(
            "Correlated: matrix of blt: decays and scales are as many numbers each, decays from 0 to 1 (θ and ω of"
            " arXiv:2404.16706)"
        )
    return BLT(rounds, decays, scales)


def _whole(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _numbers(given: object) -> tuple[float, ...]:
    """() for anything but a list of finite numbers."""
    if not isinstance(given, list | tuple):
        return ()
    whole = all(isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one) for one in given)
    if whole:
        return tuple(float(one) for one in given)
    return ()
