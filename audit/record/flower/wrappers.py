"""What Flower's strategies are made of: a strategy, and the differentially private wrapper round it."""

from __future__ import annotations

from typing import Any


def strategies_in(strategy: Any) -> list[Any]:
    """A strategy and those that it wraps, the outermost first."""
    held = [strategy]
    while (inner := getattr(held[-1], "strategy", None)) is not None and inner not in held:
        held.append(inner)
    return held


def merges_by_mean(strategy: Any) -> bool:
    """Whether the innermost strategy is FedAvg in how it merges: the mean, weighed by numbers of records."""
    for name in ("aggregate_train", "aggregate_fit"):  # the second of a strategy of before
        merges = getattr(type(strategies_in(strategy)[-1]), name, None)
        if merges is not None and merges.__qualname__ == f"FedAvg.{name}" and merges.__module__.startswith("flwr."):
            return True
    return False


def private_wrapper(strategy: Any) -> Any | None:
    """Flower's own differentially private wrapper, where there is one."""
    known = ("noise_multiplier", "clipping_norm", "num_sampled_clients")
    return next((one for one in strategies_in(strategy) if all(hasattr(one, name) for name in known)), None)


def is_adaptive(wrapper: Any) -> bool:
    """Whether its clip follows the clients' updates."""
    return hasattr(wrapper, "target_clipped_quantile")
