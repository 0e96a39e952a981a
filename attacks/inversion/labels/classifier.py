"""The classifier of a network, found by what it computes, and what a message says of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....defenses.randomness import generator
from ..match.solution import random_images

KNOW_THEM = "give the labels (labels='known')"
MEAN_SHARE = 0.1  # of the features' energy at least, that their mean needs to stand for them
PROBES = 64  # random images that stand for those nobody knows


@dataclass(frozen=True)
class Head:
    """The last linear layer of a forward pass: its module's name, its parameters' names. bias: None for none."""

    name: str
    weight: str
    bias: str | None


@dataclass(frozen=True, eq=False)
class Probed:
    """A network at one place on random images. features: (m, width) into the classifier. outputs: (m, classes)."""

    features: Tensor
    outputs: Tensor

    @property
    def probabilities(self) -> Tensor:
        """(classes,), the mean softmax."""
        return self.outputs.double().softmax(1).mean(0)

    @property
    def undecided(self) -> bool:
        """Whether the mean softmax is as spread as if over half of the classes or more: only then a random image's
        prediction is about a real one's, as trained networks call all random images the same.
        """
        return bool(2 / self.probabilities.square().sum() >= self.outputs.shape[1])


def probes(shape: tuple[int, ...]) -> Tensor:
    """The `PROBES` random images (m, *shape), always the same."""
    return random_images(PROBES, shape, generator(0, "label probes"))


def find_classifier(module: nn.Module, shape: tuple[int, ...]) -> Head:
    """The linear layer that is called last when an image of `shape` goes through `module`.

    Raises:
        ValueError: no linear layer is called, or what it gives is not of the shape of the network's answer.
    """
    weights = {name: p.detach() for name, p in module.named_parameters()}
    called, answer = _called(module, weights, probes(shape)[:2])
    if not called:
        raise ValueError(f"labels cannot be inferred: the network has no linear layer as its classifier; {KNOW_THEM}")
    name, _, given = called[-1]
    if given.shape != answer.shape:
        raise ValueError(
            f"labels cannot be inferred: the last linear layer {name!r} gives {prod(given.shape[1:])} numbers an image"
            f" and the network {prod(answer.shape[1:])}, so it is no classifier; {KNOW_THEM}"
        )
    start = f"{name}." if name else ""
    names = {id(p): known for known, p in module.named_parameters()}  # a shared one has the name it was first met by
    layer = module.get_submodule(name)
    bias = getattr(layer, "bias", None)
    if not layer.weight.requires_grad or not (bias is None or bias.requires_grad):
        raise ValueError(
            f"labels cannot be inferred: the classifier {name!r} is frozen, so nobody sends it; {KNOW_THEM}"
        )
    return Head(name, names.get(id(layer.weight), f"{start}weight"), None if bias is None else names.get(id(bias)))


def probe(module: nn.Module, weights: Mapping[str, Tensor], classifier: Head, shape: tuple[int, ...]) -> Probed:
    """What the network makes of `probes` at these weights (by name)."""
    first = next(iter(weights.values()))
    called, answer = _called(module, weights, probes(shape).to(first))
    features = next(given for name, given, _ in reversed(called) if name == classifier.name)
    return Probed(features.cpu(), answer.cpu())


def bias_like(named: Mapping[str, Tensor], classifier: Head, features: Tensor, noisy: bool = False) -> Tensor:
    """A gradient or update (classes,) of the classifier's bias, read off its weight's where it has none.

    Row c of the weight's gradient is the mean of (p_c − y_c)·a over the images' features a; along the mean feature ā it
    is about ‖ā‖² times the bias' own entry, and its noise is σ‖ā‖. So a ‖ā‖-th of the noise is left, which is never
    more than summing rows leaves (Cauchy and Schwarz), but features that differ make it an estimate. With a bias and
    much noise both are read together: rows [G_W | g_b] along (ā, 1).

    Args:
        named: by parameter. classifier: of the network. features: (m, width), of `probe`.
        noisy: whether the bias alone would be read badly.

    Raises:
        ValueError: there is no bias, and the features have no mean to speak of.
    """
    mean = features.double().mean(0)
    energy, share = mean.square().sum(), features.double().square().sum(1).mean()
    stands = bool(share > 0) and bool(energy >= MEAN_SHARE * share)
    own = None if classifier.bias is None else named[classifier.bias].double().cpu()
    if own is not None and not (noisy and stands):
        return own
    if not stands:
        raise ValueError(
            f"labels cannot be inferred: the classifier {classifier.name!r} has no bias and its features average to"
            f" next to nothing; {KNOW_THEM}"
        )
    along = named[classifier.weight].double().cpu() @ mean
    return along / energy if own is None else (along + own) / (energy + 1)


def _called(
    module: nn.Module, weights: Mapping[str, Tensor], images: Tensor
) -> tuple[list[tuple[str, Tensor, Tensor]], Tensor]:
    """Linear layers' names, inputs and outputs in the order they are called, and the network's answer."""
    called: list[tuple[str, Tensor, Tensor]] = []
    with _watched(module, called), torch.no_grad():
        training = module.training
        try:
            answer = functional_call(module.eval(), dict(weights), (images,))
        finally:
            module.train(training)
    return called, answer


@contextmanager
def _watched(module: nn.Module, called: list[tuple[str, Tensor, Tensor]]) -> Any:
    def watch(name: str) -> Any:
        return lambda layer, inputs, output: called.append((name, inputs[0], output))

    hooks = [m.register_forward_hook(watch(name)) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
