"""How many cells of a table's rows a reconstruction has right (TabLeak, Vero et al. 2023, arXiv:2210.01785)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TOLERANCE = 0.319  # standard deviations that a number may be off, as in their code (`create_tolerance_map`)

# How many features a column is, 1 for a number and more for words; and a number's standard deviation.
CellKind = tuple[int, float]


def cells_right(originals: Tensor, rebuilt: Tensor, cells: Sequence[CellKind]) -> Tensor:
    """The share of each row's cells (n,) that are right: the word whose feature is the largest of its column, a number
    within `TOLERANCE` standard deviations.

    Args:
        originals, rebuilt: rows (n, features) or (n, features, 1, 1), already paired.
        cells: of every column, in their order; deviations on the scale of the rows.

    >>> a = torch.tensor([[0.0, 1.0, 0.0]])
    >>> cells_right(a.expand(2, 3), torch.tensor([[0.3, 0.4, 0.6], [0.0, 0.9, 0.1]]), [(1, 1.0), (2, 0.0)]).tolist()
    [0.5, 1.0]
    """
    a, b = originals.flatten(1).double(), rebuilt.flatten(1).double()
    right, place = [], 0
    for width, deviation in cells:
        own, other = a[:, place : place + width], b[:, place : place + width]
        if width > 1:
            right.append(own.argmax(1) == other.argmax(1))
        else:
            right.append((own[:, 0] - other[:, 0]).abs() <= TOLERANCE * deviation)
        place += width
    return torch.stack(right, 1).double().mean(1)
