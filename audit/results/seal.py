"""The mark by which a stored proof is known: of all that was proven, so that a number changed afterwards is none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..files import plain

SEALED = (
    *("observer", "unit", "adjacency", "delta", "proven", "proven_without_sampling"),
    *("accountant", "multiplier", "releases", "mu", "profile", "premises", "ledger"),
)  # fields of a row that belong to its proof


def seal(row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's sealed fields, of which those that are missing count as None, and a missing profile as an
    empty one; 32 hexadecimal digits.
    """
    return mark([plain(row.get(name, () if name == "profile" else None)) for name in SEALED])


def mark(content: Any) -> str:
    """SHA-256 of what JSON has, 32 hexadecimal digits; "" of nothing."""
    if not content:
        return ""
    return hashlib.sha256(json.dumps(content, allow_nan=False).encode()).hexdigest()[:32]
