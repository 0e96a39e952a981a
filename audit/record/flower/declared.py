"""What a Flower strategy and a client's mods declare of clip, noise and sampling: read here, and nowhere else.

`LocalNoise` is a LocalDpMod's, `CentralNoise` that of Flower's differentially private wrapper round a strategy. Both
are plain numbers, as they are at the moment of reading: an adaptive clip changes from round to round.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import inf, log, sqrt
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


def weight_key(strategy: Any) -> str:
    """The metric of a reply by which the innermost strategy weighs it: its number of records."""
    return str(getattr(strategies_in(strategy)[-1], "weighted_by_key", "num-examples"))


@dataclass(frozen=True)
class LocalNoise:
    """What a LocalDpMod is told. clip: of a client's whole update, L2. sensitivity: what its noise is scaled to.
    epsilon, delta: what it is for.
    """

    clip: float
    sensitivity: float
    epsilon: float
    delta: float

    @classmethod
    def of(cls, mod: Any) -> LocalNoise | None:
        """None of any other mod."""
        names = ("clipping_norm", "sensitivity", "epsilon", "delta")
        if not all(isinstance(getattr(mod, name, None), int | float) for name in names):
            return None
        return cls(*(float(getattr(mod, name)) for name in names))

    @property
    def values(self) -> tuple[float, float, float, float]:
        return astuple(self)

    @property
    def noise_std(self) -> float:
        """What LocalDpMod adds: sensitivity·√(2 ln(1.25/δ))/ε, the classic Gaussian mechanism's (Dwork and Roth 2014,
        theorem A.1, which is proven for ε < 1 alone).

        >>> round(LocalNoise(1.0, 1.0, 1.0, 1e-5).noise_std, 4)
        4.8448
        """
        if self.epsilon == 0:
            return inf
        return self.sensitivity * sqrt(2 * log(1.25 / self.delta)) / self.epsilon

    @property
    def noisy(self) -> bool:
        return 0 < self.noise_std < inf

    def __str__(self) -> str:
        """As it is written in an app."""
        numbers = f"clipping_norm={self.clip:g}, sensitivity={self.sensitivity:g}"
        return f"LocalDpMod({numbers}, epsilon={self.epsilon:g}, delta={self.delta:g})"


@dataclass(frozen=True)
class CentralNoise:
    """What Flower's differentially private wrapper declares now.

    name: the wrapper's class. clip: of a client's whole update, L2. multiplier: z. clients: how many are sampled for a
    round, n. quantile: the share of updates that an adaptive clip is to leave whole; None where the clip is fixed.
    count_std: of the noise on the count of clipped updates. clip_rate: η, by which an adaptive clip follows it.
    """

    name: str
    clip: float
    multiplier: float
    clients: int
    quantile: float | None
    count_std: float
    clip_rate: float

    @classmethod
    def of(cls, strategy: Any) -> CentralNoise | None:
        """None where no such wrapper is round the strategy."""
        names = ("noise_multiplier", "clipping_norm", "num_sampled_clients")
        for wrapper in strategies_in(strategy):
            if all(hasattr(wrapper, name) for name in names):
                quantile = getattr(wrapper, "target_clipped_quantile", None)
                return cls(
                    type(wrapper).__name__,
                    float(wrapper.clipping_norm),
                    float(wrapper.noise_multiplier),
                    int(wrapper.num_sampled_clients),
                    None if quantile is None else float(quantile),
                    float(getattr(wrapper, "clipped_count_stddev", None) or 0.0),
                    float(getattr(wrapper, "clip_norm_lr", None) or 0.0),
                )
        return None

    @property
    def adaptive(self) -> bool:
        """Whether its clip follows the clients' updates."""
        return self.quantile is not None

    @property
    def noisy(self) -> bool:
        return self.multiplier > 0

    @property
    def noise_std(self) -> float:
        """z·C/n, on the mean."""
        return self.multiplier * self.clip / self.clients
