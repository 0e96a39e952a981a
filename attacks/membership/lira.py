"""LiRA: is the target model's φ on a record more like that of shadow models trained with it, or without it?"""

from __future__ import annotations

import torch
from torch import Tensor

PER_RECORD_FROM = 64  # shadows; with fewer a record's own variance is too noisy (Fig. 9 of the paper)


def lira(
    target: Tensor, shadows: Tensor, keep: Tensor, *, online: bool = True, per_record: bool | None = None
) -> Tensor:
    """Likelihood-ratio scores (n,), float64 (Carlini et al. 2022, arXiv:2112.03570).

    Args:
        target: (n,), φ of the attacked model. shadows: (S, n), φ of the shadow models.
        keep: (S, n) bool, True where shadow s trained on record i.
        online: ln N(φ; μ_in, σ_in) − ln N(φ; μ_out, σ_out) (Alg. 1). Else only shadows without the record count:
            −ln Pr[N(μ_out, σ_out) > φ], which orders records as the paper's one-sided test 1 − Pr[…] does (Eq. 4) but
            does not round to one value for the most exposed.
        per_record: a record's own variances; else variances over all records together, each record's φ centred by its
            own mean first. None: own variances from 64 shadows on.

    >>> phi = torch.tensor([[0.0, 5.0], [2.0, 1.0], [4.0, 7.0], [6.0, 3.0]])
    >>> keep = torch.tensor([[False, True], [False, False], [True, True], [True, False]])

    Means 5 and 1, 6 and 2, all variances 2:

    >>> [round(score, 6) for score in lira(torch.tensor([1.0, 6.0]), phi, keep).tolist()]
    [-4.0, 4.0]

    Raises:
        ValueError: shapes disagree, or a record has fewer than two shadows of a kind that is needed.
    """
    n = len(target)
    if shadows.shape != keep.shape or shadows.shape[1:] != (n,):
        raise ValueError(
            f"φ of the target {tuple(target.shape)}, of the shadows {tuple(shadows.shape)} and the keep matrix"
            f" {tuple(keep.shape)} must have shapes (n,), (S, n) and (S, n)"
        )
    own = len(shadows) >= PER_RECORD_FROM if per_record is None else per_record
    values, observed = shadows.double(), target.double()
    mean_out, std_out = _moments(values, ~keep, own, "without")
    z_out = (observed - mean_out) / std_out
    if not online:
        return -torch.special.log_ndtr(-z_out)
    mean_in, std_in = _moments(values, keep, own, "with")
    z_in = (observed - mean_in) / std_in
    return (z_out.square() - z_in.square()) / 2 + (std_out / std_in).log()


def _moments(values: Tensor, chosen: Tensor, own: bool, kind: str) -> tuple[Tensor, Tensor]:
    """Mean (n,) and standard deviation ((n,) or a number) of the chosen shadows' values, by masked sums. Deviations are
    at least 1e-15, so that shadows that agree to the last digit give large scores, not infinite ones.
    """
    counts = chosen.sum(0)
    if bool((counts < 2).any()):
        raise ValueError(
            f"{int((counts < 2).sum())} records have fewer than two shadow models trained {kind} them; LiRA needs at"
            " least two for a variance"
        )
    mean = torch.where(chosen, values, 0.0).sum(0) / counts
    squares = torch.where(chosen, values - mean, 0.0).square().sum(0)
    variance = squares / (counts - 1) if own else squares.sum() / (counts - 1).sum()
    return mean, variance.clamp_min(1e-30).sqrt()
