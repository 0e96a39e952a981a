"""What the classifier tells of every image, for the search to be guided by (`match.features`); and images of a smooth
network carried on from the guess to the end: L-BFGS on the gradient, the features and a prior that fades.

Signed steps get a guess near, in any network, and stay there: their prior is a kink at every pixel. Where nothing else
has kinks, the prior can be made smooth too (a rounded total variation), and a line search in float64 follows what the
gradient and the features (`features.SolvedFeatures`) determine down to the last places. The prior's weight falls
tenfold from stage to stage, so that it leads and does not decide; it ends where known noise wants it, and early where
nothing is known of the features.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ....defenses.chain import open_chain
from ..match.case import Case
from ..match.evaluate import evaluator, placed, tv_weight
from ..match.features import SolvedFeatures, one_gradient, with_features
from ..match.optimise import Objective, Tick, lbfgs, with_prior
from ..match.prior import tv_for_noise
from ..match.solution import Solution
from .strategy import Found, Strategy, StrategyWork, counted

SMOOTH = (nn.Sigmoid, nn.Tanh, nn.Softplus, nn.GELU, nn.SiLU)
KINKED = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.Hardtanh, nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool2d)
STAGES = (0.1, 0.01, 1e-3, 1e-4, 1e-5)  # weights of the prior; ours, as the two below, on one batch of photographs
UNGUIDED = 2  # stages without features
EVALUATIONS = 2  # about so many of the objective an iteration, each in float64 worth one
MOSTLY = 0.5  # of a message's energy
BESIDE = 1.0  # weight of the features
ROUNDED = 0.01  # of pixels: smaller steps between neighbours cost their square


def is_smooth(network: nn.Module) -> bool:
    """Whether a network has an activation and none with a kink."""
    parts = list(network.modules())
    return any(isinstance(part, SMOOTH) for part in parts) and not any(isinstance(part, KINKED) for part in parts)


class FeatureFit(Strategy):
    name = "features"
    phase = "read"

    def applies(self, case: Case) -> str:
        if not case.settings.features:
            return "features = 0"
        if case.settings.learned:
            return "a learned prior is the guide"
        if open_chain(case.network) is not None:
            return "in a chain of linear layers the first one says more"
        if case.target.others or not one_gradient(case.target):
            return "what was sent is not one gradient"
        return ""

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        return [
            replace(each, features=SolvedFeatures.of(case.network, case.layout, case.target, case.labels, case.shape))
            for case, each in zip(cases, found)
        ]

    def assumed(self, case: Case, solution: Solution) -> tuple[str, ...]:
        return (solution.features_by,) if solution.features_by else ()


class Polish(Strategy):
    name = "polish"
    phase = "refine"

    def applies(self, case: Case) -> str:
        if not case.settings.features or case.settings.learned:
            return "features = 0, or a learned prior"
        if open_chain(case.network) is not None:
            return "the network is a chain of linear layers"
        if not is_smooth(case.network):
            return "the network has kinks, or no curve"
        return ""

    def needless(self, case: Case, found: Found) -> str:
        if case.target.noise_share > MOSTLY:
            return "most of what was sent is noise"
        return super().needless(case, found)

    def cost(self, case: Case) -> int:
        return EVALUATIONS * len(STAGES) * case.settings.iterations * case.step_operations

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        tick = counted(work.progress, len(STAGES) * sum(case.settings.iterations for case in cases))
        return [
            replace(each, solution=carried_on(case, each.best, each.features, tick)) for case, each in zip(cases, found)
        ]


def carried_on(case: Case, guess: Solution, features: SolvedFeatures | None, tick: Tick) -> Solution:
    """What L-BFGS makes of a guess, or the guess: whichever has the lower objective, with the settings' own prior.

    Args:
        case: of a network that `is_smooth`; `iterations` for each stage. guess: where the images begin.
        features: of them, None where nothing tells them. tick: called after each iteration.
    """
    layout, target, settings = case.layout, case.target, case.settings
    where = settings.along if guess.place is None else guess.place
    ready = placed(target, replace(settings, along=where), precise=True)
    network = copy.deepcopy(case.network).to(settings.device, torch.float64)
    exact, labels = None if features is None else features.at(network, ready), guess.labels[None].to(settings.device)
    matched = evaluator(network, layout, [ready], labels, 1, settings.objective, guess.images.shape[1:])

    def judged(images: Tensor) -> float:
        prior = with_prior(matched, ready.weights.new_tensor([tv_weight(target, settings)]))
        return with_features(prior, [exact], settings.features)(images)[0].item()

    start = guess.images[None].to(ready.weights)
    images, least = start, tv_for_noise(target.noise_share) - tv_for_noise(0.0)
    demanded, trust = with_features(matched, [exact], BESIDE), sum(one.trust for one in target.messages)
    for weight in STAGES if features is not None else STAGES[:UNGUIDED]:
        images, _ = lbfgs(_rounded_prior(demanded, trust * max(weight, least)), images, settings.iterations, tick)
    before, after = judged(start), judged(images)
    if after < before:
        return replace(guess, images=images[0].float().cpu(), loss=after)
    return replace(guess, loss=before)


def _rounded_prior(objective: Objective, weight: float) -> Objective:
    """`objective` of one candidate plus `weight` times a total variation whose kinks are rounded off."""

    def total(images: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = objective(images)
        for axis in (-1, -2):
            steps, length = images.diff(dim=axis), images.shape[axis]
            if length < 2:
                continue
            sizes = (steps.square() + ROUNDED**2).sqrt()
            value = value + weight * (sizes - ROUNDED).flatten(1).mean(1)
            slope = weight * steps / sizes / steps[0].numel()
            gradient.narrow(axis, 1, length - 1).add_(slope)
            gradient.narrow(axis, 0, length - 1).sub_(slope)
        return value, gradient

    return total
