"""Restarts of one target that hold together: what several starts agree on is more likely there than what one has."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .optimise import Objective


def with_consensus(objective: Objective, labels: Tensor, repeat: int, weight: float) -> Objective:
    """`objective` plus `weight` times each restart's mean squared distance from the mean of its target's restarts.

    Yin et al. 2021 (arXiv:2104.07586), eq. 11, where images are registered by optical flow. Here they are matched, as
    the images of one label may stand in any order: with the first restart's, at the least total squared distance within
    labels.

    Args:
        objective: of T candidates, all restarts of a target together. labels: (targets, n), of each target's images.
        repeat: restarts of a target. weight: at least 0.
    """
    if weight == 0 or repeat < 2:
        return objective
    labels = labels.cpu()  # which images may be matched is no number of theirs, and a GPU is not asked for it

    def total(images: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = objective(images)
        for t, own in enumerate(labels):
            here = slice(t * repeat, (t + 1) * repeat)
            restarts = images[here]
            places = torch.stack([matched(restarts[0], other, own) for other in restarts]).to(images.device)
            off = torch.stack([other[place] for other, place in zip(restarts, places)])
            off = off - off.mean(0)
            value[here] += weight * off.square().flatten(1).mean(1)
            for r, place in enumerate(places):
                gradient[here][r].index_add_(0, place, off[r], alpha=2 * weight / off[r].numel())
        return value, gradient

    return total


def matched(first: Tensor, other: Tensor, labels: Tensor) -> Tensor:
    """For every image of `first` the place in `other` of the one it is matched with, within labels: (n,) int64.

    first, other: (n, *shape). labels: (n,), of both, on the CPU, as the answer is.
    """
    places = torch.arange(len(labels))
    for label in labels.unique():
        alike = (labels == label).nonzero()[:, 0]
        if len(alike) > 1:
            distance = torch.cdist(first[alike].flatten(1), other[alike].flatten(1)).square()
            places[alike] = alike[torch.from_numpy(linear_sum_assignment(np.asarray(distance.cpu()))[1])]
    return places
