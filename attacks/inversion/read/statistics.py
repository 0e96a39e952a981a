"""What BatchNorm layers tell of a batch: mean and variance, channel by channel, of what went into each of them.

A BatchNorm keeps running statistics r, and in training mixes every batch's own b in: r' = (1 − m) r + m b. They go over
the wire beside the parameters. Whoever sees a model before and after one local step reads b = r + (r' − r) / m off
them, exactly but for rounding: equations on the images that no gradient holds, and that hold of all images together.
Whoever sees the model alone has r, which a batch's own are likely to be near: the prior of Yin et al. 2021
(arXiv:2104.07586, eq. 9, the sum over layers of ‖μ − r_μ‖ + ‖σ² − r_σ²‖).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...base import PublicFacts, Seen, View
from ..settings import Settings

STATISTICS = 0.1  # beside a gradient's distance; Yin et al.'s, and of those tried the best on seeds 100 and 101

# Mean and unbiased variance (channels,) of a layer's inputs, by its name.
LayerMoments = Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What a message tells of BatchNorm layers' inputs.

    running: of the batches before it, of layers that any went into. batch: of its own batch, of several local steps the
    mean over their batches; empty where it does not tell. steps: how many these were.
    """

    running: LayerMoments
    batch: LayerMoments
    steps: int = 1

    def used(self, settings: Settings) -> tuple[LayerMoments, float]:
        """Those that images are asked for, and their weight. A client that ran "eval" mixed nothing in."""
        if self.batch and settings.batch_statistics and settings.mode == "train":
            return self.batch, settings.batch_statistics
        return self.running if settings.running_statistics else {}, settings.running_statistics

    def assumed(self, settings: Settings) -> list[str]:
        """How an attack uses them, in plain words."""
        said, (moments, _) = [], self.used(settings)
        if settings.mode == "eval" and self.running:
            said.append("the fixed statistics are those that the model was sent with")
        if settings.mode == "eval" and self.batch:
            said.append("mode = 'eval', although the client's running statistics moved, as they do in training alone")
        if moments and moments is self.running:
            said.append("the images' statistics are near the running ones that the model was sent with")
        elif moments:
            several = f"the mean of its {self.steps} batches', taken for that of all images"
            whose = "its batch's own" if self.steps == 1 else several
            said.append(f"running statistics sent before and after local training tell {whose}; their momentum known")
        return said


def statistics_told(view: View, message: Seen) -> Statistics | None:
    """What an upload and its round's model tell; None where there is no BatchNorm or nothing was sent of it.

    A clip or noise on an upload stands on its statistics too. What they were before is not read then.
    """
    layers = batchnorms(view.module)
    if not layers:
        return None
    before = next(m for m in view.messages if m.broadcast and m.round == message.round).beside()
    sent, facts = message.beside(), view.facts
    told = Statistics(running_moments(layers, before), {})
    if untouched(facts) and message.kind != "gradient" and sent.keys() == before.keys():
        after = sent if message.kind == "weights" else {name: before[name] + sent[name] for name in sent}
        told = Statistics(told.running, *batch_moments(layers, before, after))
    return told if told.running or told.batch else None


def untouched(facts: PublicFacts) -> bool:
    """Whether neither a clip nor noise stands on what clients send."""
    return facts.noise_std == 0 and facts.clip_norm is None and not facts.clip_unknown


def running_moments(layers: Mapping[str, _BatchNorm], buffers: Mapping[str, Tensor]) -> LayerMoments:
    """The running statistics of layers that were updated before. A layer begins with mean 0 and variance 1, which
    nobody measured: no images are drawn to those, nor to negative variances, which a server's noise has made.
    """
    found = {name: _of(name, buffers) for name in layers if f"{name}.running_mean" in buffers}
    moved = {name: mean.any() or (var != 1).any() for name, (mean, var) in found.items()}
    return {name: (mean, var) for name, (mean, var) in found.items() if moved[name] and (var >= 0).all()}


def batch_moments(
    layers: Mapping[str, _BatchNorm], before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> tuple[LayerMoments, int]:
    """The batch's own statistics, and how many local steps turned the buffers `before` into `after`.

    Of K steps it is the mean over their batches, with weights ∝ (1 − m)^(K − 1 − k), or equal ones where the momentum
    is None. Without counters (`num_batches_tracked`) one step is assumed. Nothing where no statistics moved: the client
    did not run its layers in training.
    """
    found, most = {}, 0
    for name, layer in layers.items():
        if f"{name}.running_mean" not in before:
            continue
        counter = f"{name}.num_batches_tracked"
        count = float(after[counter]) if counter in after else 0.0
        steps = round(count - float(before[counter])) if counter in after else 1
        share = 1 - (1 - layer.momentum) ** steps if layer.momentum is not None else steps / count if count else 0.0
        old, new = _of(name, before), _of(name, after)
        if share > 0 and any(not torch.equal(a, b) for a, b in zip(old, new)):
            mean, variance = (a.double() + (b.double() - a.double()) / share for a, b in zip(old, new))
            found[name], most = (mean, variance), max(most, steps)
    return found, most


def _of(layer: str, buffers: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    return buffers[f"{layer}.running_mean"], buffers[f"{layer}.running_var"]


def batchnorms(module: nn.Module) -> dict[str, _BatchNorm]:
    """BatchNorm layers by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, _BatchNorm)}


def as_broadcast(module: nn.Module, statistics: Statistics | None) -> nn.Module:
    """A copy of a network with the running statistics that its model was sent with."""
    own = copy.deepcopy(module)
    for name, (mean, variance) in (statistics.running if statistics else {}).items():
        layer = own.get_submodule(name)
        layer.running_mean, layer.running_var = mean.clone(), variance.clone()
    return own
