"""dpfl-audit: what does a differentially private federated learning setup leak? Claimed, proven, demonstrated."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfl_audit.audit.api import choose, run, train
    from dpfl_audit.audit.ci.assertions import assert_leakage, assert_private
    from dpfl_audit.audit.errors import BadInput
    from dpfl_audit.audit.record.flower.grid import record_server
    from dpfl_audit.audit.record.flower.mods import AuditMod
    from dpfl_audit.audit.record.flower.strategy import record_strategy
    from dpfl_audit.audit.record.mechanism import Correlated, Gaussian, Laplace
    from dpfl_audit.audit.record.nvflare import AuditFilter
    from dpfl_audit.audit.record.recorder import Recorder
    from dpfl_audit.audit.replay.replay import replay
    from dpfl_audit.audit.report.saved import SavedResults as Results
    from dpfl_audit.audit.setup.config import Config
    from dpfl_audit.audit.worlds.dpsgd import audit_dpsgd
    from dpfl_audit.audit.worlds.flower.audited import audit_flower
    from dpfl_audit.audit.worlds.function import audit_mechanism
    from dpfl_audit.audit.worlds.opacus import audit_opacus
    from dpfl_audit.audit.worlds.transcript import Steps
    from dpfl_audit.defenses.releases import Sampling

__version__ = "0.1.0"
__all__ = [
    "AuditFilter",
    "AuditMod",
    "BadInput",
    "Config",
    "Correlated",
    "Gaussian",
    "Laplace",
    "Recorder",
    "Results",
    "Sampling",
    "Steps",
    "__version__",
    "assert_leakage",
    "assert_private",
    "audit_dpsgd",
    "audit_flower",
    "audit_mechanism",
    "audit_opacus",
    "choose",
    "record_server",
    "record_strategy",
    "replay",
    "run",
    "train",
]

_HOME = {  # where a public name is, and what it is called there
    "AuditFilter": ("audit.record.nvflare", "AuditFilter"),
    "AuditMod": ("audit.record.flower.mods", "AuditMod"),
    "BadInput": ("audit.errors", "BadInput"),
    "Config": ("audit.setup.config", "Config"),
    "Correlated": ("audit.record.mechanism", "Correlated"),
    "Gaussian": ("audit.record.mechanism", "Gaussian"),
    "Laplace": ("audit.record.mechanism", "Laplace"),
    "Recorder": ("audit.record.recorder", "Recorder"),
    "Results": ("audit.report.saved", "SavedResults"),
    "Sampling": ("defenses.releases", "Sampling"),
    "Steps": ("audit.worlds.transcript", "Steps"),
    "assert_leakage": ("audit.ci.assertions", "assert_leakage"),
    "assert_private": ("audit.ci.assertions", "assert_private"),
    "audit_mechanism": ("audit.worlds.function", "audit_mechanism"),
    "audit_dpsgd": ("audit.worlds.dpsgd", "audit_dpsgd"),
    "audit_flower": ("audit.worlds.flower.audited", "audit_flower"),
    "audit_opacus": ("audit.worlds.opacus", "audit_opacus"),
    "choose": ("audit.api", "choose"),
    "record_server": ("audit.record.flower.grid", "record_server"),
    "record_strategy": ("audit.record.flower.strategy", "record_strategy"),
    "replay": ("audit.replay.replay", "replay"),
    "run": ("audit.api", "run"),
    "train": ("audit.api", "train"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import dpfl_audit` does not pay for torch."""
    if name in _HOME:
        module, there = _HOME[name]
        return getattr(importlib.import_module(f"dpfl_audit.{module}"), there)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
