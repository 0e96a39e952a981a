"""What images are worth: an attack's objective at a target, on the device and with the precision it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ....defenses.chain import open_chain
from ....defenses.layout import Layout
from ..engines.convolved import Convolved, open_stages, pays
from ..engines.double_backward import DoubleBackward
from ..engines.ghost import Ghost
from ..read.target import Target
from ..settings import Name, Settings
from .case import Case
from .joint import Joint, joint
from .objective import Matching
from .optimise import with_prior
from .prior import tv_for_noise
from .span import InputSpan, with_span

UNEXPLAINED = 1e-3  # of a message's energy without its noise, at most, where images are certain


def placed(target: Target, settings: Settings, precise: bool = False) -> Target:
    """The target on the device at the weights it is read at, in float64 where a line search needs its precision, or it
    is asked for.
    """
    dtype = torch.float64 if precise or settings.optimiser == "lbfgs" else target.gradient.dtype
    weights = target.weights
    if settings.along and target.update is not None and target.on_the_way:
        weights = weights + settings.along * target.update
    return replace(
        target,
        weights=weights.to(settings.device, dtype),
        gradient=target.gradient.to(settings.device, dtype),
        others=tuple(placed(one, settings, precise) for one in target.others),
        sparse=None if target.sparse is None else target.sparse.to(settings.device),
    )


def tv_weight(target: Target, settings: Settings) -> float:
    """Of the total variation, by the noise where the settings ask for that."""
    return tv_for_noise(target.noise_share) if settings.tv == "noise-aware" else settings.tv


def loss_at(case: Case, images: Tensor) -> float:
    """The objective, prior included, at images (n, *shape) in [0, 1] of the case's labels."""
    ready = placed(case.target, case.settings)
    where = ready.weights
    tv = where.new_tensor([tv_weight(case.target, case.settings)])
    objective = evaluator(
        case.network.to(where.dtype),
        case.layout,
        [ready],
        case.labels[None].to(case.settings.device),
        1,
        case.settings.objective,
        images.shape[1:],
    )
    span = case.settings.span
    spans = [InputSpan.of(case.network, case.layout, ready)] if span else []
    return with_span(with_prior(objective, tv), spans, span)(images[None].to(where))[0].item()


def explained(case: Case, images: Tensor, most: float = UNEXPLAINED) -> bool:
    """Whether the gradient of images (n, *shape) in [0, 1], at the scale that suits it best (a clip leaves no other),
    leaves no more of every message than the known noise, which must be the smaller part of it to tell.

    most: of the energy without noise that may be left.
    """
    if case.target.others:
        return all(explained(replace(case, target=one), images, most) for one in case.target.messages)
    ready = replace(placed(case.target, case.settings), scale_known=False, clip_norm=None)
    where, noise = ready.weights, case.target.noise_share
    labels = case.labels[None].to(case.settings.device)
    network = case.network.to(where.dtype)
    objective = evaluator(network, case.layout, [ready], labels, 1, "euclidean", images.shape[1:])
    rest = objective(images[None].to(where))[0].item()
    chance = 5 * noise * (2 / len(case.target.gradient)) ** 0.5
    return noise < 0.5 and rest < noise + chance + most * (1 - noise)


def evaluator(
    network: nn.Module,
    layout: Layout,
    targets: Sequence[Target],
    labels: Tensor,
    repeat: int,
    objective: Name,
    shape: Sequence[int],
) -> Ghost | Convolved | DoubleBackward | Joint:
    """`Joint` of these for targets of several messages; of one: `Ghost` where the network is a chain of linear layers
    and `Convolved` for convolutions before them, where that pays; else, and where an L1 clip is modelled or only some
    components were sent, `DoubleBackward`.

    Args:
        network: in evaluation mode. layout: of its parameters. targets: T, of equal count n.
        labels: (T, n) int64. repeat: candidates for each target. objective: what they are compared by.
        shape: of an image.
    """
    if targets[0].others:
        return joint(targets, repeat, lambda own: evaluator(network, layout, own, labels, repeat, objective, shape))
    matching = Matching.of(objective, targets, repeat)
    by_norms = matching.name != "absolute" and not matching.needs_absolute
    if by_norms and all(target.sparse_by(objective) is None for target in targets):
        chain, opened = open_chain(network), open_stages(network, shape)
        if chain is not None:
            return Ghost(chain, layout, targets, labels, repeat, matching)
        if opened is not None and pays(opened[0], targets, repeat):
            return Convolved(*opened, layout, targets, labels, repeat, matching)
    return DoubleBackward(network, layout, targets, labels, repeat, matching)
