"""The thesis's leakage probability (Weng 2025, Eq. 4.3): which images leak more than their own batch's average."""

from __future__ import annotations

from torch import Tensor

ALPHA = 0.5  # the weight of the cosine, which the thesis does not state
_ROUNDING = 1e-9  # a deviation from a batch's average that is only floating point


def leaking_images(cosine: Tensor, euclidean: Tensor, noise_scale: float) -> Tensor:
    """Which images (n,) have pl_j > 0, bool. Their share is the thesis's probability, which gates nothing.

        pl_j = α (CS_j − avg CS − ρ) − (1 − α)(ED_j − avg ED + ρ),   ρ = min(σC, .1)

    Each image is compared with the average of its own batch, so this does not measure how good reconstructions are:
    **perfect recovery of all images gives 0**, as does any batch recovered equally badly. The thesis's tables have
    .54-.59 for good and .20-.26 for failed reconstructions. Reported for comparison only.

    Args:
        cosine, euclidean: (n,), `image.feature_cosine` and `feature_euclidean` of the classifiers' averaged outputs for
            original and reconstruction.
        noise_scale: σ·C, the noise's standard deviation before any division by the number of records; 0 without noise.

    >>> import torch
    >>> leaking_images(torch.ones(2), torch.zeros(2), 0.0).tolist()           # all recovered
    [False, False]
    >>> leaking_images(torch.tensor([1.0, 1.0, 1.0, 0.2]), torch.tensor([0.0, 0.0, 0.0, 0.8]), 0.0).tolist()
    [True, True, True, False]
    """
    rho = min(noise_scale, 0.1)
    cosine, euclidean = cosine.double(), euclidean.double()
    loss = ALPHA * (cosine - cosine.mean() - rho) - (1 - ALPHA) * (euclidean - euclidean.mean() + rho)
    return loss > _ROUNDING
