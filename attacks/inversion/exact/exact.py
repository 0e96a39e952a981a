"""What a network's first layer makes exact of a target, before anything is guessed and after."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ....defenses.data.unit_scale import words_of
from ....defenses.layout import Layout
from ..match.evaluate import evaluator, loss_at, placed
from ..match.solution import Solution, start_images
from ..read.target import Target
from ..settings import Settings
from .columns import Columns
from .first_layer import FirstLayer
from .words import columns_by_words

UNEXPLAINED = 1e-3  # of a message's energy without its noise, at most, where images are certain
UNEXPLAINED_COPIES = 1e-3  # the same over n², where some are taken for copies: one of n given to the wrong image


@dataclass(frozen=True, eq=False)
class Reading:
    """What the first layer tells of a target before anything is guessed.

    columns: found so far. solution: of them alone, None where they are not all found. certain: the message itself, at
    its known noise, says that the solution is right.
    """

    layer: FirstLayer
    columns: Columns
    solution: Solution | None
    certain: bool


def read_first_layer(
    network: nn.Module,
    layout: Layout,
    target: Target,
    labels: Tensor,
    shape: tuple[int, ...],
    settings: Settings,
    seed: int,
) -> Reading | None:
    """What the first layer tells without a guess; None where it is not linear with a ReLU behind it.

    Args:
        network: in evaluation mode. layout: of its parameters. target: what was sent. labels: (n,) int64.
        shape: of an image. settings: the attack's. seed: of the search.
    """
    layer = FirstLayer.of(copy.deepcopy(network).float().cpu(), target)
    if layer is None:
        return None
    columns = columns_by_words(layer, layer.blind_columns(seed), words_of(network), labels, seed)
    images = layer.without_guess(columns, labels, shape)
    if images is None:
        return Reading(layer, columns, None, False)
    loss = loss_at(network, layout, target, labels, images, settings)
    copies = len(labels) - layer.rank
    if layer.one_step:
        most = UNEXPLAINED_COPIES / len(labels) ** 2 if copies else UNEXPLAINED
        certain = explained(network, layout, target, labels, images, settings, most)
    else:
        # nothing says whose copies the rest are, or that they are copies; nor how large images of open size are
        certain = copies == 0 and not layer.span.open_scale
    start = start_images(seed, target.key, 0, target.count, shape)
    return Reading(layer, columns, Solution(images, start, labels, loss, determined=certain, copies=copies), certain)


def made_exact(
    network: nn.Module,
    layout: Layout,
    target: Target,
    guess: Solution,
    reading: Reading,
    settings: Settings,
    seed: int,
) -> Solution:
    """The guess with what the first layer makes exact, and its own objective there; itself where that is nothing.

    Args:
        network: in evaluation mode. layout: of its parameters. target: what was sent.
        guess: what optimising found. reading: what `read_first_layer` told.
        settings: the attack's. seed: of the search.
    """
    best = guess
    if reading.solution is not None and reading.solution.loss < best.loss:
        best = reading.solution
    images, copies = reading.layer.with_guess(reading.columns, best.labels, best.images, seed)
    if images is None:
        return best
    loss = loss_at(network, layout, target, best.labels, images, settings)
    made = replace(best, images=images, loss=loss)
    if copies is not None:
        loss = loss_at(network, layout, target, best.labels, copies, settings)
        if loss < made.loss or not reading.layer.one_step:
            made = replace(best, images=copies, loss=loss, copies=len(copies) - reading.layer.rank)
    if reading.layer.one_step and made.loss > best.loss:  # the objective is what was sent, and decides
        return best
    every = bool((made.images != best.images).flatten(1).any(1).all())  # what was not found stayed as it was
    return replace(made, determined=every)


def explained(
    network: nn.Module,
    layout: Layout,
    target: Target,
    labels: Tensor,
    images: Tensor,
    settings: Settings,
    most: float = UNEXPLAINED,
) -> bool:
    """Whether the images' gradient, at the scale that suits it best (a clip leaves no other), leaves no more of the
    message than the known noise, which must be the smaller part of it to tell.

    Args:
        network: in evaluation mode. layout: of its parameters. target: what was sent; every message, of several.
        labels: (n,) int64. images: (n, *shape) in [0, 1]. settings: the attack's. most: of the energy without
            noise that may be left.
    """
    if target.others:
        return all(explained(network, layout, one, labels, images, settings, most) for one in target.messages)
    ready = replace(placed(target, settings), scale_known=False, clip_norm=None)
    where, noise = ready.weights, target.noise_share
    labels = labels[None].to(settings.device)
    objective = evaluator(network.to(where.dtype), layout, [ready], labels, 1, "euclidean", images.shape[1:])
    rest = objective(images[None].to(where))[0].item()
    chance = 5 * noise * (2 / len(target.gradient)) ** 0.5
    return noise < 0.5 and rest < noise + chance + most * (1 - noise)
