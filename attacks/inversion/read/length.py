"""How long an update was before its clip: as long as the one that training on a first guess of its images makes.

A clip keeps an update's direction and hides its length, and with it the place half-way through training (`along`) and
the scale of gradients. But everybody can train on images, and the length of what comes out depends little on which
ones: of a guess it was right to a fifth where a random start missed by half (`benchmarks/measured/local-training.md`).
Ours.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ....defenses.layout import Layout
from ..strategies.simulated import can_simulate, orders
from .local_steps import LocalSteps
from .target import Target

CLIPPED = 0.99  # of the clip norm: a norm above counts as clipped, as noise moves it a little
NOISE = 0.5  # a message with a larger share of noise has no length to speak of


def cut_short(target: Target) -> bool:
    """Whether a target is one message of several linear steps whose clip hides how long it was."""
    recipe = target.recipe
    if recipe is None or not recipe.linear or target.per_layer or target.clip_order != 2 or not can_simulate(target):
        return False
    if target.update is None or target.sparse is not None or target.noise_share > NOISE:
        return False
    return not _to_scale(target) or (target.clip_norm is not None and _signal(target) > CLIPPED * target.clip_norm)


def lengthened(
    network: nn.Module, layout: Layout, target: Target, images: Tensor, labels: Tensor, seed: int, device: str = "cpu"
) -> tuple[Target, float]:
    """The target as it was before its clip, by training on these images, and how many times as long it is, at least 1
    where the clip's norm is known.

    Args:
        network: in evaluation mode. layout: of its parameters. target: one that is `cut_short`.
        images: (n, *shape), a guess. labels: (n,). seed: of the order of batches. device: of the training.
    """
    assert target.recipe is not None and target.update is not None
    there = replace(target, weights=target.weights.to(device))
    whole = trained_on(network, layout, there, images, labels, seed).norm().item() / target.recipe.scale
    known = target.clip_norm if _to_scale(target) else None
    times = whole / max(known or _signal(target), 1e-30)
    times = max(1.0, times) if known else times
    longer = replace(
        target,
        gradient=target.gradient * times,
        update=target.update * times,
        noise_std=target.noise_std * times,
        clip_norm=None,
        scale_known=target.recipe.scaled,
        sent_to_scale=not target.recipe.scaled,
    )
    return longer, times


def trained_on(network: nn.Module, layout: Layout, target: Target, images: Tensor, labels: Tensor, seed: int) -> Tensor:
    """The update (d,) that the target's local training makes of images.

    Args:
        network: in evaluation mode. layout: of its parameters. target: of whole epochs.
        images: (n, *shape). labels: (n,). seed: of the order of batches.
    """
    recipe = target.recipe
    assert recipe is not None and recipe.epochs
    order = orders(seed, f"{target.key} length", recipe.epochs, target.count).flatten()
    walk = LocalSteps(recipe, layout, target.weights)
    images = images.to(target.weights)
    for rows in order.split(list(recipe.sizes)):
        at = {name: w.detach().requires_grad_() for name, w in layout.split(walk.weights).items()}
        with torch.enable_grad():
            loss = F.cross_entropy(functional_call(network, at, (images[rows],)), labels[rows].to(images.device))
            gradient = torch.autograd.grad(loss, list(at.values()))
        walk.forward(torch.cat([g.flatten() for g in gradient]))
    return walk.weights - target.weights


def _to_scale(target: Target) -> bool:
    """Whether an update's length is told but for a public clip."""
    return target.scale_known or target.sent_to_scale


def _signal(target: Target) -> float:
    """The norm of what was sent, without the noise's share of it."""
    energy = target.gradient.square().sum().item() - len(target.gradient) * target.noise_std**2
    return max(energy, 0.0) ** 0.5
