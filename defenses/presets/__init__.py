"""All schemes by name: one small file a paper, one line in this list."""

from collections import ChainMap

from . import (
    adap_dpfl,
    adaptive_clip,
    anonymous,
    cdp,
    central_gaussian,
    component,
    distributed_gaussian,
    dpsgd,
    fed_alpha_cdp,
    fed_cdp,
    fedavg,
    fednore,
    ftrl,
    geometric,
    iteration,
    laplace,
    lcdp,
    ldp,
    ldp_fl,
    local_gaussian,
    naafl,
    nbafl,
    privatedl,
    recorded,
    thesis_baseline,
)
from .base import GROUPS, Parameters, Population, Preset

_ALL = (
    fedavg.PRESET,
    local_gaussian.PRESET,
    central_gaussian.PRESET,
    adaptive_clip.PRESET,
    ftrl.DP_FTRL,
    ftrl.BAND_MF,
    ftrl.BLT_PRESET,
    distributed_gaussian.PRESET,
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
    iteration.LAPLACE,
    iteration.GAUSSIAN,
    anonymous.GOSSIP,
    anonymous.LEADER,
    thesis_baseline.PRESET,
    dpsgd.PRESET,
    adap_dpfl.PRESET,
    ldp_fl.PRESET,
    fed_cdp.FED_CDP,
    fed_cdp.FED_SDP,
    fed_alpha_cdp.FED_ALPHA_CDP,
    fed_alpha_cdp.DP_DYNS,
    privatedl.PRESET,
)

PRESETS: dict[str, Preset] = {p.name: p for p in sorted(_ALL, key=lambda p: tuple(GROUPS).index(p.group))}

KNOWN = ChainMap(PRESETS, {recorded.RECORDED.name: recorded.RECORDED})  # all that a setup may name

__all__ = ["GROUPS", "KNOWN", "PRESETS", "Parameters", "Population", "Preset"]
