"""All schemes by name: one small file a paper, one line in this list."""

from . import (
    anonymous,
    cdp,
    component,
    dp_fedavg,
    dpfedavg,
    dpsgd,
    fedavg,
    fednore,
    geometric,
    laplace,
    lcdp,
    ldp,
    naafl,
    nbafl,
)
from .base import Parameters, Population, Preset

_ALL = (
    fedavg.PRESET,
    ldp.PRESET,
    cdp.PRESET,
    lcdp.PRESET,
    fednore.FEDNORE1,
    fednore.FEDNORE2,
    fednore.FEDNORE12,
    nbafl.PRESET,
    naafl.PRESET,
    geometric.PRESET,
    laplace.PRESET,
    component.PRESET,
    dpfedavg.LAPLACE,
    dpfedavg.GAUSSIAN,
    anonymous.GOSSIP,
    anonymous.LEADER,
    dp_fedavg.PRESET,
    dpsgd.PRESET,
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}

__all__ = ["PRESETS", "Parameters", "Population", "Preset"]
