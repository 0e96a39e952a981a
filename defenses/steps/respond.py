"""Local randomisers that answer every number with one of two values (Sun et al., LDP-FL, arXiv:2007.15789)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..scheme import Context
from ..wire import Bound, Parcel
from .perturb import respond


@dataclass(frozen=True)
class ClipRange:
    """Every number into c ± r.

    centre, radius: c and r > 0, in parameter units. adaptive: c and r are instead half the sum and half the difference
    of the largest and the least number that the tensor has in the model sent out, r at least `radius`: our rule, where
    the paper says that the server recomputes them and not how.
    Guarantee: |value − c| ≤ r in every number, NaN included. What the adaptive range is computed from is public to
    whoever sees the model sent out; to others the range tells of earlier values (`Bound.centred`).
    """

    centre: float
    radius: float
    adaptive: bool = False

    def of(self, context: Context) -> tuple[Tensor, Tensor]:
        """c and r, (d,) of float64 each."""
        centre = torch.full((context.layout.dim,), self.centre, dtype=torch.float64)
        radius = torch.full_like(centre, self.radius)
        for part in context.layout.slices if self.adaptive else ():
            sent = context.start[part].double()
            centre[part] = (sent.max() + sent.min()) / 2
            radius[part] = ((sent.max() - sent.min()) / 2).clamp_min(self.radius)
        return centre, radius

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        centre, radius = self.of(context)
        offset = (parcel.vector.double() - centre).nan_to_num(nan=0.0)
        context.log["clip_norm"] = radius.mean().item()
        context.log["share_clipped"] = (offset.abs() > radius).double().mean().item()
        vector = centre + torch.minimum(torch.maximum(offset, -radius), radius)
        anywhere = parcel.noisy or context.of_several
        bound = Bound(centre.abs() + radius, private=parcel.carries, centred=self.adaptive, anywhere=anywhere)
        return replace(parcel, vector=vector, bound=bound, clip_norm=radius, noise_std=0.0)


@dataclass(frozen=True)
class Respond:
    """Each number of a value in `within` becomes c ± rK, K = (e^ε + 1)/(e^ε − 1), without bias.

    epsilon: ε > 0, of one number. Guarantee: pure ε-DP of every number, so d·ε of a message of d.
    """

    within: ClipRange
    epsilon: float

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        centre, radius = self.within.of(context)
        # An adaptive centre is the model's: nothing for any model, though one of zeros happens to have 0.
        about_zero = not self.within.adaptive and self.within.centre == 0.0
        return respond(parcel, centre, radius, self.epsilon, context, about_zero=about_zero)
