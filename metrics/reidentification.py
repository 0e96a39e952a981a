"""Can somebody pick an original out of a line-up, given only its reconstruction?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .image import checked_labels
from .intervals import Interval, clopper_pearson


@dataclass(frozen=True)
class Reidentified:
    """How many of the originals were picked.

    share = hits / n: originals picked, of all. interval: Clopper-Pearson's for it.
    chance: the most that picks without any knowledge of the originals reach on average.
    picks: for each reconstruction the index of the original it picked, −1 where it picked another image or none.
    """

    share: float
    chance: float
    interval: Interval
    hits: int
    n: int
    picks: tuple[int, ...]


def reidentified(
    originals: Tensor,
    reconstructions: Tensor,
    distractors: Tensor,
    labels: Tensor | None = None,
    reconstruction_labels: Tensor | None = None,
    distractor_labels: Tensor | None = None,
    confidence: float = 0.95,
) -> Reidentified:
    """The share of originals that their reconstructions pick out of a line-up. (Ours.)

    The line-up holds the n originals (n, c, h, w) and the distractors, other images of the same kind. Each
    reconstruction (m, c, h, w) picks the image it resembles most; an original is re-identified if at least one picks
    it. Unlike `image.match` this needs no truth about which reconstruction belongs to which original. Where labels are
    given, for all three, a reconstruction chooses among the images of its own label: the attacker knew the label, so
    knowing it must earn nothing.

    **Chance.** Suppose the reconstructions know nothing but the labels. Then each choice of which n_y of the N_y images
    of label y were the originals is equally likely, and D_y different picks hit D_y·n_y/N_y of them on average. m_y
    reconstructions make at most min(m_y, N_y) picks, so the expected share is at most

        chance = (1/n) Σ_y n_y·min(m_y, N_y)/N_y,

    whatever the reconstructions and the resemblance are. Reconstructions that all look alike (grey, a mean) pick one
    image and stay below it. A label without distractors counts 1 on both sides and shows nothing.

    **Resemblance** is the correlation of the pixels, that is, the least distance after bringing each image to mean 0
    and length 1. Inversion by cosine loses brightness and contrast, and squared error then picks the dullest image.
    Measured with 200 CIFAR-10 images among 1,000 others: contrast cut to .3, correlation picks all and squared error 2
    %; noise of standard deviation 1, 99 % and 7 %; grey, mean and random images, at most 1 of the 200 under both. A
    flat image picks nothing. Of images that resemble equally a distractor is picked first, so duplicates count against
    the attack.

    A high share is a leak whatever the pixels look like. A low one does not prove that a person, or a better matcher,
    would fail. The interval takes the originals as independent trials.

    Raises:
        ValueError: shapes differ, there are no originals or no distractors, or labels are given for some only.
    """
    n, m, others = len(originals), len(reconstructions), len(distractors)
    if not n or not others:
        raise ValueError(f"a line-up was given {n} originals and {others} distractors; it needs at least one of each")
    shapes = [tuple(images.shape[1:]) for images in (originals, reconstructions, distractors)]
    if len(set(shapes)) > 1:
        raise ValueError("originals are {}, reconstructions {}, distractors {}; they must be alike".format(*shapes))
    gallery = torch.cat([distractors, originals])  # distractors first: of equals, max takes the first
    gallery_labels, labels_of = _labels(labels, reconstruction_labels, distractor_labels, (n, m, others))

    rows = _standardised(reconstructions)
    likeness = (rows @ _standardised(gallery).T).round(decimals=9)  # equals must tie, whatever the order of summation
    likeness[torch.from_numpy(labels_of[:, None] != gallery_labels)] = -torch.inf
    likeness[~rows.any(dim=1)] = -torch.inf
    best, picked = likeness.max(dim=1)
    picks = torch.where(best.isinf(), -1, picked - others).clamp(min=-1)
    hits = len(picks[picks >= 0].unique())

    chance = 0.0
    for label, n_y in zip(*np.unique(gallery_labels[others:], return_counts=True)):
        in_line_up = int((gallery_labels == label).sum())
        chance += int(n_y) * min(int((labels_of == label).sum()), in_line_up) / in_line_up / n
    return Reidentified(hits / n, chance, clopper_pearson(hits, n, confidence), hits, n, tuple(picks.tolist()))


def _standardised(images: Tensor) -> Tensor:
    """Rows of mean 0 and length 1 (float64); zeros for a flat image."""
    rows = images.double().flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    norms = rows.norm(dim=1, keepdim=True)
    return torch.where(norms > 1e-6, rows / norms.clamp(min=1e-6), 0.0)


def _labels(
    originals: Tensor | None, reconstructions: Tensor | None, distractors: Tensor | None, sizes: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the gallery (distractors, then originals) and of the reconstructions; all 0 where none are given."""
    n, m, others = sizes
    if originals is None and reconstructions is None and distractors is None:
        return np.zeros(others + n, dtype=int), np.zeros(m, dtype=int)
    if originals is None or reconstructions is None or distractors is None:
        raise ValueError("labels are given for some only; give them for originals, reconstructions and distractors, or for none")
    gallery = np.concatenate([checked_labels(distractors, others), checked_labels(originals, n)])
    return gallery, checked_labels(reconstructions, m)
