"""The objective of several messages of the same images: the sum of each one's own, at its own weights, by its trust.

Under Gaussian noise of variance σ² the log-likelihood of a message is −‖g − g*‖²/(2σ²), and those of messages with
independent noise add up. Every objective here is divided by ‖g*‖², so that a message with a share ν of noise counts
1/ν; by the cosine √(1 − ν)/ν, the weights at which the sum of normalised messages has the most signal over noise. What
an update is misread by, because the weights moved while it was made, counts as noise too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ....defenses.layout import Layout
from ....defenses.randomness import generator
from ..read.target import Pooled, Target
from ..settings import Name
from .optimise import Objective
from .solution import random_images

FLOOR = 1e-3  # of a message's energy: what optimising leaves unexplained of the clearest one, which no message beats
FAINT = 0.01  # of a message's energy, for signal: less cannot be told from the noise's own chance


class Joint:
    """Objective and image gradient of targets that have messages at the same rounds; the interface of `Ghost`.

    Args:
        objectives: of each message, for all candidates.
        trust: (messages, T) of each candidate's.
    """

    def __init__(self, objectives: Sequence[Objective], trust: Tensor) -> None:
        self.objectives, self.trust = objectives, trust

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        total, slope = images.new_zeros(len(images)), torch.zeros_like(images)
        for objective, trust in zip(self.objectives, self.trust):
            value, gradient = objective(images)
            total += trust * value
            slope += trust.view(-1, 1, 1, 1, 1) * gradient
        return total, slope


def joint(targets: Sequence[Target], repeat: int, of: Callable[[Sequence[Target]], Objective]) -> Joint:
    """Of targets with equally many messages, at equal weights one by one.

    Args:
        targets: T, `weighed`. repeat: candidates for each. of: the objective of the targets' messages of one round.
    """
    rounds = [*zip(*(target.messages for target in targets))]
    trust = targets[0].weights.new_tensor([[one.trust for one in own] for own in rounds])
    return Joint([of(own) for own in rounds], trust.repeat_interleave(repeat, 1))


def weighed(
    network: nn.Module, layout: Layout, target: Target, labels: Tensor, shape: Sequence[int], objective: Name
) -> Target:
    """The target with the trust of each of its messages; itself where it has one.

    The whole is scaled so that a prior weighs as much as beside one message, the mean of all, whose noise is less.

    Args:
        network: in evaluation mode. layout: of its parameters. target: of several messages.
        labels: (n,). shape: of an image. objective: by which they are compared.
    """
    if not target.others:
        return target
    noises = [one.noise_share for one in target.messages]
    weights = []
    for one, noise in zip(target.messages, noises):
        wrong = noise + misread(network, layout, one, labels, shape) + FLOOR
        if objective == "cosine":
            weights.append(max(FAINT, 1 - noise) ** 0.5 / wrong)
        else:
            weights.append(wrong**-0.5 if objective == "absolute" else 1 / wrong)
    shares = [weight / sum(weights) for weight in weights]
    energy = max(Pooled.mean(noises, shares).energy, FLOOR)
    scale = 1 / energy if objective in ("euclidean", "euclidean-naive") else energy**-0.5
    first, *others = (replace(one, trust=scale * share) for one, share in zip(target.messages, shares))
    return replace(first, others=tuple(others))


def misread(network: nn.Module, layout: Layout, target: Target, labels: Tensor, shape: Sequence[int]) -> float:
    """How far an update of several steps is from the gradient it is read as, as a share of that one's energy, ≤ 1.

    Steps sit between the weights before and after training, on average (K − 1)/(2K) of the way, and over that way a
    gradient changes as that of random images does. 0 for one step, and where the update is mostly noise or is not
    known to its scale.

    Args:
        network: in evaluation mode. layout: of its parameters. target: one message.
        labels: (n,). shape: of an image.
    """
    recipe, update = target.recipe, target.update
    if recipe is None or update is None or not recipe.linear or len(recipe.sizes) < 2 or target.noise_share > 0.5:
        return 0.0
    images = random_images(target.count, tuple(shape), generator(0, "misread", target.count)).to(update)
    first, last = (
        _gradient(network, layout, replace(target, weights=at), images, labels) for at in target.known_weights
    )
    way = (len(recipe.sizes) - 1) / (2 * len(recipe.sizes))
    return min(1.0, way**2 * float((first - last).square().sum() / first.square().sum().clamp_min(1e-30)))


def _gradient(network: nn.Module, layout: Layout, target: Target, images: Tensor, labels: Tensor) -> Tensor:
    at = {name: w.detach().requires_grad_() for name, w in layout.split(target.weights).items()}
    with torch.enable_grad():
        loss = target.minimised.mean(functional_call(network, at, (images,)), labels.to(images.device))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(at.values()))])
