"""How far images are from what BatchNorm layers told of their batch, as a term of the objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....defenses.layout import Layout
from ..read.statistics import LayerMoments, batchnorms
from ..read.target import Target
from ..settings import Settings
from .optimise import Objective, with_distances

ROUNDED = 1e-12  # below it a squared distance is 0, where its root has no slope


class Listened:
    """What goes into some BatchNorm layers while a network runs. moments: mean and unbiased variance, by name."""

    def __init__(self, module: nn.Module, names: Iterable[str]) -> None:
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        layers = batchnorms(module)
        self._hooks = [layers[name].register_forward_pre_hook(partial(self._heard, name)) for name in names]

    def __enter__(self) -> Listened:
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _heard(self, name: str, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs = given[0]
        count = inputs.numel() // inputs.shape[1]
        rest = [0, *range(2, inputs.dim())]
        variance, mean = torch.var_mean(inputs, rest, correction=min(1, count - 1))
        self.moments[name] = mean, variance


def off_told(found: LayerMoments, told: LayerMoments) -> Tensor:
    """The mean over layers of ‖μ − μ*‖/√(Σ σ*²) + ‖σ² − σ*²‖/‖σ*²‖: Yin et al.'s, in shares of the layer's own size, so
    that it is a pure number as gradients' distances are; ().
    """
    far = []
    for name, (mean, variance) in found.items():
        mean_told, told_variance = (value.to(mean) for value in told[name])
        sizes = told_variance.sum(), told_variance.square().sum()
        for off, size in zip((mean - mean_told, variance - told_variance), sizes):
            far.append((off.square().sum() / size.clamp_min(ROUNDED)).clamp_min(ROUNDED).sqrt())
    return 2 * torch.stack(far).mean()


@dataclass(frozen=True, eq=False)
class ToldMoments:
    """How far images are from told statistics at one message's weights, by name. weight: what that counts."""

    module: nn.Module
    weights: Mapping[str, Tensor]
    told: LayerMoments
    weight: float

    def distance(self, images: Tensor) -> Tensor:
        """`off_told` of images (n, *shape), taken for one batch; ()."""
        with Listened(self.module, self.told) as listened:
            functional_call(self.module, dict(self.weights), (images,))
        return off_told(listened.moments, self.told)


def told_moments(network: nn.Module, layout: Layout, target: Target, settings: Settings) -> list[ToldMoments]:
    """Of every message of a target that tells some which the settings use."""
    used = [(one, *one.statistics.used(settings)) for one in target.messages if one.statistics is not None]
    return [ToldMoments(network, layout.split(one.weights), told, weight) for one, told, weight in used if told]


def with_statistics(objective: Objective, told: Sequence[Sequence[ToldMoments]]) -> Objective:
    """`objective` plus each candidate's weighted distance from what its target's messages tell, their mean.

    Args:
        objective: of T candidates. told: of each.
    """
    return with_distances(objective, [partial(mean_distance, own) if own else None for own in told])


def mean_distance(told: Sequence[ToldMoments], images: Tensor) -> Tensor:
    """The mean weighted distance of images (n, *shape) from what some messages tell; ()."""
    return torch.stack([one.weight * one.distance(images) for one in told]).mean()
