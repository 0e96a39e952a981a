"""Whether a round's uploads were averaged as is declared: the next model is then their mean, but for one factor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

FITS = 1e-3  # of the step's length, and of a weight: what float32 leaves of a sum
SPARE = 10  # numbers that moved, to every upload: of fewer some combination may fit by chance


def other_weights(step: Tensor, changes: Mapping[int, Tensor], weights: Mapping[int, float]) -> str:
    """That the uploads were weighed otherwise, in a sentence; "" where they were not, or nothing tells.

    A server that does more than averaging and scaling (momentum, Adam, a model of its own) makes no combination of the
    uploads, so nothing is found of it.

    Args:
        step: (m,), of the same m numbers of all: from the model that was broadcast to the next one.
        changes: (m,) by client, as sent.
        weights: as declared, by client; they sum to 1.

    >>> from torch import arange, ones
    >>> changes, half = {0: arange(1.0, 31.0), 1: ones(30)}, {0: 0.5, 1: 0.5}
    >>> other_weights(changes[0] + changes[1], changes, half)  # the sum: their mean, twice
    ''
    >>> other_weights(0.9 * changes[0] + 0.1 * changes[1], changes, half)
    'the next model takes client 0 with a weight of 0.9, and 0.5 is declared'
    >>> 'say average="mean"' in other_weights(changes[0] + changes[1], changes, {0: 0.9, 1: 0.1})
    True
    """
    moved = int((step != 0).sum())
    if len(changes) < 2 or moved < SPARE * len(changes):
        return ""
    clients = sorted(changes)
    rows = np.stack([changes[client].numpy() for client in clients])
    wanted = step.numpy()
    found, _, rank, _ = np.linalg.lstsq((rows @ rows.T).astype(np.float64), (rows @ wanted).astype(np.float64))
    left = np.linalg.norm(wanted - found.astype(rows.dtype) @ rows)
    total = float(found.sum())
    if rank < len(clients) or not total or not left <= FITS * np.linalg.norm(wanted):
        return ""
    declared = np.array([weights[client] for client in clients])
    apart = np.abs(found / total - declared)
    worst = int(apart.argmax())
    if apart[worst] <= FITS:
        return ""
    weights_taken = (
        f"the next model takes client {clients[worst]} with a weight of {found[worst] / total:.3g}, and"
        f" {declared[worst]:.3g} is declared"
    )
    if np.abs(found / total - 1 / len(clients)).max() > FITS:
        return weights_taken
    return f'{weights_taken} (average="records" is the default); of a plain mean say average="mean"'
