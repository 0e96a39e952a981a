"""An inversion of fewer iterations and restarts, where all of them would take longer than there are minutes."""

from __future__ import annotations

from collections.abc import Mapping

from ...attacks.inversion.make import QUICKER
from .options import INVERSION

LEAST_ITERATIONS = 30  # fewer of them move no image far from where it began


def fewer_iterations(settings: Mapping[str, object], cost: float, limit: float) -> tuple[int, int]:
    """Iterations and restarts that take about `limit` minutes.

    Args:
        settings: of the inversion. cost: of all its iterations and restarts, in minutes, above `limit`.

    >>> [fewer_iterations({"iterations": 300, "restarts": n}, 40.0, minutes) for n, minutes in ((4, 10.0), (1, 1.0))]
    [(300, 1), (30, 1)]
    """
    iterations, restarts = settings["iterations"], settings["restarts"]
    assert isinstance(iterations, int) and isinstance(restarts, int)
    few = max(1, int(restarts * limit / cost))
    return min(iterations, max(LEAST_ITERATIONS, int(iterations * restarts * limit / cost / few))), few


def of_iterations(override: str) -> bool:
    """Whether a `--set` is about how many iterations an inversion has."""
    return override.removeprefix("attack.").startswith(f"{INVERSION}.iterations")


def iterations_set(iterations: int, restarts: int, quick: bool) -> tuple[str, ...]:
    """Overrides for so many. quick: whether the run divides its iterations by `QUICKER`."""
    return f"{INVERSION}.iterations={iterations * (QUICKER if quick else 1)}", f"{INVERSION}.restarts={restarts}"
