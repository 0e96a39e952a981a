"""dpfl-audit: what does a differentially private federated learning setup leak? Claimed, proven, demonstrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfl_audit.audit.canary.mechanism import audit_mechanism

__version__ = "0.1.0"
__all__ = ["__version__", "audit_mechanism"]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import dpfl_audit` does not pay for torch."""
    if name == "audit_mechanism":
        from dpfl_audit.audit.canary.mechanism import audit_mechanism

        return audit_mechanism
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
