"""Component-adaptive noise: a threshold and noise for each component, from the optimiser's own step repeated.

Source: ADN, Alg. 3 and Table II.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt

import torch
from torch import Tensor

from ..local import LocalTraining
from ..scheme import Context
from ..wire import Bound, Parcel
from .perturb import raw_release, release

BETAS = (0.9, 0.999)  # Adam's decay rates, the paper's and torch's
ROOT_EPSILON = 1e-7  # the paper's "10e-8"


def repeated_step(gradient: Tensor, state: Mapping[str, Tensor], local: LocalTraining, lr: float) -> Tensor:
    """G(g) (d,): what the optimiser would take off the weights if it saw `gradient` (d,) once more (ADN Table II).

    state: the optimiser's tensors by torch's names, as they are before that step; one that is missing is 0, as before
    the first. Table II has ε = 10e-8 under Adam's and RMSprop's root, η g/√(v + ε); torch (and the paper's text) add
    1e-8 to the root.

    >>> local = LocalTraining(optimiser="momentum", momentum=0.5)
    >>> repeated_step(torch.tensor([2.0]), {"momentum_buffer": torch.tensor([1.0])}, local, 0.1)
    tensor([0.2500])
    """
    zero = torch.zeros_like(gradient)
    match local.optimiser:
        case "sgd":
            return lr * gradient
        case "momentum":
            return lr * (local.momentum * state.get("momentum_buffer", zero) + gradient)
        case "adam":
            k = float(state.get("step", torch.tensor(0.0))) + 1
            first, second = (
                b * state.get(name, zero) + (1 - b) * g
                for b, name, g in zip(BETAS, ("exp_avg", "exp_avg_sq"), (gradient, gradient.square()))
            )
            return lr * first / (1 - BETAS[0] ** k) / (second / (1 - BETAS[1] ** k) + ROOT_EPSILON).sqrt()
        case "rmsprop":
            mean = local.smoothing * state.get("square_avg", zero) + (1 - local.smoothing) * gradient.square()
            return lr * gradient / (mean + ROOT_EPSILON).sqrt()
    raise ValueError(f"optimiser = {local.optimiser!r}: component-adaptive noise knows sgd, momentum, adam and rmsprop")


@dataclass(frozen=True)
class ClipComponents:
    """Truncate every component m to the centre ± q_m, q_m = (β/2)·|w_{K−1} − G(g_{K−1})|_m (ADN eq. 2, with Table II).

    local: the local training (its optimiser's G is repeated; it must have `keep_last`). around_start: the value is
    weights, and the centre the model the round began with; else 0. threshold: a public number in the place of |w_{K−1}
    − G(g_{K−1})|, or None. of_update: as the authors' code has it (themole233/ANDPFL), q_m = β·|w_{K−1} − G(g_{K−1}) −
    w_0|_m.
    Guarantee: |value − centre|_m ≤ q_m in every component, NaN included; worth nothing without a public threshold, q is
    then a function of private data, and a value truncated to it tells of it whatever noise was drawn before.
    """

    beta: float
    local: LocalTraining
    around_start: bool
    threshold: float | None = None
    of_update: bool = False

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        half = (self.beta if self.of_update else self.beta / 2) * self._estimate(parcel.vector, context)
        centre = context.start if self.around_start else torch.zeros_like(parcel.vector)
        private = "" if self.threshold is not None else "the thresholds are computed from private gradients"
        context.log["clip_norm"] = half.norm().item()
        context.log["norm_before_clip"] = (parcel.vector - centre).norm().item()
        context.log["share_clipped"] = ((parcel.vector - centre).abs() > half).double().mean().item()
        # The offset is clamped, not the weights: far from 0 a sum w0 + q would round beyond q. A NaN must not pass
        # unclamped.
        offset = (parcel.vector - centre).nan_to_num(nan=0.0)
        vector = centre + torch.minimum(torch.maximum(offset, -half), half)
        thresholds = raw_release(context, "thresholds", private)
        releases = parcel.releases | {thresholds} if private else parcel.releases
        anywhere = parcel.noisy or context.of_several
        bound = Bound(half, private=private or parcel.carries, centred=self.around_start, anywhere=anywhere)
        return replace(parcel, vector=vector, bound=bound, clip_norm=half, releases=releases, noise_std=0.0)

    def _estimate(self, like: Tensor, context: Context) -> Tensor:
        if self.threshold is not None:
            return torch.full_like(like, self.threshold)
        result = context.result
        if result is None or result.last_gradient is None or result.last_start is None:
            raise ValueError(
                "component-adaptive noise needs the gradient before the last step; train at least K = 2 local steps"
            )
        step = repeated_step(result.last_gradient, result.optimiser, self.local, self.local.lr * context.plan.lr)
        guess = result.last_start - step
        return (guess - context.start if self.of_update else guess).abs()


@dataclass(frozen=True)
class PerturbComponents:
    """Gaussian noise of std √M·σ0·Δ_m, Δ_m = 2q_m, on each of the M components truncated to ± q_m (ADN eq. 4).

    batch_size: as the authors' code has it, of std √m·σ0·q_m/batch_size, m the components of the tensor. None: eq. 4.
    """

    sigma: float
    batch_size: int | None = None

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        bound, half = parcel.bound, parcel.clip_norm
        if bound is None or half is None:
            raise ValueError("component-adaptive noise needs its truncation before it; put ClipComponents first")
        noise_std = sqrt(parcel.vector.numel()) * self.sigma * 2 * half
        if self.batch_size is not None:
            roots = torch.tensor(context.layout.sizes, dtype=torch.float64).sqrt()
            by_tensor = roots.repeat_interleave(torch.tensor(context.layout.sizes))
            noise_std = by_tensor * self.sigma * half / self.batch_size
        return release(parcel, noise_std, "gaussian", context, private_scale=bound.private)
