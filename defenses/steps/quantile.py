"""A clip that follows a quantile of the updates' norms, which is itself estimated with noise.

Source: Andrew, Thakkar, McMahan and Ramaswamy 2021, arXiv:1905.03871, Alg. 1 and Theorem 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt

import torch

from ..grid import TAIL, noisy, step_of
from ..randomness import Keystream
from ..scheme import Context
from ..wire import Bound, Parcel
from .clip import clip_to
from .perturb import draw, release

NORM, WITHIN = "clip_norm", "within"  # what goes out beside the model, and what comes back beside a value


def update_multiplier(multiplier: float, count_std: float) -> float:
    """z_Δ = (z⁻² − (2σ_b)⁻²)^(−½): the noise multiplier of the updates that leaves a round, with the count of Theorem 1
    beside them, at the cost of one plain Gaussian of multiplier z.

    Args:
        multiplier: z > 0. count_std: σ_b, the noise on Σ(b_i − ½), each of which is at most ½.

    Raises:
        ValueError: σ_b is so small that the count alone costs more than z.

    >>> [round(update_multiplier(z, 5.0), 5) for z in (1.0, 2.0, 3.0)]
    [1.00504, 2.04124, 3.14485]
    """
    if not multiplier < 2 * count_std:
        raise ValueError(
            f"noise_multiplier = {multiplier:g}: a count with noise of std {count_std:g} alone costs as much as a"
            f" multiplier of {2 * count_std:g}; raise count_std above {multiplier / 2:g}"
        )
    return 1 / sqrt(multiplier**-2 - (2 * count_std) ** -2)


@dataclass(frozen=True)
class QuantileClip:
    """A client's clip to the public norm C_t, which came along with the model, and the bit that says whether the value
    was within.

    start: C_0 > 0, of the first round. The bit is sent beside the value: 1 within, 0 not, and ½ for a value of 0: to
    send nothing and not to be there are the same. What is not finite becomes 0, and counts as longer.
    Guarantee: ‖value‖ ≤ C_t, a function of C_0 and of what was released before; the bit is within ½ ± ½.
    """

    start: float

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        norm = context.told.get(NORM, self.start)
        size = parcel.vector.norm().item()
        context.log["clip_norm"] = norm
        context.log["norm_before_clip"] = size
        context.log["share_clipped"] = float(not size <= norm)
        bit = 0.5 if size == 0 else float(size <= norm)
        return replace(
            parcel,
            vector=clip_to(parcel.vector, norm),
            bound=Bound(norm, anywhere=parcel.noisy),
            clip_norm=norm,
            noise_std=0.0,
            side={**parcel.side, WITHIN: bit},
        )


@dataclass(frozen=True)
class CountWithin:
    """A hub's count of the bits it received, Σ(b_i − ½), for `PerturbQuantile`. It reads nothing else."""

    def __call__(self, parcels: Sequence[Parcel], context: Context) -> list[Parcel]:
        context.memory[WITHIN] = sum(parcel.side[WITHIN] - 0.5 for parcel in parcels)
        return list(parcels)


@dataclass(frozen=True)
class PerturbQuantile:
    """Noise of std z_Δ·C_t/m on the mean of m clipped values and of std σ_b on the count, in one release; then
    C_{t+1} = C_t·exp(−η(b̃ − γ)), b̃ = ½ + (Σ(b_i − ½) + noise)/m.

    The new norm goes out beside the model: clients need it. b̃ is not limited to [0, 1], as in the paper (TF-Privacy
    limits it, which is post-processing).

    noise_multiplier: z_Δ. count_std: σ_b. cohort: m, how many are summed (on average, if that is drawn). quantile: γ.
    lr: η.
    """

    noise_multiplier: float
    count_std: float
    cohort: float
    quantile: float = 0.5
    lr: float = 0.2

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        assert isinstance(parcel.clip_norm, float)
        norm, within = parcel.clip_norm, context.memory.pop(WITHIN)
        std = self.count_std * context.plan.noise
        private = parcel.bound.private if parcel.bound else ""
        also = (0.5, std)
        made = release(parcel, self.noise_multiplier * norm / self.cohort, "gaussian", context, private, also=also)
        noise = draw("gaussian", std, 1, Keystream(context.seed, "noise", "quantile", context.round, context.party))
        count = torch.tensor([within], dtype=torch.float64)
        told = noisy(count, noise, step_of(std, context.senders + TAIL * std), bounded=True).item()
        moved = norm * exp(-self.lr * (0.5 + told / self.cohort - self.quantile))
        return replace(made, side={**made.side, NORM: moved})
