"""A client's local training simulated on images, and the objective of the update that comes out (Dimitrov et al. 2022,
arXiv:2206.12395).

Nobody tells the batches' order. So the images of every epoch are variables of their own, in an order drawn once, and
only what no order changes is asked of them: that every epoch's images have the same mean (their "l2-mean" prior). In
the end each epoch's images are matched with the first's and averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ...defenses.chain import open_chain
from ...defenses.layout import Layout
from ...defenses.randomness import generator
from .evaluate import tv_weight
from .ghost_steps import GhostSteps, can_ghost
from .local_steps import LocalSteps
from .objective import Matching
from .optimise import Descent, Objective, adam, with_prior
from .solution import Solution
from .span import InputSpan, with_span
from .sparse import beyond_sent
from .target import Target

if TYPE_CHECKING:
    from .attack import Inversion

INVARIANCE = 1000.0  # weight of the prior, Dimitrov et al.'s
JUDGES = 2  # orders in which the outcome is simulated once more
LossByOrder = Callable[[Tensor, Tensor, float], Objective]  # labels (n,), orders (E, n), weight of `disorder`
REORDERED = 0.3  # of the first step size; ours, on one network and 50 images of Fashion-MNIST


class Simulated:
    """The objective of the update that E epochs' images would have made; the interface of `Ghost` for one candidate.

    The client's clip and noise come after its training, so the simulated update, in the target's units, goes through
    the same `Matching` as a gradient does.

    Args:
        module: the network, in evaluation mode. layout: of its parameters.
        target: with a recipe of whole epochs. labels: (E, n) of every epoch's images, in the order of its batches.
        matching: how updates are compared. invariance: weight of `disorder`.

    Raises:
        ValueError: the target has no recipe, or not one of E whole epochs of n images.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        target: Target,
        labels: Tensor,
        matching: Matching,
        invariance: float = INVARIANCE,
    ) -> None:
        recipe = target.recipe
        if recipe is None or recipe.epochs != len(labels) or sum(recipe.sizes) != labels.numel():
            raise ValueError(
                f"target {target.key!r}: only local training of whole epochs can be simulated, one row of labels for"
                f" each; labels have shape {tuple(labels.shape)}"
            )
        self.module, self.layout, self.target, self.labels = module, layout, target, labels
        self.recipe, self.matching, self.invariance = recipe, matching, invariance
        self.observed = layout.split(target.gradient)
        self.scale, self.sparse = -1 / recipe.scale, target.sparse_by(matching.name)
        chain = open_chain(module)
        self.ghost = None
        if chain is not None and self.sparse is None and can_ghost(target, matching):
            self.ghost = GhostSteps(chain, layout, target, labels.flatten(), matching)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (1,), prior included, and its gradient with respect to `images` (1, E·n, *shape)."""
        value, slope = self._unrolled(images) if self.ghost is None else self.ghost(images)
        if len(self.labels) > 1 and self.invariance:
            spread, of_images = disorder(images[0].unflatten(0, self.labels.shape))
            value, slope = value + self.invariance * spread, slope + self.invariance * of_images.flatten(0, 1)[None]
        return value, slope

    def _unrolled(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The update's objective alone, on any network."""
        walk = LocalSteps(self.recipe, self.layout, self.target.weights)
        steps: list[tuple[Tensor, list[Tensor], tuple[Tensor, ...]]] = []
        first, y = 0, self.labels.flatten()
        for size in self.recipe.sizes:
            x = images[0, first : first + size].detach().requires_grad_()
            at = {name: w.detach().requires_grad_() for name, w in self.layout.split(walk.weights).items()}
            with torch.enable_grad():
                loss = F.cross_entropy(functional_call(self.module, at, (x,)), y[first : first + size])
                gradient = torch.autograd.grad(loss, list(at.values()), create_graph=True)
            steps.append((x, list(at.values()), gradient))
            walk.forward(torch.cat([g.detach().flatten() for g in gradient]))
            first += size
        update = (walk.weights - self.target.weights) * self.scale
        free = None
        if self.sparse is not None:
            (update,), (free,) = beyond_sent([update], [self.sparse.sent], self.sparse.least)
        own = self.layout.split(update)
        value, direction = self.matching.direction(0, list(own.values()), list(self.observed.values()))
        cotangent = self.layout.join(dict(zip(own, direction))) * self.scale
        if free is not None:
            cotangent = cotangent * free
        backward, parts = walk.backward(), []
        for x, at_step, gradient in reversed(steps):
            of_gradient, cotangent = backward(cotangent)
            along = list(self.layout.split(of_gradient).values())
            of_x, *of_weights = torch.autograd.grad(gradient, (x, *at_step), grad_outputs=along, materialize_grads=True)
            cotangent = cotangent + torch.cat([w.flatten() for w in of_weights])
            parts.append(of_x)
        return value[None], torch.cat(parts[::-1])[None]


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


def orders(seed: int, key: str, epochs: int, count: int) -> Tensor:
    """A shuffle of 0 … n − 1 for every epoch, (E, n), as a client draws its own; not the client's.

    Args:
        seed: of the attack. key: names the target. epochs: E. count: n.
    """
    rng = generator(seed, "inversion batches", key)
    return torch.stack([torch.randperm(count, generator=rng) for _ in range(epochs)])


def averaged_epochs(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One image for every image of the first epoch: its mean with the images that it is matched with, of the same
    label and at the least total square distance. images: (E, n, *shape). labels: (E, n). Returns (n, *shape), (n,).
    """
    total = images[0].clone()
    for epoch, own in zip(images[1:], labels[1:]):
        for label in own.unique():
            here, there = (labels[0] == label).nonzero()[:, 0], (own == label).nonzero()[:, 0]
            distance = torch.cdist(images[0][here].flatten(1), epoch[there].flatten(1)).square()
            rows, columns = linear_sum_assignment(np.asarray(distance.cpu()))
            total[here[rows]] += epoch[there[columns]]
    return total / len(images), labels[0]


def can_simulate(target: Target) -> bool:
    """Whether a target is one message of several steps of whole epochs over its images."""
    recipe = target.recipe
    if target.others or recipe is None or not recipe.epochs or len(recipe.sizes) < 2:
        return False
    return sum(recipe.sizes) == recipe.epochs * target.count


def tried(iterations: int) -> int:
    """Of so many iterations, those that each of several readings is simulated for before one of them is kept."""
    return -(-iterations // 4)


def update_distance(
    network: nn.Module, layout: Layout, target: Target, images: Tensor, labels: Tensor, settings: Inversion
) -> float:
    """The objective, without a prior, of the update that one epoch over images in this order would have made.

    Args:
        network: in evaluation mode. layout: of its parameters. target: one that `can_simulate`, of one epoch.
        images: (n, *shape) in the order of the batches. labels: (n,). settings: objective, device.
    """
    target = _update_of(target, settings.device)
    made = Simulated(
        network, layout, target, labels[None].to(settings.device), Matching.of(settings.objective, [target])
    )
    return made(images[None].to(target.weights))[0].item()


def _update_of(target: Target, device: str) -> Target:
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


def simulate(
    network: nn.Module,
    layout: Layout,
    target: Target,
    guess: Solution,
    settings: Inversion,
    seed: int,
    tick: Callable[[], None],
) -> Solution:
    """What the simulation of its training makes of the guess, or the guess: whose update, simulated once more in other
    orders (`JUDGES`), is nearer to the one sent on average, prior included. Its loss is that one's.

    Args:
        network: in evaluation mode. layout: of its parameters.
        target: one that `can_simulate`. guess: where the images begin.
        settings: `simulated` iterations. seed: of the batches' order. tick: called after each iteration.
    """
    recipe = target.recipe
    assert recipe is not None and recipe.epochs
    target = _update_of(target, settings.device)
    loss = _losses(network, layout, target, settings)
    if settings.reorder:
        found, labels = reordered(loss, target, guess, settings, seed, tick), guess.labels
    else:
        own = orders(seed, target.key, recipe.epochs, target.count)
        started = guess.images[own].to(target.weights)
        every, _ = adam(
            loss(guess.labels, own, INVARIANCE),
            started.flatten(0, 1)[None],
            settings.simulated,
            settings.lr / 10,
            settings.optimiser != "adam",
            tick,
        )
        found, labels = averaged_epochs(every[0].view_as(started), guess.labels[own])
    return judged(loss, target, [guess, replace(guess, images=found.float().cpu(), labels=labels, copies=0)], seed)


def nearest_update(
    network: nn.Module, layout: Layout, target: Target, guesses: Sequence[Solution], settings: Inversion, seed: int
) -> Solution:
    """Of several guesses that whose update, simulated in `JUDGES` orders of batches, is nearest to the one sent.

    Args:
        network: in evaluation mode. layout: of its parameters. target: one that `can_simulate`.
        settings: of the distance and its prior. seed: of the orders.
    """
    target = _update_of(target, settings.device)
    return judged(_losses(network, layout, target, settings), target, guesses, seed)


def judged(loss: LossByOrder, target: Target, guesses: Sequence[Solution], seed: int) -> Solution:
    """Of several guesses the one with the least mean loss over `JUDGES` orders, the first of equals, with that loss."""
    assert target.recipe is not None and target.recipe.epochs
    others = [orders(seed, f"{target.key} judged {k}", target.recipe.epochs, target.count) for k in range(JUDGES)]
    means = []
    for guess in guesses:
        moved = [guess.images[other].flatten(0, 1)[None].to(target.weights) for other in others]
        values = [loss(guess.labels, other, 0.0)(images)[0].item() for other, images in zip(others, moved)]
        means.append(sum(values) / JUDGES)
    best = min(range(len(guesses)), key=means.__getitem__)
    return replace(guesses[best], loss=means[best])


def _losses(network: nn.Module, layout: Layout, target: Target, settings: Inversion) -> LossByOrder:
    """The distance with its prior, of the target in the units of `Simulated`."""
    matching = Matching.of(settings.objective, [target])
    tv = target.weights.new_tensor([tv_weight(target, settings)])
    span = InputSpan.of(network, layout, target) if settings.span else None

    def loss(labels: Tensor, order: Tensor, invariance: float) -> Objective:
        made = Simulated(network, layout, target, labels[order].to(settings.device), matching, invariance)
        return with_span(with_prior(made, tv), [span], settings.span)

    return loss


def reordered(
    loss: LossByOrder,
    target: Target,
    guess: Solution,
    settings: Inversion,
    seed: int,
    tick: Callable[[], None],
) -> Tensor:
    """Images (n, *shape) whose update is near the one sent in *any* order: one set, in a new order at every iteration.

    What is descended is the mean distance over orders, by one draw at a time, so that no order is fitted to, as images
    of every epoch's own fit theirs. Ours; of 50 images in batches of 5 it gives what the true order gives
    (benchmarks/known_order.py). The last images are taken, as the values of two iterations are of two orders.

    Args:
        loss: the objective by labels, orders (E, n), and weight of `disorder`. target: what was sent.
        guess: where the images begin. settings: `simulated` iterations. seed: of the orders.
        tick: called after each iteration.
    """
    recipe, draw = target.recipe, generator(seed, "inversion reordered", target.key)
    assert recipe is not None and recipe.epochs

    def any_order(images: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.stack([torch.randperm(target.count, generator=draw) for _ in range(recipe.epochs or 0)])
        places = order.flatten().to(images.device)
        value, slope = loss(guess.labels, order, 0.0)(images[0][places][None])
        return value, torch.zeros_like(images).index_add_(1, places, slope)

    descent = Descent.begin(guess.images[None].to(target.weights))
    descent.go(
        any_order, settings.simulated, settings.simulated, REORDERED * settings.lr, settings.optimiser != "adam", tick
    )
    return descent.images[0]
