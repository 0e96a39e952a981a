"""Weights that were clipped before they were sent, made as long again as they were.

A clip to a public norm C scales weights w and their update u together, v = s (w + u), so that v − w is next to nothing
but −(1 − s) w wherever weights are longer than C: as fresh ones mostly are. How long they were nobody tells. But u is
short beside w, so the factor 1/s is taken that leaves the least update, ⟨v, w⟩ / ⟨v, v⟩: right but for u's part along
v, which is small where a network is as wide as usual (`benchmarks/measured/local-training.md`). Noise of more than v
itself makes ⟨v, v⟩ a guess, whatever is taken off it, and the factor anything; so where noise is large or unknown they
are taken to be as long as w. Ours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...base import PublicFacts

ROUNDING, SPREAD = 1e-5, 0.1  # of the clip's norm: weights that are shorter by more, or a mean of several clients'
# weights by more, were not clipped; and by this many standard deviations of what noise does to their norm:
NOISE = 5.0
UNSURE = 0.01  # of the square of what was sent, standard deviation, above which its own length is not asked
MADE_LONG = (
    "weights that are as long as their clip's norm made as long as leaves the least update, or, under strong or unknown"
    " noise, as those that they began with; others not clipped"
)


def clips_weights(facts: PublicFacts) -> bool:
    """Whether weights are clipped as a whole before they are sent; of a recording what a client adds to the model is
    clipped, and not its weights.
    """
    clipped = facts.clip_norm is not None and not facts.per_layer
    return clipped and facts.share == "weights" and facts.scheme != "recorded"


def longer_than_clip(weights: Tensor, facts: PublicFacts) -> float:
    """How many times as long as their clip's norm weights (d,) are, at least 1; 1 where none is of them as a whole."""
    if not clips_weights(facts) or facts.clip_norm is None:
        return 1.0
    return max(1.0, float(torch.linalg.vector_norm(weights.double(), facts.clip_order)) / facts.clip_norm)


def stretched(value: Tensor, weights: Tensor, facts: PublicFacts, noise_std: float | None, clients: int = 1) -> float:
    """The factor, at least 1, that makes clipped weights as long as they were; 1 where they do not look clipped, or
    were clipped tensor by tensor.

    Args:
        value: (d,), weights as they were sent. weights: (d,), what their training began with.
        facts: of the round. noise_std: in each component of the value, None where nobody knows. clients: whose mean it
            is.

    >>> facts = PublicFacts("naafl", "weights", "sgd", 0.1, 8, 1, None, clip_norm=1.0)
    >>> stretched(torch.tensor([1.0, 0.0]), torch.tensor([5.0, 0.0]), facts, 0.0)
    5.0
    """
    if not clips_weights(facts) or facts.clip_norm is None:
        return 1.0
    v, w, norm, noise = value.double(), weights.double(), facts.clip_norm, noise_std or 0.0
    energy = float(v @ v) - len(v) * noise**2
    size, unsure = float(torch.linalg.vector_norm(v, facts.clip_order)), 0.0
    if facts.clip_order == 2:
        size = max(energy, 0.0) ** 0.5
        unsure = NOISE * noise * (1 + len(v) / 2 * (noise / norm) ** 2) ** 0.5
    least = norm * (1 - (ROUNDING if clients == 1 else SPREAD)) - unsure
    began = longer_than_clip(w, facts)
    by_step = facts.step_clip is not None and facts.step_clip.what == "weights"
    hidden = by_step or clients > 1  # later steps, or other directions, make what was clipped shorter
    if not (size >= least or (hidden and began > 1)):
        return 1.0
    off = 2 * noise * max(energy, 0.0) ** 0.5 + (2 * len(v)) ** 0.5 * noise**2
    if noise_std is None or not energy > 0 or off > UNSURE * energy:
        return began
    return max(1.0, float(v @ w) / energy)
