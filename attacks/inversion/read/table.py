"""Rows of a table put so that an inversion finds them: as images of a channel for each feature and one pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ....defenses.data.unit_scale import UnitScale
from ...base import Knowledge, View


@dataclass(frozen=True, eq=False)
class OwnRows:
    """The attacker's own rows of the table: images (m, f, 1, 1) in [0, 1], labels (m,)."""

    images: Tensor
    labels: Tensor


def as_images(view: View, knowledge: Knowledge) -> tuple[View, Knowledge]:
    """What an observer of images (c, h, w) has; of a table, the same network of the same weights, asked for images in
    [0, 1] (`UnitScale` of the table's columns), and auxiliary rows as such.

    Raises:
        ValueError: inputs are neither images nor rows.
    """
    if len(view.input_shape) == 3:
        return view, knowledge
    if view.input_shape != (sum(column.width for column in view.columns),):
        raise ValueError(
            "gradient inversion reconstructs images (channels, height, width) and rows of a table; the setup's inputs"
            f" have shape {view.input_shape}"
        )
    scale = UnitScale.of(view.columns)
    pictured = replace(view, module=scale.module(view.module), input_shape=(len(scale.least), 1, 1))
    return pictured, replace(knowledge, auxiliary_inputs=scale.images(knowledge.auxiliary_inputs))


def all_as_images(views: Sequence[View], knowledge: Sequence[Knowledge]) -> tuple[list[View], list[Knowledge]]:
    """`as_images` of each; what several share before, a network or auxiliary rows, they share after."""
    seen: dict[int, View] = {}
    rows: dict[int, Tensor] = {}
    for view, own in zip(views, knowledge):
        if id(view) not in seen or id(own.auxiliary_inputs) not in rows:
            pictured, known = as_images(view, own)
            seen.setdefault(id(view), pictured)
            rows.setdefault(id(own.auxiliary_inputs), known.auxiliary_inputs)
    given = [replace(own, auxiliary_inputs=rows[id(own.auxiliary_inputs)]) for own in knowledge]
    return [seen[id(view)] for view in views], given
