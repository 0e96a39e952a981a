"""What a network's first layer makes exact of a target, before anything is guessed and after."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from ....defenses.chain import open_chain
from ..exact.first_layer import FirstLayer, Reading
from ..exact.words import WORK, columns_by_words
from ..match.case import Case
from ..match.evaluate import UNEXPLAINED, explained, loss_at
from ..match.solution import Solution, start_images
from .strategy import UNCOUNTED, Found, Strategy, StrategyWork

UNEXPLAINED_COPIES = 1e-3  # the same over n², where some are taken for copies: one of n given to the wrong image


class FirstLayerAlone(Strategy):
    """All images by the first layer's equations, with no guess."""

    name = "first layer"
    phase = "read"

    def applies(self, case: Case) -> str:
        if not case.settings.exact:
            return "exact = false"
        chain = open_chain(case.network)
        if chain is None or not chain.rectified or chain.layers[0].bias is None:
            return "the network does not begin with a linear layer, its bias and a ReLU"
        return ""

    def cost(self, case: Case) -> int:
        return WORK if case.words else UNCOUNTED

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        return [self._read(case, each) for case, each in zip(cases, found)]

    def _read(self, case: Case, found: Found) -> Found:
        reading = read_first_layer(case)
        if reading is None or reading.solution is None or not reading.certain:
            return replace(found, reading=reading)
        return replace(found, reading=reading, solution=reading.solution, sure=True)

    def assumed(self, case: Case, solution: Solution) -> tuple[str, ...]:
        if not solution.copies:
            return ()
        return (
            f"{solution.copies} of the images taken for copies of others, as the first layer's update tells so many"
            " fewer apart",
        )


class FirstLayerOfGuess(Strategy):
    """The guess with what the first layer makes exact of it."""

    name = "first layer of the guess"
    phase = "refine"

    def applies(self, case: Case) -> str:
        return FirstLayerAlone().applies(case)

    def needless(self, case: Case, found: Found) -> str:
        if found.reading is None and not found.sure:
            return "noise, as many images as neurons, or steps that are no gradients hide the images' span"
        return super().needless(case, found)

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        return [
            replace(each, solution=made_exact(case, each.best, each.reading)) if each.reading else each
            for case, each in zip(cases, found)
        ]


def read_first_layer(case: Case) -> Reading | None:
    """What the first layer tells without a guess; None where it is not linear with a ReLU behind it."""
    target, labels = case.target, case.labels
    layer = FirstLayer.of(copy.deepcopy(case.network).float().cpu(), target)
    if layer is None:
        return None
    columns = columns_by_words(layer, layer.blind_columns(case.seed), case.words, labels, case.seed)
    images = layer.without_guess(columns, labels, case.shape)
    if images is None:
        return Reading(layer, columns, None, False)
    copies = len(labels) - layer.rank
    if layer.one_step:
        most = UNEXPLAINED_COPIES / len(labels) ** 2 if copies else UNEXPLAINED
        certain = explained(case, images, most)
    else:
        certain = copies == 0  # nothing says whose copies the rest are, or that they are copies
    start = start_images(case.seed, target.key, 0, target.count, case.shape)
    loss = loss_at(case, images)
    return Reading(layer, columns, Solution(images, start, labels, loss, determined=certain, copies=copies), certain)


def made_exact(case: Case, guess: Solution, reading: Reading) -> Solution:
    """The guess with what the first layer makes exact, and its own objective there; itself where that is nothing.

    Args:
        case: whose images. guess: what optimising found. reading: what `read_first_layer` told.
    """
    best, layer = guess, reading.layer
    if reading.solution is not None and reading.solution.loss < best.loss:
        best = reading.solution
    case = replace(case, labels=best.labels)
    images, copies = layer.with_guess(reading.columns, best.labels, best.images, case.seed)
    if images is None:
        return best
    made = replace(best, images=images, loss=loss_at(case, images))
    if copies is not None:
        loss = loss_at(case, copies)
        if loss < made.loss or not layer.one_step:
            made = replace(best, images=copies, loss=loss, copies=len(copies) - layer.rank)
    if layer.one_step and made.loss > best.loss:  # the objective is what was sent, and decides
        return best
    every = bool((made.images != best.images).flatten(1).any(1).all())  # what was not found stayed as it was
    return replace(made, determined=every)
