"""All schemes by name: one small file a paper, one line in this list."""

from . import anonymous, fedavg, ldp
from .base import Parameters, Population, Preset

_ALL = (
    fedavg.PRESET,
    ldp.PRESET,
    anonymous.GOSSIP,
    anonymous.LEADER,
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}

__all__ = ["PRESETS", "Parameters", "Population", "Preset"]
