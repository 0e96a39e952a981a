"""The largest PSNR that a proof allows any attack on a message's pictures, under two named priors."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log

import torch
from torch import Tensor

from ...attacks.base import Reconstruction
from ...defenses.terms import Observer
from ..proof.theorems.pictures import decibels, even_error, gaussian_error
from ..results.checks import SIGNIFICANCE
from ..results.format import AttackResult, Metrics
from .limits import Limits


def with_closest(
    entry: AttackResult, reconstruction: Reconstruction, limits: Limits, last_round: int, spread: Callable[[], Tensor]
) -> AttackResult:
    """The entry with `psnr_ceiling_even`, and where there are auxiliary pictures with `psnr_ceiling`; without either
    where the proof allows anything.

    In 95 % of trainings no picture of the message comes back with a larger PSNR, whichever of the attack's pictures it
    is compared with: the 5 % are shared by all of them, and each may be closest to any. That holds of pictures drawn
    from the prior alone. Real ones have other shapes, and more of them than 5 % may be guessed better.

    Args:
        spread: `variances` of auxiliary pictures in [0, 1], whose labels' means and covariance the Gaussian prior has.
    """
    originals = len({pair.original for pair in entry.pairs})
    if not originals:
        return entry
    kappa = limits.closeness(Observer.parse(reconstruction.observer), last_round, SIGNIFICANCE / originals)
    if kappa == -inf:
        return entry
    kappa -= log(len(reconstruction.images))
    pixels = reconstruction.images[0].numel()
    numbers = {"psnr_ceiling_even": decibels(even_error(kappa, pixels))}
    error = gaussian_error(kappa, spread().numpy(), pixels)
    if error > 0:
        numbers["psnr_ceiling"] = decibels(error)
    return entry.having(metrics=Metrics.of({**entry.numbers, **numbers}))


def variances(pictures: Tensor, labels: Tensor) -> Tensor:
    """(k,) float64: those of pictures (m, …) about the mean of their label, which attackers may know, along the axes of
    their covariance; () where there are too few, or labels (m, …) are no classes.
    """
    if labels.ndim != 1 or labels.is_floating_point():
        return torch.zeros(0, dtype=torch.float64)
    rows = pictures.flatten(1).double()
    known, place = labels.unique(return_inverse=True)
    free = len(rows) - len(known)
    if free < 1:
        return torch.zeros(0, dtype=torch.float64)
    means = torch.stack([rows[place == number].mean(0) for number in range(len(known))])
    return torch.linalg.svdvals(rows - means[place]).square() / free
