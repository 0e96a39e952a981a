"""The thesis's leakage probability (Weng 2025, Eq. 4.3): which images leak more than their own batch's average."""

from __future__ import annotations

from torch import Tensor

_ROUNDING = 1e-9  # a deviation from a batch's average that is only floating point


def leaking_images(cosine: Tensor, euclidean: Tensor, noise_scale: float = 0.0, alpha: float = 0.5) -> Tensor:
    """Which images (n,) leak in the sense of `leak_probability`: pl_j > 0 (bool).

    Raises:
        ValueError: shapes differ, alpha is outside [0, 1] or the noise scale negative.
    """
    if cosine.shape != euclidean.shape or cosine.ndim != 1 or not len(cosine):
        raise ValueError(
            f"cosines {tuple(cosine.shape)} and distances {tuple(euclidean.shape)} must both be (n,), n ≥ 1"
        )
    if not 0 <= alpha <= 1 or not noise_scale >= 0:
        raise ValueError(
            f"alpha is {alpha} and the noise scale {noise_scale}; alpha must lie in [0, 1], the scale be ≥ 0"
        )
    rho = min(noise_scale, 0.1)
    cosine, euclidean = cosine.double(), euclidean.double()
    loss = alpha * (cosine - cosine.mean() - rho) - (1 - alpha) * (euclidean - euclidean.mean() + rho)
    return loss > _ROUNDING


def leak_probability(cosine: Tensor, euclidean: Tensor, noise_scale: float = 0.0, alpha: float = 0.5) -> float:
    """The thesis's leakage probability (Weng 2025, Eq. 4.3): the share of images with pl_j > 0. It gates nothing.

        pl_j = α (CS_j − avg CS − ρ) − (1 − α)(ED_j − avg ED + ρ),   ρ = min(σC, .1)

    cosine, euclidean: (n,), `image.feature_cosine` and `feature_euclidean` of the classifiers' averaged outputs for
      original and reconstruction.
    noise_scale: σ·C, the noise's standard deviation before any division by the number of records; 0 without noise.
    alpha: the weight of the cosine; the thesis does not state it, .5 here.

    Each image is compared with the average of its own batch, so this does not measure how good reconstructions are:
    **perfect recovery of all images gives 0**, as does any batch recovered equally badly. The thesis's tables have
    .54-.59 for good and .20-.26 for failed reconstructions. Reported for comparison only.

    >>> import torch
    >>> leak_probability(torch.ones(4), torch.zeros(4))           # all recovered
    0.0
    >>> leak_probability(torch.tensor([1.0, 1.0, 1.0, 0.2]), torch.tensor([0.0, 0.0, 0.0, 0.8]))
    0.75
    """
    return float(leaking_images(cosine, euclidean, noise_scale, alpha).double().mean())
