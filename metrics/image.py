"""How alike two stacks of images are, image by image.

Images are (n, c, h, w) with pixels in [0, 1]; each function gives one value an image, (n,), computed in float64.
`match` decides which reconstruction is compared with which original.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import avg_pool2d

PSNR_CAP = 100.0  # dB: what a perfect image counts as where an average, or JSON, cannot take infinity
SSIM_WINDOW = 7  # pixels, scikit-image's default


def mse(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared error (n,) over an image's pixels and channels."""
    a, b = _pair(a, b)
    return (a - b).square().flatten(1).mean(1)


def psnr(a: Tensor, b: Tensor) -> Tensor:
    """Peak signal-to-noise ratio (n,) in dB with peak 1: −10 log10(mse); inf for identical images.

    >>> psnr(torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 0.1)).round(decimals=4).item()
    20.0
    """
    return -10 * torch.log10(mse(a, b))


def ssim(a: Tensor, b: Tensor) -> Tensor:
    """Structural similarity (n,), in [−1, 1], 1 for identical images (Wang et al. 2004).

    Equal to `skimage.metrics.structural_similarity(…, data_range=1, channel_axis=0)`: 7×7 uniform windows that lie
    wholly inside the image, sample covariances, averaged over windows and channels.

    Raises:
        ValueError: images are smaller than 7×7, or shapes differ.
    """
    a, b = _pair(a, b)
    if min(a.shape[-2:]) < SSIM_WINDOW:
        raise ValueError(
            f"SSIM compares {SSIM_WINDOW}×{SSIM_WINDOW} windows; images of {a.shape[-2]}×{a.shape[-1]} are too small"
        )

    def window_mean(x: Tensor) -> Tensor:
        return avg_pool2d(x, SSIM_WINDOW, stride=1)

    mean_a, mean_b = window_mean(a), window_mean(b)
    unbiased = SSIM_WINDOW**2 / (SSIM_WINDOW**2 - 1)
    variances = unbiased * (window_mean(a * a) - mean_a**2 + window_mean(b * b) - mean_b**2)
    covariance = unbiased * (window_mean(a * b) - mean_a * mean_b)
    c1, c2 = 0.01**2, 0.03**2
    index = (2 * mean_a * mean_b + c1) * (2 * covariance + c2) / ((mean_a**2 + mean_b**2 + c1) * (variances + c2))
    return index.flatten(1).mean(1)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine (n,) between the rows of a and b, flattened. Two zero rows count as 1, a zero row against another as 0."""
    a, b = a.double().flatten(1), b.double().flatten(1)
    norms = a.norm(dim=1) * b.norm(dim=1)
    both_zero = (a == 0).all(1) & (b == 0).all(1)
    return torch.where(norms > 0, (a * b).sum(1) / norms.clamp(min=torch.finfo(norms.dtype).tiny), both_zero.double())


def pixel_cosine(a: Tensor, b: Tensor, mean: Tensor | None = None, std: Tensor | None = None) -> Tensor:
    """Cosine (n,) between images as vectors of pixels.

    Pixels in [0, 1] all point into one corner, so unrelated photographs already have about .9. With the data set's
    `mean` and `std` (c,) the pixels are normalised first, as Weng 2025 (Table 4.1: 0.00 for failed reconstructions)
    seems to have done.
    """
    return cosine(*_normalised(a, b, mean, std))


def pixel_euclidean(a: Tensor, b: Tensor, mean: Tensor | None = None, std: Tensor | None = None) -> Tensor:
    """Euclidean distance (n,) between images as vectors of pixels, normalised first by `mean` and `std` (c,) if any."""
    a, b = _normalised(a, b, mean, std)
    return (a - b).flatten(1).norm(dim=1)


def feature_cosine(outputs_a: Tensor, outputs_b: Tensor) -> Tensor:
    """Cosine (n,) between class probabilities (n, k) from `Reference.averaged_outputs` (Weng 2025, 4.2.4)."""
    return cosine(outputs_a, outputs_b)


def feature_euclidean(outputs_a: Tensor, outputs_b: Tensor) -> Tensor:
    """Euclidean distance (n,) between class probabilities (n, k), over its greatest value √2 (Weng 2025, 4.2.4).

    The thesis says "normalized to [0,1]" without saying how; √2 is the reading that does not depend on other images.
    """
    return (outputs_a.double() - outputs_b.double()).norm(dim=1) / math.sqrt(2)


# Metrics of an image beside another, (n, …), (n, …) → (n,), that every reconstruction is scored by: a line each.
PER_IMAGE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "psnr": lambda a, b: psnr(a, b).clamp(max=PSNR_CAP),
    "mse": mse,
}


def match(
    originals: Tensor, reconstructions: Tensor, labels_a: Tensor | None = None, labels_b: Tensor | None = None
) -> list[tuple[int, int]]:
    """Pairs (original, reconstruction) of least total squared error (Hungarian algorithm), each image used once.

    An attack returns a batch in no particular order, so its images must be assigned before they can be compared. Where
    labels (n,), (m,) of both are known, images are first matched within their label; what is left over because a label
    is more frequent on one side is matched over all the rest. min(n, m) pairs, in the order of the originals. The
    assignment uses the truth, so it flatters every reconstruction a little: controls must be matched in the same way.

    >>> a = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
    >>> match(a, torch.tensor([0.9, 0.2]).view(2, 1, 1, 1))
    [(0, 1), (1, 0)]

    Raises:
        ValueError: only one side has labels, or shapes differ.
    """
    if originals.shape[1:] != reconstructions.shape[1:]:
        raise ValueError(
            f"originals are {tuple(originals.shape[1:])} and reconstructions {tuple(reconstructions.shape[1:])}, they"
            " must have one shape"
        )
    a, b = originals.double().flatten(1), reconstructions.double().flatten(1)
    cost = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square().numpy()
    if (labels_a is None) != (labels_b is None):
        raise ValueError(
            "labels are given for one side only; give them for originals and reconstructions, or for neither"
        )
    if labels_a is None or labels_b is None:
        return assigned(cost)
    return assigned(cost, checked_labels(labels_a, len(originals)), checked_labels(labels_b, len(reconstructions)))


def assigned(
    cost: np.ndarray, of_rows: np.ndarray | None = None, of_columns: np.ndarray | None = None
) -> list[tuple[int, int]]:
    """Pairs (row, column) of least total cost (n, m), first within equal labels where there are some; see `match`."""
    rows, columns = np.arange(cost.shape[0]), np.arange(cost.shape[1])
    pairs: list[tuple[int, int]] = []
    if of_rows is not None and of_columns is not None:
        for label in np.intersect1d(of_rows, of_columns):
            pairs += _assign(cost, np.flatnonzero(of_rows == label), np.flatnonzero(of_columns == label))
        rows, columns = np.setdiff1d(rows, [i for i, _ in pairs]), np.setdiff1d(columns, [j for _, j in pairs])
    return sorted(pairs + _assign(cost, rows, columns))


def checked_labels(labels: Tensor, n: int) -> np.ndarray:
    """Labels as an array (n,).

    Raises:
        ValueError: they have another shape.
    """
    if labels.shape != (n,):
        raise ValueError(f"labels have shape {tuple(labels.shape)}; there must be one for each of the {n} images")
    return labels.numpy()


def _assign(cost: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> list[tuple[int, int]]:
    i, j = linear_sum_assignment(cost[np.ix_(rows, columns)])
    return list(zip(rows[i].tolist(), columns[j].tolist()))


def _pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.ndim != 4 or a.shape != b.shape:
        raise ValueError(
            f"images have shapes {tuple(a.shape)} and {tuple(b.shape)}, both must be the same (n, c, h, w)"
        )
    return a.double(), b.double()


def _normalised(a: Tensor, b: Tensor, mean: Tensor | None, std: Tensor | None) -> tuple[Tensor, Tensor]:
    a, b = _pair(a, b)
    shift = 0 if mean is None else mean.double().view(1, -1, 1, 1)
    scale = 1 if std is None else std.double().view(1, -1, 1, 1)
    return (a - shift) / scale, (b - shift) / scale
