"""A clip norm that follows a client's own gradients (Fu et al., adap DP-FL, arXiv:2211.15893, eq. 6-8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from ..grid import TAIL, noisy, step_of
from ..local import LocalTraining
from ..randomness import Keystream
from ..ranges import LEAST_SIZE, MOST_SIZE
from ..releases import and_also
from ..scheme import Context
from ..wire import Parcel
from .perturb import draw

CLIP_NORM = "clip_norm"  # what a client remembers it by


@dataclass(frozen=True)
class AdaptClip:
    """The clip norm of the client's next round: C ← α·‖noised mean‖, kept within 10^±100. The value stays as it is.

    local: the local training, whose `per_example` has the first round's clip norm. alpha: α > 0.
    of: "norms": of the last lot's clipped norms, eq. 6 literally: (Σ_i min(‖g_i‖, C) + N(0, (σC)²))/L. That is a second
      noised sum over the lot whose gradients are released, of the same sensitivity C over noise: the two are one
      Gaussian of multiplier σ/√2, and the release says so. "gradient": of the noised mean gradient itself, the reading
      by which it is post-processing.
    """

    local: LocalTraining
    alpha: float
    of: Literal["norms", "gradient"]

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        rule, inside = self.local.per_example, None if context.result is None else context.result.inside
        assert rule is not None
        norm = context.memory.get(CLIP_NORM, rule.clip_norm)
        context.log["clip_norm"] = norm
        if inside is not None:
            size = inside.gradient_norm
            if self.of == "norms":
                std = rule.noise_multiplier * norm * context.plan.noise
                noise = draw("gaussian", std, 1, Keystream(context.seed, "clip norm", context.round, context.party))
                step = step_of(std, context.num_examples * norm + TAIL * std)
                summed = torch.tensor([inside.clipped_norms], dtype=torch.float64)
                size = abs(noisy(summed, noise, step, bounded=True).item()) / self.local.batch_size
            context.memory[CLIP_NORM] = min(max(self.alpha * size, LEAST_SIZE), MOST_SIZE)
        if self.of == "gradient":
            return parcel
        both = frozenset(
            and_also(r, r.bound_norm or 0.0, r.noise_std) if r.mechanism == "gaussian" else r for r in parcel.releases
        )
        return replace(parcel, releases=both)
