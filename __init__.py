"""dpfl-audit: what does a differentially private federated learning setup leak? Claimed, proven, demonstrated."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfl_audit.audit.canary.mechanism import audit_mechanism
    from dpfl_audit.audit.results.format import Results

__version__ = "0.1.0"
__all__ = ["Results", "__version__", "audit_mechanism"]

_HOME = {"audit_mechanism": "audit.canary.mechanism", "Results": "audit.results.format"}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import dpfl_audit` does not pay for torch."""
    if name in _HOME:
        return getattr(importlib.import_module(f"dpfl_audit.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
