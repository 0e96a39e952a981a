"""Weights that were clipped before they were sent, made as long again as they were.

A clip to a public norm C scales weights w and their update u together, v = s (w + u), so that v − w is next to nothing
but −(1 − s) w wherever weights are longer than C: as fresh ones mostly are. How long they were nobody tells. But u is
short beside w, so the factor 1/s is taken that leaves the least update, ⟨v, w⟩ / ⟨v, v⟩: right but for u's part along
v, which is small where a network is as wide as usual (docs/local-training.md). Ours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import PublicFacts

ROUNDING, SPREAD = 1e-5, 0.1  # of the clip's norm: weights that are shorter by more, or a mean of several clients'
# weights by more, were not clipped; and by this many standard deviations of what noise does to their norm:
NOISE = 3.0


def stretched(value: Tensor, weights: Tensor, facts: PublicFacts, noise_std: float, clients: int = 1) -> float:
    """The factor, at least 1, that makes clipped weights as long as they were; 1 where they do not look clipped, or
    were clipped tensor by tensor.

    Args:
        value: (d,), weights as they were sent. weights: (d,), what their training began with.
        facts: of the round. noise_std: in each component of the value. clients: whose mean it is.

    >>> facts = PublicFacts("naafl", "weights", "sgd", 0.1, 8, 1, None, clip_norm=1.0)
    >>> stretched(torch.tensor([1.0, 0.0]), torch.tensor([5.0, 0.0]), facts, 0.0)
    5.0
    """
    if facts.share != "weights" or facts.clip_norm is None or facts.per_layer or facts.scheme == "recorded":
        return 1.0  # of a recording what a client adds to the model is clipped
    v, w, norm = value.double(), weights.double(), facts.clip_norm
    energy = float(v @ v) - len(v) * noise_std**2
    size, unsure = float(torch.linalg.vector_norm(v, facts.clip_order)), 0.0
    if facts.clip_order == 2:
        size = max(energy, 0.0) ** 0.5
        unsure = NOISE * noise_std * (1 + len(v) / 2 * (noise_std / norm) ** 2) ** 0.5
    least = norm * (1 - (ROUNDING if clients == 1 else SPREAD)) - unsure
    by_step = facts.step_clip is not None and facts.step_clip.what == "weights"
    hidden = by_step or clients > 1  # later steps, or other directions, make what was clipped shorter
    first = hidden and float(torch.linalg.vector_norm(w, facts.clip_order)) > norm
    if not (size >= least or first) or not energy > 0:
        return 1.0
    return max(1.0, float(v @ w) / energy)
