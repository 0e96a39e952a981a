"""A client's local training simulated on images, and the objective of the update that comes out (Dimitrov et al. 2022,
arXiv:2206.12395).

Nobody tells the batches' order. So the images of every epoch may be variables of their own, in an order drawn once, of
which only what no order changes is asked: that every epoch's images have the same mean (their "l2-mean" prior).

A clip keeps an update's direction and hides its length, and with it the place half-way through training (`along`) and
the scale of gradients. But everybody can train on images, and the length of what comes out depends little on which
ones: of a guess it was right to a fifth where a random start missed by half (`benchmarks/measured/local-training.md`).
Ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....defenses.chain import open_chain
from ....defenses.layout import Layout
from ....defenses.randomness import generator
from ..engines.ghost_steps import GhostSteps, can_ghost
from ..match.case import Case
from ..match.objective import Matching
from ..match.optimise import Objective
from ..match.solution import Solution
from ..read.local_steps import LocalSteps
from ..read.sparse import beyond_sent
from ..read.target import Target

CLIPPED = 0.99  # of the clip norm: a norm above counts as clipped, as noise moves it a little
NOISE = 0.5  # a message with a larger share of noise has no length to speak of


@dataclass(frozen=True, eq=False)
class _Step:
    """images (b, *shape), the weights before and the gradient."""

    images: Tensor
    weights: list[Tensor]
    gradient: tuple[Tensor, ...]


class Simulated:
    """The objective of the update that E epochs' images would have made; the interface of `Ghost` for one candidate.

    The client's clip and noise come after its training, so the simulated update, in the target's units, goes through
    the same `Matching` as a gradient does.

    Args:
        module: the network, in evaluation mode. layout: of its parameters.
        target: with a recipe of whole epochs. labels: (E, n) of every epoch's images, in the order of its batches.
        matching: how updates are compared.

    Raises:
        ValueError: the target has no recipe, or not one of E whole epochs of n images.
    """

    def __init__(self, module: nn.Module, layout: Layout, target: Target, labels: Tensor, matching: Matching) -> None:
        recipe = target.recipe
        if recipe is None or recipe.epochs != len(labels) or sum(recipe.sizes) != labels.numel():
            raise ValueError(
                f"target {target.key!r}: only local training of whole epochs can be simulated, one row of labels for"
                f" each; labels have shape {tuple(labels.shape)}"
            )
        self.module, self.layout, self.target, self.labels = module, layout, target, labels
        self.recipe, self.matching = recipe, matching
        self.observed = layout.split(target.gradient)
        self.scale, self.sparse = -1 / recipe.scale, target.sparse_by(matching.name)
        chain = open_chain(module)
        self.ghost = None
        if chain is not None and self.sparse is None and can_ghost(target, matching):
            self.ghost = GhostSteps(chain, layout, target, labels.flatten(), matching)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (1,) and its gradient with respect to `images` (1, E·n, *shape)."""
        return self._unrolled(images) if self.ghost is None else self.ghost(images)

    def _unrolled(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """On any network."""
        walk, steps = self._trained(images[0])
        value, cotangent = self._matched(walk)
        backward, parts = walk.backward(), []
        for step in steps[::-1]:
            of_gradient, cotangent = backward(cotangent)
            along = list(self.layout.split(of_gradient).values())
            of_x, *of_weights = torch.autograd.grad(
                step.gradient, (step.images, *step.weights), grad_outputs=along, materialize_grads=True
            )
            cotangent = cotangent + torch.cat([w.flatten() for w in of_weights])
            parts.append(of_x)
        return value[None], torch.cat(parts[::-1])[None]

    def _trained(self, images: Tensor) -> tuple[LocalSteps, list[_Step]]:
        """The client's steps on images (E·n, *shape)."""
        walk = LocalSteps(self.recipe, self.target.weights)
        steps: list[_Step] = []
        first, y = 0, self.labels.flatten()
        for size in self.recipe.sizes:
            x = images[first : first + size].detach().requires_grad_()
            at = {name: w.detach().requires_grad_() for name, w in self.layout.split(walk.weights).items()}
            with torch.enable_grad():
                outputs = functional_call(self.module, at, (x,))
                loss = self.target.minimised.mean(outputs, y[first : first + size])
                gradient = torch.autograd.grad(loss, list(at.values()), create_graph=True)
            steps.append(_Step(x, list(at.values()), gradient))
            walk.forward(torch.cat([g.detach().flatten() for g in gradient]))
            first += size
        return walk, steps

    def _matched(self, walk: LocalSteps) -> tuple[Tensor, Tensor]:
        """The objective (), and its derivatives by the weights after all steps (d,)."""
        update = (walk.weights - self.target.weights) * self.scale
        free = None
        if self.sparse is not None:
            (update,), (free,) = beyond_sent([update], [self.sparse.sent], self.sparse.least)
        own = self.layout.split(update)
        value, direction = self.matching.direction(0, list(own.values()), list(self.observed.values()))
        cotangent = self.layout.join(dict(zip(own, direction))) * self.scale
        if free is not None:
            cotangent = cotangent * free
        return value, cotangent


def disorder(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean square difference of two epochs' mean images, over all pairs of epochs and all pixels, and its gradient.

    No order of the images within an epoch changes it. images: (E, n, *shape).

    >>> disorder(torch.tensor([[0.0, 1.0], [1.0, 2.0]]).view(2, 2, 1))[0].item()
    0.5
    """
    means = images.mean(1)
    off = means - means.mean(0)
    value = 2 * off.square().mean()
    slope = (4 / (off.numel() * images.shape[1])) * off
    return value, slope[:, None].expand_as(images)


def with_disorder(objective: Objective, epochs: int, weight: float) -> Objective:
    """`objective` of images (T, E·n, *shape) of E epochs plus `weight` times each candidate's `disorder`."""
    if epochs == 1 or not weight:
        return objective

    def total(images: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = objective(images)
        each = [disorder(own.unflatten(0, (epochs, -1))) for own in images]
        spread, of_images = (torch.stack(parts) for parts in zip(*each))
        return value + weight * spread, slope + weight * of_images.flatten(1, 2)

    return total


def orders(seed: int, key: str, epochs: int, count: int) -> Tensor:
    """A shuffle of 0 … n − 1 for every epoch, (E, n), as a client draws its own; not the client's.

    Args:
        seed: of the attack. key: names the target. epochs: E. count: n.
    """
    rng = generator(seed, "inversion batches", key)
    return torch.stack([torch.randperm(count, generator=rng) for _ in range(epochs)])


def can_simulate(target: Target) -> bool:
    """Whether a target is one message of several steps of whole epochs over its images."""
    recipe = target.recipe
    if target.others or recipe is None or not recipe.epochs or len(recipe.sizes) < 2:
        return False
    return sum(recipe.sizes) == recipe.epochs * target.count


def read_twice(case: Case) -> bool:
    """Whether a case is read before its local training and on the way through it, see `simulating.Simulation`."""
    asked = case.settings.simulated > 0 and case.settings.along > 0
    return asked and can_simulate(case.target) and case.target.on_the_way


def update_distance(case: Case, images: Tensor, labels: Tensor) -> float:
    """The objective, without a prior, of the update that one epoch over images in this order would have made.

    Args:
        case: one that `can_simulate`, of one epoch. images: (n, *shape) in the order of the batches. labels: (n,).
    """
    target = update_of(case.target, case.settings.device)
    matching = Matching.of(case.settings.objective, [target])
    made = Simulated(case.network, case.layout, target, labels[None].to(case.settings.device), matching)
    return made(images[None].to(target.weights))[0].item()


def update_of(target: Target, device: str) -> Target:
    """The target on the device, its gradient and scale those of what `Simulated` makes."""
    assert target.recipe is not None
    recipe, noise = target.recipe, target.noise_std
    gradient = target.gradient if recipe.linear or target.update is None else -target.update
    clip = recipe.step_clip
    if clip is not None and clip.what == "weights" and target.update is not None:  # as it was sent: each step clips
        gradient, noise = -target.update / recipe.scale, noise / target.stretched
    sparse = None if target.sparse is None else target.sparse.to(device)
    return replace(
        target,
        weights=target.weights.to(device),
        gradient=gradient.to(device),
        noise_std=noise,
        sparse=sparse,
        scale_known=target.scale_known or target.sent_to_scale,
    )


def cut_short(target: Target) -> bool:
    """Whether a target is one message of several linear steps whose clip hides how long it was."""
    recipe = target.recipe
    if recipe is None or not recipe.linear or target.per_layer or target.clip_order != 2 or not can_simulate(target):
        return False
    if target.update is None or target.sparse is not None or target.noise_share > NOISE:
        return False
    return not _to_scale(target) or (target.clip_norm is not None and _signal(target) > CLIPPED * target.clip_norm)


def lengthened(case: Case, guess: Solution) -> tuple[Target, float]:
    """The target as it was before its clip, by training on a guess's images, and how many times as long it is, at least
    1 where the clip's norm is known.

    Args:
        case: one whose target is `cut_short`. guess: its images and labels.
    """
    target = case.target
    assert target.recipe is not None and target.update is not None
    there = replace(target, weights=target.weights.to(case.settings.device))
    moved = trained_on(case.network, case.layout, there, guess.images, guess.labels, case.seed)
    whole = moved.norm().item() / target.recipe.scale
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
    walk = LocalSteps(recipe, target.weights)
    images = images.to(target.weights)
    for rows in order.split(list(recipe.sizes)):
        at = {name: w.detach().requires_grad_() for name, w in layout.split(walk.weights).items()}
        with torch.enable_grad():
            outputs = functional_call(network, at, (images[rows],))
            loss = target.minimised.mean(outputs, labels[rows].to(images.device))
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
