"""A setup's records as inversions are scored: images as they are, rows of a table on the scale that is searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...attacks.base import Knowledge
from ...defenses.data.unit_scale import UnitScale
from ...metrics.cells import CellKind
from ..setup.auditor import Auditor
from ..setup.folder import Setup


@dataclass(frozen=True, eq=False)
class Pictured:
    """The truth and what is known, in pictures (n, c, h, w) in [0, 1].

    normalise: mean and std (c,) of their pixels. cells: of a table, what `cells_right` asks for; None for images.
    """

    auditor: Auditor
    knowledge: Knowledge
    normalise: tuple[Tensor, Tensor]
    cells: Sequence[CellKind] | None = None

    @classmethod
    def of(cls, setup: Setup, auditor: Auditor, knowledge: Knowledge) -> Pictured:
        """Of a setup's both halves and what is granted."""
        data, columns = setup.manifest.data, setup.columns
        mean, std = torch.tensor(data.mean), torch.tensor(data.std)
        if not columns:
            return cls(auditor, knowledge, (mean, std))
        scale = UnitScale.of(columns)
        width = (scale.most - scale.least).float()
        known = replace(knowledge, auxiliary_inputs=scale.images(knowledge.auxiliary_inputs))
        cells = [(c.width, 0.0 if c.words else c.spread / (c.most - c.least)) for c in columns]
        normalise = (mean - scale.least.float()) / width, std / width
        truth = auditor.truth
        if truth is None:
            return cls(auditor, known, normalise, cells)
        pictured = replace(
            truth,
            inputs=scale.images(truth.inputs),
            gallery_inputs=scale.images(truth.gallery_inputs),
            pool_inputs=scale.images(truth.pool_inputs),
        )
        return cls(auditor.having_truth(pictured), known, normalise, cells)
