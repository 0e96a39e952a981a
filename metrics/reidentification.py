"""Can somebody who has only its reconstruction pick an original out of a line-up?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .image import checked_labels
from .intervals import Interval, clopper_pearson_interval
from .twins import kinds, most_copies


@dataclass(frozen=True)
class Reidentified:
    """How many of the originals were picked.

    share = hits / n: originals picked, of all. interval: Clopper-Pearson's for it.
    chance: the most that picks without any knowledge of the originals reach on average.
    picks: for each reconstruction the index of the original it picked, −1 where it picked another image or none.
    found: for each original, whether it was picked.
    """

    share: float
    chance: float
    interval: Interval
    hits: int
    n: int
    picks: tuple[int, ...]
    found: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class LineUp:
    """Originals and distractors, ready for several sets of reconstructions: rows of mean 0 and length 1, and labels.

    Made by `line_up`; without labels all of them are 0. kinds: of the originals, the same for copies. of_label: for
    each label of an original the kinds of all images with it. The distractors are none of the originals' copies.
    """

    shape: tuple[int, ...]
    originals: Tensor
    distractors: Tensor
    labels: Tensor
    distractor_labels: Tensor
    kinds: Tensor
    of_label: dict[int, Tensor]
    labelled: bool

    def pick(self, reconstructions: Tensor, labels: Tensor | None = None) -> Reidentified:
        """What `reconstructions` (m, c, h, w) with `labels` (m,) pick. The interval is of 95 %."""
        if tuple(reconstructions.shape[1:]) != self.shape:
            raise ValueError(
                f"reconstructions are {tuple(reconstructions.shape[1:])}; they must be like the originals, {self.shape}"
            )
        if (labels is not None) != self.labelled:
            raise ValueError(_SOME_ONLY)
        n, rows = len(self.originals), unit_rows(reconstructions)
        of = _labels(labels, len(rows))
        best, picks = _likeness(rows, self.originals, of, self.labels).max(dim=1)
        rivals = _likeness(rows, self.distractors, of, self.distractor_labels)
        rival = rivals.max(dim=1).values if len(self.distractors) else rows.new_full((len(rows),), -torch.inf)
        picks = torch.where((best > rival + ROUNDING) & rows.any(dim=1), picks, -1)
        found = torch.isin(self.kinds, self.kinds[picks[picks >= 0]])
        hits = int(found.sum())
        chance = sum(self._expected_hits(label, int((of == label).sum())) for label in self.of_label) / n
        return Reidentified(
            hits / n, chance, clopper_pearson_interval(hits, n), hits, n, tuple(picks.tolist()), tuple(found.tolist())
        )

    def _expected_hits(self, label: int, picks: int) -> float:
        """The most originals of one label that so many picks without knowledge hit on average."""
        images = self.of_label[label]
        return int((self.labels == label).sum()) * most_copies(images, picks) / len(images)


def line_up(
    originals: Tensor, distractors: Tensor, labels: Tensor | None = None, distractor_labels: Tensor | None = None
) -> LineUp:
    """What tells which originals their reconstructions pick out. (Ours.)

    The line-up holds the n originals (n, c, h, w) and the distractors, other images of the same kind. Each
    reconstruction (m, c, h, w) picks the image it resembles most; an original is re-identified if at least one picks
    it. Unlike `image.match` this needs no truth about which reconstruction belongs to which original. With labels of
    all three, a reconstruction chooses among the images of its own label: the attacker knew the label, so knowing it
    must earn nothing.

    **Chance.** Suppose the reconstructions know nothing but the labels. Then each choice of which n_y of the N_y images
    of label y were the originals is equally likely, and D_y different picks hit D_y·n_y/N_y of them on average. m_y
    reconstructions make at most min(m_y, N_y) picks, so the expected share is at most

        chance = (1/n) Σ_y n_y·min(m_y, N_y)/N_y,

    whatever the reconstructions and the resemblance are. Reconstructions that all look alike (grey, a mean) pick one
    image and stay below it. A label without distractors counts 1 on both sides and shows nothing. Where an image occurs
    more than once, who picks it has picked all of its copies, so the m_y images with most copies count, each as often.

    **Resemblance** is the correlation of the pixels, that is, the least distance after bringing each image to mean 0
    and length 1. Inversion by cosine loses brightness and contrast, and squared error then picks the dullest image.
    Measured with 200 CIFAR-10 images among 1,000 others: contrast cut to .3, correlation picks all of them and squared
    error 2 %; noise of standard deviation 1, 99 % and 7 %; grey, mean and random images, at most 1 of 200 under both.
    A flat image picks nothing. An original must beat every distractor that is not its copy by more than rounding, so
    that near-duplicates count against the attack.

    A high share is a leak whatever the pixels look like. A low one does not prove that a person, or a better matcher,
    would fail. The interval takes the originals as independent trials.

    Args:
        originals, distractors: (n, c, h, w) and (k, c, h, w). labels, distractor_labels: (n,) and (k,), both or none.

    Raises:
        ValueError: shapes differ, there are no originals or no distractors, or labels are given for some only.
    """
    if not len(originals) or not len(distractors):
        raise ValueError(
            f"a line-up was given {len(originals)} originals and {len(distractors)} distractors; it needs at least one"
            " of each"
        )
    shape = tuple(originals.shape[1:])
    if tuple(distractors.shape[1:]) != shape:
        raise ValueError(f"distractors are {tuple(distractors.shape[1:])}; they must be like the originals, {shape}")
    if (labels is None) != (distractor_labels is None):
        raise ValueError(_SOME_ONLY)
    own, others = _labels(labels, len(originals)), _labels(distractor_labels, len(distractors))
    of_all, every = kinds(torch.cat([originals, distractors]), torch.cat([own, others])), torch.cat([own, others])
    of_own = of_all[: len(originals)]
    rivals = ~torch.isin(of_all[len(originals) :], of_own)
    of_label = {int(label): of_all[every == label] for label in own.unique()}
    rows = unit_rows(originals), unit_rows(distractors[rivals])
    return LineUp(shape, *rows, own, others[rivals], of_own, of_label, labels is not None)


@dataclass(frozen=True)
class PickedFromPool:
    """How many originals were picked out of their own pools.

    share = hits / n, of the originals that have a pool. candidates: the other images in each of these line-ups.
    chances: for each original the most any reconstructions made without it reach (κ of `proof.theorems.tradeoff`).
    """

    share: float
    hits: int
    n: int
    candidates: int
    chances: tuple[float, ...]

    @property
    def chance(self) -> float:
        return sum(self.chances) / len(self.chances)


def picked_from_pool(
    originals: Tensor, labels: Tensor, reconstructions: Tensor, pool: Tensor, pool_labels: Tensor
) -> PickedFromPool | None:
    """The share of originals that some reconstruction picks out of a line-up with images that might as well have been
    in their place.

    Each original stands among the images of its label in the pool, which must be drawn as it was: from the same records
    by the same lot, and used by nobody. Given everything else, the original is then any of these D + 1 images with
    equal probability. m reconstructions pick at most min(m, D + 1) of them, so if they were made without the original,
    it is picked with probability min(m, D + 1)/(D + 1) at most, whatever they are: that is `chances`, and what a proof
    bounds the share by. Copies of the original are no rivals; who picks an image has picked all of its copies, so the m
    images with most copies count. Resemblance is that of `line_up`.

    Args:
        originals, labels: (n, c, h, w) and (n,). reconstructions: (m, c, h, w), of any label.
        pool, pool_labels: (k, c, h, w) and (k,).

    Returns:
        None where no original has a pool.
    """
    rows, m = unit_rows(reconstructions), len(reconstructions)
    usable = rows.any(dim=1)
    hits, chances, sizes = 0, [], []
    likeness = rows @ unit_rows(pool).T
    of_all = kinds(torch.cat([originals, pool]), torch.cat([labels, pool_labels]))
    of_own, of_pool = of_all[: len(originals)], of_all[len(originals) :]
    for original, kind, label in zip(unit_rows(originals), of_own, labels.tolist()):
        others = pool_labels == label
        if not others.any():
            continue
        nearest = likeness.masked_fill(~others | (of_pool == kind), -torch.inf).amax(dim=1)
        hits += bool(((rows @ original > nearest + ROUNDING) & usable).any())
        sizes.append(int(others.sum()))
        line_up = torch.cat([kind[None], of_pool[others]])
        chances.append(most_copies(line_up, m) / len(line_up))
    if not chances:
        return None
    return PickedFromPool(hits / len(chances), hits, len(chances), min(sizes), tuple(chances))


_SOME_ONLY = "labels are given for some only; give them for originals, reconstructions and distractors, or for none"
ROUNDING = 1e-5  # of a correlation in float32


def unit_rows(images: Tensor) -> Tensor:
    """Rows of mean 0 and length 1; zeros for a flat image."""
    rows = images.float().flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    norms = rows.norm(dim=1, keepdim=True)
    return torch.where(norms > 1e-4, rows / norms.clamp(min=1e-4), 0.0)


def _likeness(rows: Tensor, images: Tensor, of: Tensor, labels: Tensor) -> Tensor:
    """Correlations (rows, images), −∞ where the labels differ."""
    return (rows @ images.T).masked_fill(of[:, None] != labels, -torch.inf)


def _labels(labels: Tensor | None, n: int) -> Tensor:
    return torch.zeros(n, dtype=torch.int64) if labels is None else torch.from_numpy(checked_labels(labels, n))
