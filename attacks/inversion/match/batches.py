"""Which targets and restarts are optimised together."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from ....defenses.layout import Layout
from ..read.target import Target

# A batch of candidates holds at most about this many numbers (0.5 GB in float32); a rule on shapes only.
CHUNK_NUMBERS = 2**27


def numbers_per_image(module: nn.Module, input_shape: Sequence[int]) -> int:
    """About how many numbers a candidate's image takes: itself, its activations, what the optimiser keeps of both."""
    return 8 * (prod(input_shape) + sum(shape[0] for shape in Layout.of(module).shapes))


def batches(targets: Sequence[Target], restarts: int, numbers_per_image: int) -> list[tuple[list[int], range]]:
    """Which targets (positions) and restarts form a batch: equal loss, weights, count, clip order, and clip and scale
    kind, message by message where they have several.

    A batch holds at most `CHUNK_NUMBERS` numbers (but at least one candidate): `numbers_per_image` for every image of
    every candidate, and every target's gradient. The rule sees shapes only, so the same targets always form the
    same batches.
    """
    models: list[Tensor] = []
    groups: dict[tuple, list[int]] = {}
    for i, target in enumerate(targets):
        kind = tuple(
            (_place(models, one.weights), one.clip_order, one.per_layer, one.scale_known, one.sparse is None)
            for one in target.messages
        )
        groups.setdefault((target.loss, target.count, *kind), []).append(i)
    result = []
    for members in groups.values():
        first = targets[members[0]]
        per_candidate = first.count * numbers_per_image
        per_target = restarts * per_candidate + len(first.messages) * len(first.gradient)
        many = max(1, CHUNK_NUMBERS // per_target)
        few = min(restarts, max(1, CHUNK_NUMBERS // per_candidate))
        for place in range(0, len(members), many):
            for restart in range(0, restarts, few):
                result.append((members[place : place + many], range(restart, min(restart + few, restarts))))
    return result


def _place(models: list[Tensor], weights: Tensor) -> int:
    """Where these weights are among the models; at the end, if they are new."""
    place = next((k for k, w in enumerate(models) if w is weights or torch.equal(w, weights)), len(models))
    if place == len(models):
        models.append(weights)
    return place
