"""What several benchmarks score an inversion by: its pictures' pixels alone, beside the attacker's controls."""

from __future__ import annotations

from typing import Any

from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.metrics.leakage import score_images
from dpfl_audit.metrics.perceptual import NotMeasured
from torch import Tensor

UNJUDGED = NotMeasured("pixels alone are compared here")


def scored(images: Tensor, labels: Tensor, found: Solution, data: Dataset, **more: Any) -> dict[str, Any]:
    """`score_images` of a solution.

    Args:
        images, labels: the true ones. found: what an attack made of them. data: whose auxiliary records are controls.
        more: further arguments of `score_images`, as the distractors of a line-up.
    """
    return score_images(
        images,
        found.images,
        labels=labels,
        reconstruction_labels=found.labels,
        start=found.start,
        auxiliary=data.auxiliary_inputs,
        auxiliary_labels=data.auxiliary_targets,
        classifiers=UNJUDGED,
        perceptual=UNJUDGED,
        **more,
    )
