"""Which images stand beside a message's originals, and which of these the pictures made of any message pick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...attacks.base import Knowledge, Reconstruction
from ...defenses.data.dataset import DEALT_BY_LOT
from ...metrics.reidentification import line_up
from ..setup.auditor import Truth
from ..setup.folder import Setup

OWN = ("npz", "csv")  # data sets whose splits are what a user gives
BESIDE = 500  # images in a line-up that the pictures of all messages stand before


@dataclass(frozen=True, eq=False)
class LineUps:
    """Of a setup's messages."""

    setup: Setup
    truth: Truth
    knowledge: Knowledge

    def others(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels of the kind of those in `rows`, which are others."""
        truth, own = self.truth, set(rows)
        rest = [i for i in range(len(truth.inputs)) if i not in own]
        alike = [(truth.inputs[rest], truth.targets[rest])]
        if self._splits_of_ones_own:  # they may be of another kind, which a picture made of nothing shows too
            alike.append((truth.pool_inputs, truth.pool_targets))
        else:
            alike.append((self.knowledge.auxiliary_inputs, self.knowledge.auxiliary_targets))
            alike.append((truth.gallery_inputs, truth.gallery_targets))
        return torch.cat([images for images, _ in alike]), torch.cat([labels for _, labels in alike])

    def of_the_lot(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels that were dealt as those in `rows`: the clients' others, and what was left over by the same
        lot, or other splits where nothing was.
        """
        if not self.left_over:
            return self.others(rows)
        truth, own = self.truth, set(rows)
        rest = [i for i in range(len(truth.inputs)) if i not in own]
        return torch.cat([truth.inputs[rest], truth.pool_inputs]), torch.cat([truth.targets[rest], truth.pool_targets])

    @property
    def left_over(self) -> bool:
        """Whether the lot that dealt the clients' records left some over."""
        return len(self.truth.pool_inputs) > 0

    @property
    def _splits_of_ones_own(self) -> bool:
        """Whether test and auxiliary records are what somebody gave, not dealt out of one set with those trained on."""
        data = self.setup.manifest.data
        return data.name in OWN and data.description.get("test") != DEALT_BY_LOT

    def swapped(
        self, sent: Sequence[tuple[Sequence[int], Reconstruction]], labels_known: bool, seed: int = 0
    ) -> tuple[Tensor, list[tuple[int, int]]]:
        """How many images of message i the pictures made of message j pick, (k, k), and what messages must share for
        that: how many records they are of and how many pictures there are. 0 where they do not.

        sent: the rows of each message's records, and what was made of it. labels_known: whether a picture chooses among
        images of its label alone, which is then that of the picture whose place it takes.
        """
        alike = [(len(rows), len(made.images)) for rows, made in sent]
        hits = torch.zeros(len(sent), len(sent))
        rng = torch.Generator().manual_seed(seed)
        for i, (rows, own) in enumerate(sent):
            members = [j for j, kind in enumerate(alike) if kind == alike[i]]
            pictures = torch.cat([sent[j][1].images for j in members])
            images, labels = self.others(rows)
            beside = torch.randperm(len(images), generator=rng)[:BESIDE]
            known = (self.truth.targets[rows], labels[beside]) if labels_known else ()
            given = (own.labels.repeat(len(members)),) if labels_known else ()
            picks = line_up(self.truth.inputs[rows], images[beside], *known).pick(pictures, *given).picks
            of_each = torch.tensor(picks).view(len(members), -1)
            for j, own_picks in zip(members, of_each):
                hits[i, j] = len(own_picks[own_picks >= 0].unique())
        return hits, alike
