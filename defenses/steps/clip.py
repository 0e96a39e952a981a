"""Clips: what makes a bound true. A clip bends the noise drawn before it, which then no longer adds to later noise.

Where noise follows, values and norms are float64: a float32 factor may leave a norm a ten-millionth above the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf
from statistics import median

import torch
from torch import Tensor

from ..randomness import Keystream
from ..scheme import Context
from ..wire import Bound, Parcel


def clip_to(vector: Tensor, norm: float, order: int = 2) -> Tensor:
    """`vector` (..., d) scaled down to norm ≤ `norm`; 0 where its norm is not finite, so that none passes unclipped.

    >>> clip_to(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    return clip_or_zero(vector, norm, order)[0]


def clip_or_zero(vector: Tensor, norm: float, order: int = 2) -> tuple[Tensor, Tensor]:
    """`clip_to`, and whether (...) each vector was clipped rather than replaced by 0."""
    size = torch.linalg.vector_norm(vector, order, dim=-1, keepdim=True)
    return _scaled_down(vector, size, norm), (size < inf).squeeze(-1)


def _scaled_down(vector: Tensor, size: Tensor, norm: float) -> Tensor:
    """`vector` (..., d) of norm `size` (..., 1), clipped to `norm`."""
    factor = size.clamp_min(torch.finfo(vector.dtype).tiny).reciprocal().mul_(norm).clamp_max_(1.0)
    finite = size < inf
    return vector * factor if finite.all() else torch.where(finite, vector * factor, 0.0)


def clip_in_steps(gradients: Tensor, norm: float, step: float | Tensor) -> Tensor:
    """Gradients (..., d) clipped to L2 norm ≤ `norm` and rounded to whole numbers of steps, in their own dtype; 0 where
    a norm is not finite.

    The norms are float64's. Those above are scaled to norm·(1 − 2⁻²²), as a float32 factor and product round up by at
    most 2⁻²³. Times a power of two nothing rounds, and a float32 that is no whole number of steps rounds to one
    exactly.
    """
    size = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True, dtype=torch.float64)
    factor = (norm * (1 - 2.0**-22) / size.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max_(1.0).div_(step)
    finite, factor = size < inf, factor.to(gradients.dtype)
    scaled = (gradients * factor).round_()
    return scaled if finite.all() else torch.where(finite, scaled, 0.0)


CACHED = 2**18  # numbers that a core's cache holds: pieces of so many are clipped and added twice as fast


def clipped_sum(gradients: Tensor, norm: float, step: Tensor, taken: Tensor) -> Tensor:
    """The sums (K, d) float64 of the gradients (K, B, d) of each client's records, after `clip_in_steps`.

    step: (K, 1, 1). taken: (K, B), whose gradients count.
    """
    clients, _, width = gradients.shape
    if gradients.numel() <= CACHED:
        clipped = clip_in_steps(gradients, norm, step).mul_(taken[..., None])
        return clipped.sum(1, dtype=torch.float64)
    sums = gradients.new_zeros(clients, width, dtype=torch.float64)
    at_once = max(1, CACHED // width)
    for total, client, grid, counted in zip(sums, gradients, step, taken, strict=True):
        for few, among in zip(client.split(at_once), counted.split(at_once), strict=True):
            total += clip_in_steps(few, norm, grid).mul_(among[:, None]).sum(0, dtype=torch.float64)
    return sums


@dataclass(frozen=True)
class Clip:
    """Scale the value down to norm ≤ C, whole or tensor by tensor (THESIS 2.28).

    norm: C > 0. order: 1 or 2. per_layer: clip every tensor of the model to C by itself.
    Guarantee: ‖value‖ ≤ C; per layer over Λ tensors ‖value‖ ≤ C√Λ (order 2) or CΛ (order 1).
    """

    norm: float
    order: int = 2
    per_layer: bool = False

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        return _clip(parcel, context, [self.norm] * len(_parts(self.per_layer, context)), self.order, self.per_layer)


@dataclass(frozen=True)
class MedianClip:
    """Clip to the median of the party's own norms in the rounds before (THESIS 3.8-3.9).

    A party's first round sets the norm and clips nothing.
    Guarantee: none. The bound is a function of private data, and it is also what the noise is scaled by.
    """

    per_layer: bool = False

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        parts = _parts(self.per_layer, context)
        now = [parcel.vector[part].norm().item() for part in parts]
        past: list[list[float]] = context.memory.setdefault("norms", [])
        norms = [median(column) for column in zip(*past)] if past else now
        past.append(now)
        reason = "the clip norm is the median of the client's own private norms"
        return _clip(parcel, context, norms, 2, self.per_layer, private=reason)


@dataclass(frozen=True)
class OwnNorm:
    """Clips nothing: the value's own norm is the clip norm, on its components that are not 0 (THESIS 3.2, after top-k).

    Guarantee: none. Nothing bounds the value, and noise scaled by this norm reveals it.
    """

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        norm = parcel.vector.norm().item()
        context.log["norm_before_clip"] = norm
        reason = "nothing bounds the value, and its noise is scaled by its own private norm"
        bound = Bound(norm, private=reason)
        return replace(parcel, bound=bound, clip_norm=norm * (parcel.vector != 0).to(parcel.vector))


@dataclass(frozen=True)
class SampledSpread:
    """Clips nothing: what noise is scaled by is `factor` standard deviations of some of the value's own components, the
    PauTa (3σ) criterion for a sensitivity (Han et al. 2021, TPDS 32(9), as its abstract says).

    share: in (0, 1], of the components, at least two, drawn anew for every value. factor: > 0.
    Guarantee: none. Nothing bounds the value, and its noise is scaled by a private estimate.
    """

    share: float
    factor: float = 3.0

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        vector = parcel.vector.double()
        count = min(len(vector), max(2, round(self.share * len(vector))))
        order = Keystream(context.seed, "spread", context.round, context.party).permutation(len(vector))
        spread = self.factor * vector[order[:count]].std(correction=0).item()
        context.log["norm_before_clip"] = vector.norm().item()
        reason = "nothing bounds the value, and its noise is scaled by a sample of its own private components"
        return replace(parcel, bound=Bound(vector.norm().item(), private=reason), clip_norm=spread)


@dataclass(frozen=True)
class ClipReceived:
    """A hub's clip of all the values it received, to a public norm or to the median of the round's norms.

    Source: Geyer et al. 2017, Alg. 1; THESIS 2.27, 3.5.
    norm: C > 0, or None for the median: of the norms sent along as "norm" where they were, else of the values
    themselves; of an even number the mean of the middle two.
    Guarantee: every value has norm ≤ C; with the median none that is worth anything, it is a function of private data.
    """

    norm: float | None = None

    def __call__(self, parcels: Sequence[Parcel], context: Context) -> list[Parcel]:
        before = [parcel.vector.norm().item() for parcel in parcels]
        norms = [parcel.side.get("norm", norm) for parcel, norm in zip(parcels, before)]
        norm = median(norms) if self.norm is None else self.norm
        private = "the clip norm is the median of the round's private norms" if self.norm is None else ""
        context.log["clip_norm"] = norm
        context.log["norm_before_clip"] = sum(before) / len(before)
        context.log["share_clipped"] = sum(b > norm for b in before) / len(before)
        bound = Bound(norm, private=private)
        vectors = [clip_to(parcel.vector.double(), norm) for parcel in parcels]
        return [
            replace(p, vector=vector, bound=replace(bound, anywhere=p.noisy), clip_norm=norm, noise_std=0.0)
            for p, vector in zip(parcels, vectors)
        ]


def _parts(per_layer: bool, context: Context) -> tuple[slice, ...]:
    return context.layout.slices if per_layer else (slice(0, context.layout.dim),)


def _clip(
    parcel: Parcel, context: Context, norms: list[float], order: int, per_layer: bool, private: str = ""
) -> Parcel:
    parts = _parts(per_layer, context)
    sizes = [torch.linalg.vector_norm(parcel.vector[part], order, dim=0, keepdim=True) for part in parts]
    before = [size.item() for size in sizes]
    clipped = [_scaled_down(parcel.vector[part], size, norm) for part, size, norm in zip(parts, sizes, norms)]
    vector = torch.cat(clipped) if len(clipped) > 1 else clipped[0]
    joint = hypot(*norms) if order == 2 else sum(norms)
    clip_norm: float | Tensor = norms[0]
    if per_layer and len(set(norms)) > 1:
        clip_norm = torch.cat(
            [torch.full((size,), norm, dtype=parcel.vector.dtype) for size, norm in zip(context.layout.sizes, norms)]
        )
    context.log["clip_norm"] = sum(norms) / len(norms)
    context.log["norm_before_clip"] = sum(before) / len(before)
    context.log["share_clipped"] = sum(b > n for b, n in zip(before, norms)) / len(norms)
    bound = Bound(joint, order, private=private or parcel.carries, anywhere=parcel.noisy or context.of_several)
    return replace(parcel, vector=vector, bound=bound, clip_norm=clip_norm, noise_std=0.0)
