"""What several benchmarks score an inversion by: its pictures' pixels alone, beside the attacker's controls."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.metrics.leakage import score_images
from dpfl_audit.metrics.perceptual import NotMeasured
from scipy.stats import t as student
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


def over_seeds(values: list[float]) -> str:
    """Mean and 95 % limits by Student's t."""
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{fmean(values):.1f} ({fmean(values) - half:.1f} to {fmean(values) + half:.1f})"
