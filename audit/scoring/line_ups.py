"""Which images stand beside a message's originals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...attacks.base import Knowledge
from ...defenses.data.dataset import DEALT_BY_LOT
from ...metrics.closer_test import OF_OTHER_SPLITS
from ..setup.auditor import Truth
from ..setup.folder import Setup
from ..setup.lot import strata

OWN = ("npz", "csv")  # data sets whose splits are what a user gives


@dataclass(frozen=True, eq=False)
class LineUps:
    """Of a setup's messages."""

    setup: Setup
    truth: Truth
    knowledge: Knowledge

    def others(self, rows: Sequence[int], apart: bool = False) -> tuple[Tensor, Tensor]:
        """Images and labels of the kind of those in `rows`, which are others. apart: labels as of `labels`."""
        truth, own = self.truth, set(rows)
        rest = [i for i in range(len(truth.inputs)) if i not in own]
        if truth.by_holder is not None:  # others of the same holders alone
            holders, of_gallery = truth.by_holder
            held = holders[list(rows)]
            rest = [i for i in rest if holders[i] in held]
            shown = torch.isin(of_gallery, held)
            inputs = torch.cat([truth.inputs[rest], truth.gallery_inputs[shown]])
            targets = torch.cat([truth.targets[rest], truth.gallery_targets[shown]])
            if apart:
                targets = self._of_holders(targets, torch.cat([holders[rest], of_gallery[shown]]))
            return inputs, targets
        alike = [(truth.inputs[rest], truth.targets[rest])]
        if self.splits_of_ones_own:  # they may be of another kind, which a picture made of nothing shows too
            alike.append((truth.pool_inputs, truth.pool_targets))
        else:
            alike.append((self.knowledge.auxiliary_inputs, self.knowledge.auxiliary_targets))
            alike.append((truth.gallery_inputs, truth.gallery_targets))
        return torch.cat([images for images, _ in alike]), torch.cat([labels for _, labels in alike])

    def labels(self, rows: Sequence[int]) -> Tensor:
        """What those in `rows` have in common with whatever a lot might have dealt in their place: the label, and the
        holder where rows have one.
        """
        targets = self.truth.targets[list(rows)]
        if self.truth.by_holder is None:
            return targets
        return self._of_holders(targets, self.truth.by_holder[0][list(rows)])

    def _of_holders(self, targets: Tensor, holders: Tensor) -> Tensor:
        return strata(targets, holders, self.setup.manifest.data.classes_of_records)

    def of_the_lot(self, rows: Sequence[int], apart: bool = False) -> tuple[Tensor, Tensor]:
        """Images and labels that were dealt as those in `rows`: the clients' others, and what was left over by the same
        lot, or other splits where nothing was. apart: labels as of `labels`.
        """
        if not self.left_over:
            return self.others(rows, apart)
        truth, own = self.truth, set(rows)
        rest = [i for i in range(len(truth.inputs)) if i not in own]
        return torch.cat([truth.inputs[rest], truth.pool_inputs]), torch.cat([truth.targets[rest], truth.pool_targets])

    @property
    def left_over(self) -> bool:
        """Whether the lot that dealt the clients' records left some over."""
        return len(self.truth.pool_inputs) > 0

    @property
    def splits_by_lot(self) -> bool:
        """Whether test and auxiliary records might as well have been dealt to the clients: out of one set with theirs.
        An archive's auxiliary records may be from anywhere.
        """
        data = self.setup.manifest.data
        return data.name != "npz" and data.description.get("test") == DEALT_BY_LOT

    @property
    def slack(self) -> float:
        """How many dB images of other splits may be further off than chance says."""
        if self.splits_by_lot or self.splits_of_ones_own:
            return 0.0
        return OF_OTHER_SPLITS

    @property
    def splits_of_ones_own(self) -> bool:
        """Whether test and auxiliary records are what somebody gave, not dealt out of one set with those trained on."""
        data = self.setup.manifest.data
        return data.name in OWN and data.description.get("test") != DEALT_BY_LOT
