"""Are rebuilt images closer to their originals than to others that might as well have been there? A test of distances.

A mean PSNR above that of grey or of a mean image does not say so by itself: images of noise differ from each other, so
that some of them suit some originals, and the assignment finds which; a constant control has no such choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .image import PSNR_CAP
from .pool_test import AT_ONCE, ENOUGH, Rebuilt, by_lot, p_value_of_draws

DRAWS = 1_999
OTHERS = 2_000  # of more images so many are drawn
ORIGINALS = 100  # of more so many are drawn: an assignment takes some n³ steps, and these show a leak of all
OF_OTHER_SPLITS = 1.0  # dB that images of other splits may be further off than chance says


def closer_p_value(
    originals: Tensor,
    reconstructions: Tensor,
    others: Tensor,
    labels: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
    seed: int = 0,
    draws: int = DRAWS,
    slack: float = 0.0,
) -> float | None:
    """The p-value of the hypothesis that the reconstructions were made without the originals.

    Compared is the mean PSNR of the pairs that `image.match` finds, with that for other images in the originals' place:
    originals and others of a label are dealt anew, and p is the share of the deals that come out as close. That is
    exact where they were dealt by one lot, and every deal has the same choice of pairs.

    Args:
        originals, reconstructions, others: (n, c, h, w), (m, c, h, w) and (k, c, h, w).
        labels: of each, (n,), (m,) and (k,), where the attack knew the labels; else none.
        seed: of the deals. draws: at most so many; the least value is 1/(draws + 1).
        slack: so many dB the originals may be closer without a leak, where the others are of another lot.

    Returns:
        None where there are no others of any original's label.
    """
    rng = np.random.default_rng(seed)
    of_originals, reconstruction_labels, other_labels = labels
    if len(originals) > ORIGINALS:  # by lot, whatever came of them: the test stays exact
        drawn = torch.from_numpy(rng.permutation(len(originals))[:ORIGINALS])
        originals, of_originals = originals[drawn], None if of_originals is None else of_originals[drawn]
    if len(others) > OTHERS:
        kept = torch.from_numpy(rng.permutation(len(others))[:OTHERS])
        others, other_labels = others[kept], None if other_labels is None else other_labels[kept]
    n = len(originals)
    of_rebuilt = None if reconstruction_labels is None else reconstruction_labels.numpy()
    if of_originals is None or other_labels is None:
        of_originals, other_labels = torch.zeros(n), torch.zeros(len(others))
    every = torch.cat([originals, others]).double().flatten(1)
    error = torch.cdist(every, reconstructions.double().flatten(1)).square().numpy() / every.shape[1]
    closeness = np.minimum(-10 * np.log10(np.maximum(error, 10 ** (-PSNR_CAP / 10))), PSNR_CAP)
    of_image = torch.cat([of_originals, other_labels]).numpy()
    here = np.unique(of_image[:n])
    groups = [np.flatnonzero(of_image == label) for label in here]
    counts = [int((group < n).sum()) for group in groups]
    if all(len(group) == count for group, count in zip(groups, counts)):
        return None
    if of_rebuilt is None:
        columns, spare = [np.arange(len(reconstructions))], np.arange(0)
    else:
        columns = [np.flatnonzero(of_rebuilt == label) for label in here]
        spare = np.flatnonzero(~np.isin(of_rebuilt, here))

    def close(dealt: Sequence[np.ndarray]) -> float:
        if of_rebuilt is None:
            dealt = [np.concatenate(dealt)]
        return summed_closeness(error, closeness, dealt, columns, spare) / min(n, len(reconstructions))

    reached, as_good = close([group[:count] for group, count in zip(groups, counts)]) - slack, 0
    for deal in range(1, draws + 1):
        dealt = [rng.permutation(group)[:count] for group, count in zip(groups, counts)]  # as many as are originals
        as_good += close(dealt) >= reached - 1e-9
        if as_good == ENOUGH:
            return ENOUGH / deal
    return (1 + as_good) / (1 + draws)


def summed_closeness(
    error: np.ndarray,
    closeness: np.ndarray,
    dealt: Sequence[np.ndarray],
    columns: Sequence[np.ndarray],
    spare: np.ndarray,
) -> float:
    """The closeness of the pairs that `image.assigned` finds, summed; where labels stand is worked out beforehand, as
    thousands of deals have them in the same places.

    Args:
        error, closeness: (images, reconstructions), of every image to every reconstruction.
        dealt: the images of each label. columns: the reconstructions of each of these labels. spare: of others.
    """
    total, rows, rest = 0.0, list[int](), spare.tolist()
    for images, own in zip(dealt, columns):
        if len(images) == len(own) == 1:
            total += closeness[images[0], own[0]]
            continue
        i, j = linear_sum_assignment(error[images[:, None], own])
        total += closeness[images[i], own[j]].sum()
        if len(images) > len(own):
            rows += np.delete(images, i).tolist()
        elif len(own) > len(images):
            rest += np.delete(own, j).tolist()
    if rows and rest:
        left = error[np.ix_(rows, rest)]
        i, j = linear_sum_assignment(left)
        total += closeness[np.ix_(rows, rest)][i, j].sum()
    return float(total)


def closeness(reconstructions: Tensor, images: Tensor) -> Tensor:
    """PSNR in dB, `PSNR_CAP` at most, of every reconstruction (m, c, h, w) to every image (k, c, h, w): (m, k)."""
    error = torch.cdist(reconstructions.double().flatten(1), images.double().flatten(1)).square()
    return (-10 * (error / images[0].numel()).clamp(min=10 ** (-PSNR_CAP / 10)).log10()).clamp(max=PSNR_CAP)


def closeness_by_record(messages: Sequence[Rebuilt], records: int, images: Tensor) -> Tensor:
    """The sum over a record's messages of the PSNR of the picture that is closest to an image: (records, images)."""
    return summed_by_record(messages, records, closeness_by_message(messages, images))


def summed_by_record(messages: Sequence[Rebuilt], records: int, by_message: Tensor) -> Tensor:
    """What each message counts (messages, images), summed over a record's messages: (records, images)."""
    summed = torch.zeros(records, by_message.shape[1], dtype=by_message.dtype)
    for message, own in zip(messages, by_message):
        summed[list(message.records)] += own
    return summed


def closeness_by_message(messages: Sequence[Rebuilt], images: Tensor) -> Tensor:
    """The PSNR of a message's picture that is closest to an image: (messages, images)."""
    return torch.stack([closeness(message.images, images).amax(dim=0) for message in messages])


def beyond_most(close: Tensor) -> Tensor:
    """How much further than half of a row each of its values is, (n, k); 0 for that half. Of a few pictures that came
    back among many that did not, a sum of these tells, where the others' chances would hide it in a sum of all.
    """
    return (close - close.quantile(0.5, dim=1, keepdim=True)).clamp(min=0)


def closer_together_p_value(
    originals: Tensor,
    messages: Sequence[Rebuilt],
    pool: Tensor,
    labels: tuple[Tensor, Tensor],
    seed: int = 0,
    draws: int = DRAWS,
    slack: float = 0.0,
) -> float | None:
    """`closer_p_value` for several messages, whose records are dealt together: of each record counts the PSNR of the
    closest image that was made of its message, as far as it is beyond half of all images of its label, and p is the
    share of the deals with as large a sum.

    One message of one image is closer than to any of D others with probability 1/(D + 1) by luck; a few that are much
    closer stand out among many that are no closer.

    Args:
        originals, messages, pool: as for `pool_test.pool_p_value`. labels: of the originals and of the pool.
        seed: of the deals. draws: how many; the least value is 1/(draws + 1). slack: as there, a record and message.

    Returns:
        None where there are no others of any original's label.
    """
    rng = torch.Generator().manual_seed(seed)
    close = closeness_by_record(messages, len(originals), torch.cat([originals, pool]))
    for message in messages:  # of every original, in whichever place
        close[list(message.records), : len(originals)] -= slack
    of_image, groups = torch.cat(labels), []
    for label in labels[0].unique():
        images, places = (of_image == label).nonzero()[:, 0], (labels[0] == label).nonzero()[:, 0]
        groups.append(beyond_most(close[places][:, images]))
    if all(len(own) == own.shape[1] for own in groups):
        return None
    reached = sum(float(own.diagonal().sum()) for own in groups) - 1e-9  # originals come first

    def dealt(count: int) -> Tensor:
        sums = torch.zeros(count, dtype=torch.float64)
        for own in groups:
            sums += own[torch.arange(len(own)), by_lot(len(own), own.shape[1], count, rng)].sum(dim=1)
        return sums

    return p_value_of_draws(dealt, reached, draws, max(1, AT_ONCE // max(own.shape[1] for own in groups)))
