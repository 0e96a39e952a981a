"""An inversion without one piece of what its attacker knows: what that piece is worth is what it gets less.

What is withheld changes what the attacker is told, before anything is read, and never what was sent. The number of
images in a message stays known.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from ...defenses.chain import open_chain
from ...defenses.complaint import one_of
from ...defenses.models import FrozenBatchNorm, Normalise
from ..base import Attack, Knowledge, Part, Progress, Reconstruction, View
from .attack import Inversion
from .labels.classifier import find_classifier
from .labels.infer import read
from .make import Beside
from .read.rounds import every_round
from .read.target import most_steps, sums_gradients

UNKNOWN = "unknown"  # an optimiser of which nobody knows what it does


def _untold_training(view: View, knowledge: Knowledge) -> tuple[View, Knowledge]:
    """An update is a direction, read as that of one gradient."""
    facts = replace(
        view.facts, optimiser=UNKNOWN, lr=1.0, batch_size=1, epochs=None, steps=1, momentum=0.0, smoothing=0.0
    )
    return replace(view, facts=facts), knowledge


def _without_statistics(view: View, knowledge: Knowledge) -> tuple[View, Knowledge]:
    """Mean 0 and variance 1, as a normalisation starts, and no running statistics beside what is trained."""
    module = copy.deepcopy(view.module)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.reset_running_stats()
        elif isinstance(part, Normalise):
            part.mean, part.std = torch.zeros_like(part.mean), torch.ones_like(part.std)
        elif isinstance(part, FrozenBatchNorm):
            part.mean, part.variance = torch.zeros_like(part.mean), torch.ones_like(part.variance)
    return replace(view, module=module, messages=tuple(replace(m, beside=dict) for m in view.messages)), knowledge


Withhold = Callable[[View, Knowledge], tuple[View, Knowledge]]
SWITCHES: dict[str, Withhold] = {
    "labels": lambda view, knowledge: (  # as many as there were, which say nothing
        view,
        replace(knowledge, labels={i: torch.zeros_like(own) for i, own in knowledge.labels.items()}),
    ),
    "noise": lambda view, knowledge: (replace(view, facts=replace(view.facts, noise_std=None)), knowledge),
    "clip": lambda view, knowledge: (  # to nobody knows which norm: only a direction tells anything
        replace(view, facts=replace(view.facts, clip_norm=None, clip_unknown=True)),
        knowledge,
    ),
    "local training": _untold_training,
    "normalisation statistics": _without_statistics,
}


@dataclass(frozen=True)
class Ablated:
    """An inversion that is not told one thing; of the same messages, with the same settings but for `labels`, which are
    inferred where they are withheld.

    attack: with all it is told. without: a name in `SWITCHES`: labels; the noise's standard deviation; the clip's norm;
    the local training (optimiser, learning rate, steps, batches); the constants of normalisation layers.
    """

    attack: Inversion
    without: str
    name: str = field(default="inversion", init=False)

    def __post_init__(self) -> None:
        if self.without not in SWITCHES:
            raise ValueError(one_of("without", self.without, SWITCHES))

    @property
    def weaker(self) -> Inversion:
        """The inversion that runs."""
        return replace(self.attack, labels="inferred") if self.without == "labels" else self.attack

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Those of the inversion that knows all. Raises ValueError as that one's does."""
        parts = self.weaker.parts(*SWITCHES[self.without](view, knowledge))
        if self.attack.labels == "inferred":
            return parts
        return [part for part in parts if part.content.labelled]

    def groups(self, parts: Sequence[Part], view: View) -> list[list[Part]]:
        """As of `Inversion`."""
        return self.weaker.groups(parts, view)

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> Reconstruction:
        return self.run_group([part], [view], [knowledge], seed, progress)[0]

    def run_group(
        self,
        parts: Sequence[Part],
        views: Sequence[View],
        knowledge: Sequence[Knowledge],
        seed: int,
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        told = [SWITCHES[self.without](view, own) for view, own in zip(views, knowledge)]
        return self.weaker.run_group(parts, [view for view, _ in told], [own for _, own in told], seed, progress)


@dataclass(frozen=True)
class Ablation:
    """What can be withheld from an inversion, and why the rest cannot, or would take nothing away; by `SWITCHES`."""

    attacks: Mapping[str, Ablated]
    nothing: Mapping[str, str]


def ablation(attack: Attack, views: Sequence[View], knowledge: Knowledge) -> Ablation:
    """Every switch that takes something away from this inversion; none from those that run beside it.

    Args:
        attack: an `Inversion`. views: of all observers of one federation. knowledge: granted to all of them.

    Raises:
        ValueError: `attack` is no inversion.
    """
    if not isinstance(attack, Inversion):
        raise ValueError(f"{attack.name} is no inversion, from which knowledge could be withheld")
    if isinstance(attack, Beside):  # the whole attack of the same objective is ablated
        return Ablation({}, {})
    reasons = {
        "labels": _no_labels(attack, views, knowledge),
        "noise": _no_noise(attack, views, knowledge),
        "clip": _no_clip(attack, views, knowledge),
        "local training": _no_training(views, knowledge),
        "normalisation statistics": _no_statistics(attack, views[0], knowledge),
    }
    return Ablation(
        {what: Ablated(attack, what) for what in SWITCHES if not reasons[what]},
        {what: reasons[what] for what in SWITCHES if reasons[what]},
    )


def _no_labels(attack: Inversion, views: Sequence[View], knowledge: Knowledge) -> str:
    if attack.labels == "inferred":
        return "they are inferred as it is"
    if not any(knowledge.beside(view).labels for view in views):
        return "they are not known"
    try:
        if find_classifier(views[0].module, views[0].input_shape).bias is None:  # the features at its weights decide
            for view in views:
                for aim in every_round(view, knowledge.beside(view)):
                    read(view.module, view.layout, aim.target, view.input_shape)
    except ValueError as error:
        return f"they cannot be withheld: {error}"
    return ""


def _no_noise(attack: Inversion, views: Sequence[View], knowledge: Knowledge) -> str:
    std = views[0].facts.noise_std
    if not std:
        return "its size is not known" if std is None else "there is none"
    if attack.learned:
        return "a learned prior cannot do without its size"
    if (
        attack.tv == "noise-aware"
        or attack.exact
        or attack.span
        or _guided(attack, views[0])
        or (_steps(views, knowledge) == 1 and not sums_gradients(views[0].facts))
    ):
        return ""
    return "these settings do not read its size"


def _no_clip(attack: Inversion, views: Sequence[View], knowledge: Knowledge) -> str:
    facts = views[0].facts
    if facts.clip_norm is None:
        return "its norm is not known" if facts.clip_unknown else "there is none"
    if facts.share == "weights":
        return "a clip of weights is taken not to have acted"
    unread = attack.objective != "euclidean" and not _guided(attack, views[0])
    if unread and (sums_gradients(views[0].facts) or _steps(views, knowledge) != 1):
        return "these settings do not read its norm"
    return ""


def _no_training(views: Sequence[View], knowledge: Knowledge) -> str:
    facts, steps = views[0].facts, _steps(views, knowledge)
    if facts.share == "gradient":
        return "a gradient is sent as it is"
    if steps == 0:
        return "it is not known"
    return f"one step of {facts.optimiser} is one gradient" if steps == 1 and sums_gradients(views[0].facts) else ""


def _no_statistics(attack: Inversion, view: View, knowledge: Knowledge) -> str:
    told = [aim.target.statistics for aim in every_round(view, knowledge.beside(view))]
    if any(one.used(attack)[0] or (attack.mode == "eval" and one.running) for one in told if one):
        return ""
    fresh, _ = _without_statistics(view, knowledge)
    before, after = dict(view.module.named_buffers()), dict(fresh.module.named_buffers())
    if all(torch.equal(value, after[name]) for name, value in before.items()):
        return "there are none but 0 and 1"
    return ""


def _guided(attack: Inversion, view: View) -> bool:
    """Whether features before the classifier may be solved for, which noise and clip are part of."""
    return bool(attack.features) and open_chain(view.module) is None


def _steps(views: Sequence[View], knowledge: Knowledge) -> int:
    return most_steps(views[0].facts, [aim for view in views for aim in every_round(view, knowledge.beside(view))])
