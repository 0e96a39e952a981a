"""Releases for tests, stated as a recording would state them."""

from __future__ import annotations

import itertools
from typing import Any

from dpfl_audit.defenses.releases import GaussianLaw, LaplaceLaw, NoiseFact, Release, _restated, declare

_ids = itertools.count()
changed = _restated


def stated(law: NoiseFact | float = 1.0, bound: float | None = 1.0, **facts: Any) -> Release:
    """About client 0, behind a bound of 1. law: a number is the standard deviation of Gaussian noise."""
    law = GaussianLaw(law) if isinstance(law, float | int) else law
    order = 1 if isinstance(law, LaplaceLaw) else 2
    known = {"id": f"r{next(_ids)}", "round": 0, "subjects": frozenset({0}), "bound_order": order, **facts}
    return declare(law=law, bound_norm=bound, **known)
