"""A target's images, and where the search for them begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....defenses.randomness import generator


@dataclass(frozen=True, eq=False)
class Solution:
    """The best images of one target.

    images, start: (n, *input_shape) in [0, 1]. labels: (n,), of each image in the objective. loss: the objective, prior
    included, at `images`; infinite if it was never finite. labels_by: how they were inferred, in words, "" for
    known ones. by_step: whether the steps of an adaptive optimiser were taken apart for them. features_by: how their
    features were solved for, in words, "" if they were not. longer: how many times as long as what was sent the update
    is taken to have been before its clip; None where that was not asked. place: where on the way of local
    training the gradient was read in the end, in [0, 1]; None where that was not learned (`surrogate.py`). determined:
    the first layer made all images exact, so that nothing is searched for any more. copies: how many images are taken
    for copies of others, because the first layer's update tells so many fewer apart. rows_by: what rows of a table were
    fitted with, in words, "" if they were not.
    """

    images: Tensor
    start: Tensor
    labels: Tensor
    loss: float
    labels_by: str = ""
    by_step: bool = False
    features_by: str = ""
    longer: float | None = None
    place: float | None = None
    determined: bool = False
    copies: int = 0
    rows_by: str = ""


def side_by_side(solutions: Sequence[Solution]) -> Solution:
    """Of all images, one solution's after the other's; its loss is the mean over images, its place and length those
    over solutions.
    """
    if len(solutions) == 1:
        return solutions[0]
    counts = [len(one.images) for one in solutions]
    places, times = ([getattr(one, name) for one in solutions] for name in ("place", "longer"))
    return Solution(
        torch.cat([one.images for one in solutions]),
        torch.cat([one.start for one in solutions]),
        torch.cat([one.labels for one in solutions]),
        sum(count * one.loss for count, one in zip(counts, solutions)) / sum(counts),
        "; ".join(dict.fromkeys(one.labels_by for one in solutions)),
        all(one.by_step for one in solutions),
        "; ".join(dict.fromkeys(one.features_by for one in solutions if one.features_by)),
        None if None in times else sum(times) / len(times),
        None if None in places else sum(places) / len(places),
        all(one.determined for one in solutions),
        copies=sum(one.copies for one in solutions),
        rows_by="; ".join(dict.fromkeys(one.rows_by for one in solutions if one.rows_by)),
    )


def start_images(seed: int, key: str, restart: int, count: int, input_shape: tuple[int, ...]) -> Tensor:
    """A random start (count, *input_shape), see `random_images`.

    It depends on nothing but its arguments, so a target's solution does not depend on what is solved beside it.

    Args:
        seed: of the attack. key: names the target. restart: the number of the restart, from 0.
        count: number of images n. input_shape: (channels, height, width).
    """
    return random_images(count, input_shape, generator(seed, "inversion start", key, restart))


def random_images(count: int, shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    """(count, *shape): pixels normal around .5 with standard deviation .25, cut off to [0, 1]."""
    return (0.5 + 0.25 * torch.randn(count, *shape, generator=draw)).clamp_(0, 1)
