"""Correlated noise with its declared correlation taken off: what is left is white where the declared matrix was used.

The noises η of the rounds that are known have covariance σ² D Dᵀ, D = C⁻¹. With the Cholesky factor L of it, L⁻¹ η is
white, whatever rounds are missing, and every test of independent noise holds of it. Noise that another matrix made, or
none, is not white then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .matrix import decoded
from .mechanism import Correlated
from .noise_tests import LeftOver
from .rounds import ClosedRound

_Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Whitened:
    """rounds: as tests of independent noise take them. least: of the eigenvalues of the correlation of what is measured
    along directions, over the largest, at most 1: what such a sum of squares may be less than of independent noise.
    """

    rounds: tuple[ClosedRound, ...]
    least: float = 1.0


def whitened(rounds: Sequence[ClosedRound]) -> Whitened:
    """Rounds of one correlated noise as if their noises were independent; all others as they are.

    What a noise is along a direction of its own round keeps a correlation that hangs on the directions, whose
    eigenvalues are between those of the noises' (Schur 1911): its size is taken for the largest it can have.
    """
    known = [r for r in rounds if r.residuals]
    if not known or not all(r.mechanism and isinstance(r.mechanism[0], Correlated) for r in known):
        return Whitened(tuple(rounds))
    declared = known[0].mechanism[0]
    assert isinstance(declared, Correlated)
    if any(r.mechanism != known[0].mechanism for r in known):
        return Whitened(tuple(rounds))
    rows = decoded(declared.strategy)[[r.number for r in known]]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(rows @ rows.T)
    white: dict[int, LeftOver] = {}
    for session in dict.fromkeys(r.session for r in known):
        own = [r for r in known if r.session == session]
        white |= _of_session(own, rows[[r.session == session for r in known]])
    most = float(np.sqrt(values[-1]))
    return Whitened(
        tuple(
            replace(
                closed,
                residuals=tuple(white[closed.number] for _ in closed.residuals[:1]),
                weighed=tuple(replace(w, along=w.along / most, twice=w.twice / most) for w in closed.weighed),
                projections=tuple(replace(p, spread=p.spread * most) for p in closed.projections),
                copies=(),  # noises that are nearly one another's opposites may have many signs in common
            )
            for closed in rounds
        ),
        max(0.0, float(values[0] / values[-1])),
    )


def _of_session(own: Sequence[ClosedRound], rows: _Matrix) -> dict[int, LeftOver]:
    """By round. rows: (n, k), of D, each of length 1."""
    values = np.stack([r.residuals[0].values for r in own])
    values[:, ~np.isfinite(values).all(axis=0)] = np.nan  # where float32 is too coarse in some round
    values = np.linalg.solve(np.linalg.cholesky(rows @ rows.T), np.nan_to_num(values)) + 0.0 * values
    made = {}
    for i, (r, row) in enumerate(zip(own, values)):
        left = r.residuals[0]
        alike = left.alike if i == 0 else ()  # signs of several rounds are not independent
        made[r.number] = replace(left, values=row, name=f"the white noise of {left.name}", alike=alike)
    return made
