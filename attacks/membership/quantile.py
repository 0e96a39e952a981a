"""Membership without shadow models: is the final model surer of a record than of nine in ten others like it?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..base import Knowledge, MembershipScores, Part, Progress, View
from ..cost import CALL, forward_operations
from . import signals
from .common import CANDIDATES, check_candidates, check_classes, global_models, report_progress
from .network import network_sent

LEAST = 50  # auxiliary records
COMPONENTS = 16  # of the inputs, beside the label
TREES = 60
_TREE, _RECORD = 5 * 10**7, 8 * 10**4  # operations of each tree, and of each record in it


@dataclass(frozen=True)
class QuantileMembership:
    """Quantile regression on records that are surely no members (Bertran et al. 2023, arXiv:2307.03694): which φ (the
    log-odds of its own label) would the model give a record, by its input and label alone, had it not been trained on?

    The score is (φ − q̂½) / (q̂.9 − q̂½): how far φ lies above the median that is predicted for it, in units of the
    distance to the ninth decile. One model is asked and none is trained, so that it costs seconds where shadows cost
    hours; a hard record and an easy one are compared with their own kind, which a loss threshold does not do.

    The quantiles are boosted trees on the first principal components of the auxiliary inputs and on the label.
    """

    name: str = field(default="membership-quantile", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part.

        Raises:
            ValueError: there are no candidates, no class labels, too few auxiliary records, or no global model is seen.
        """
        check_candidates(view, knowledge)
        check_classes(view, self.name)
        known = len(knowledge.auxiliary_targets)
        if known < LEAST:
            raise ValueError(
                f"{self.name!r} learns from records that are surely no members; the setup has {known} auxiliary ones,"
                f" at least {LEAST} are needed"
            )
        asked = len(knowledge.candidate_ids) + known
        work = CALL + asked * forward_operations(view.module, view.input_shape) + 2 * TREES * (_TREE + known * _RECORD)
        return [Part("final-model", work, global_models(view)[-1])]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        del seed
        weights, network = part.content.load(), network_sent(view, part.content)
        known = knowledge.auxiliary_inputs, knowledge.auxiliary_targets
        asked = knowledge.candidate_inputs, knowledge.candidate_targets
        seen, own = (signals.of_model(signals.phi, network, weights, *of).numpy() for of in (known, asked))
        features = Features.of(known[0], view.classes)
        scores = quantile_scores(features(*known), seen, features(*asked), own)
        report_progress(progress, 1, 1)
        assumed = (CANDIDATES, "auxiliary records of the same kind, surely no members")
        return MembershipScores(
            self.name,
            view.observer,
            "final-model",
            "",
            knowledge.candidate_ids,
            torch.from_numpy(scores),
            assumed,
            f"{len(seen)} others",
        )


@dataclass(frozen=True, eq=False)
class Features:
    """What a record is told by: its input's principal components, and a column for each label."""

    mean: Tensor
    axes: Tensor
    classes: int

    @classmethod
    def of(cls, inputs: Tensor, classes: int) -> Features:
        """The components (d, k) of inputs (n, *shape)."""
        flat = inputs.double().flatten(1)
        mean = flat.mean(0)
        axes = torch.linalg.svd(flat - mean, full_matrices=False).Vh[:COMPONENTS].T
        return cls(mean, axes, classes)

    def __call__(self, inputs: Tensor, targets: Tensor) -> NDArray[np.float64]:
        """(n, k + classes)."""
        labels = torch.nn.functional.one_hot(targets.long(), self.classes).double()
        return torch.cat([(inputs.double().flatten(1) - self.mean) @ self.axes, labels], 1).numpy()


def quantile_scores(
    known: NDArray[np.float64], seen: NDArray[np.float64], asked: NDArray[np.float64], own: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(own − q̂½) / (q̂.9 − q̂½) (n,), with quantiles learned from others; their distance is a hundredth of its mean at
    least, as trees may cross.

    Args:
        known: (m, f) features of others, with their φ `seen` (m,). asked: (n, f), with φ `own` (n,).
    """
    with threadpool_limits(1, "openmp"):  # two threads on trees this small wait for each other: 5 times slower
        middle, high = (_regressor(level).fit(known, seen).predict(asked) for level in (0.5, 0.9))
    wide = high - middle
    least = max(float(np.mean(np.abs(wide))) / 100, 1e-12)
    return (own - middle) / np.maximum(wide, least)


def _regressor(level: float) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor  # slow to import, and only this attack needs it

    return HistGradientBoostingRegressor(
        loss="quantile", quantile=level, max_iter=TREES, min_samples_leaf=10, early_stopping=False, random_state=0
    )
