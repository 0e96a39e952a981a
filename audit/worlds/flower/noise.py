"""What an app's own parameters declare of clip and noise, in one round: LocalDpMod's, or its strategy wrapper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....defenses.terms import Adjacency, Unit
from ...proof.theorems.gaussian import gaussian_epsilon
from ...record.flower.declared import CentralNoise, LocalNoise, merges_by_mean
from ...record.flower.defects import (
    FlowerDefect,
    fewer_than_noise_is_for,
    other_sensitivity,
    unclipped_tensors,
    weights_beyond_noise,
)
from ...say.words import at_most, number
from ..outcome import DEFECT


@dataclass(frozen=True)
class AppNoise:
    """What is declared. what: whose parameters, in words. clip, noise_std: in parameter units.

    share: the audited client's in what the noise is added to, 1 for its own update. epsilon, delta: that a LocalDpMod
    is for, None where nobody says. one_size: whether the noise is Gaussian of one size, whatever the client sends.
    remarks: known defects that its numbers show.
    """

    what: str
    clip: float
    noise_std: float
    share: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    one_size: bool = True
    remarks: tuple[str, ...] = ()

    @property
    def multiplier(self) -> float:
        """Noise over what the client can add."""
        return self.noise_std / (self.share * self.clip)

    def parameters(self) -> dict[str, Any]:
        """For the page."""
        part = "" if self.share == 1 else f", {self.share:.3g} of the mean"
        return {
            "clip_norm": self.clip,
            "noise_std": self.noise_std,
            "noise_multiplier": self.multiplier,
            "sensitivity": f"C = {self.clip:g} (a client's whole update{part}; client, zero_out), declared",
        }

    def sentences(self, unit: Unit, adjacency: Adjacency, delta: float) -> list[str]:
        """What these numbers give exactly, and what is wrong with them."""
        twice = unit == "record" or adjacency == "replace_one"  # one record can turn a whole update round
        said = f"Declared by {self.what}: clip {self.clip:g}, noise of standard deviation {self.noise_std:.4g}"
        if self.one_size:
            exact = gaussian_epsilon(self.multiplier / (2 if twice else 1), delta)
            said += (
                f"; of one round at these numbers ε per {unit} ({adjacency}, δ = {number(delta)}) is {at_most(exact)}"
            )
        return [f"{said}.", *self.remarks]


def local_noise(mods: Sequence[Any], shapes: Mapping[str, tuple[int, ...]]) -> AppNoise | None:
    """The one LocalDpMod's among an app's mods; None where there is none, or several.

    mods: of the client's app. shapes: of the model's tensors.
    """
    declared = [known for mod in mods if (known := LocalNoise.of(mod)) is not None]
    if len(declared) != 1 or not declared[0].noisy:
        return None
    (local,) = declared
    defects = (other_sensitivity(*local.values), unclipped_tensors(shapes))
    return AppNoise(str(local), local.clip, local.noise_std, 1.0, local.epsilon, local.delta, remarks=_remarks(defects))


def strategy_noise(strategy: Any, counts: Sequence[int], shapes: Mapping[str, tuple[int, ...]]) -> AppNoise | None:
    """That of Flower's private wrapper round a strategy that takes a mean; None without one, or without noise.

    Args:
        strategy: of the app's server. counts: records of each client that replies, the audited one first. shapes: of
            the model's tensors.
    """
    noise = CentralNoise.of(strategy)
    if noise is None or not noise.noisy or not merges_by_mean(strategy):
        return None
    share = counts[0] / sum(counts)
    defects = [
        fewer_than_noise_is_for(len(counts), noise.clients),
        weights_beyond_noise(counts, noise.clients, noise.multiplier) if len(counts) >= noise.clients else None,
        unclipped_tensors(shapes),
    ]
    what = f"{noise.name}(noise_multiplier={noise.multiplier:g}, num_sampled_clients={noise.clients})"
    return AppNoise(what, noise.clip, noise.noise_std, share, one_size=not noise.adaptive, remarks=_remarks(defects))


def _remarks(defects: Sequence[FlowerDefect | None]) -> tuple[str, ...]:
    """
    >>> _remarks([None, FlowerDefect("a", "b", "the noise is small")])
    ('Known defect (a): the noise is small.',)
    """
    return tuple(f"{DEFECT} ({one.what}): {one.why}." for one in defects if one is not None)
