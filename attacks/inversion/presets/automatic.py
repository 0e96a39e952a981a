"""`preset = "auto"`: the inversion that suits what an attacker is told, by a table that is read from the top.

Only public facts, the network, and how many images a message is of decide; no message's content and no truth does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ....defenses.chain import open_chain
from ...base import Knowledge, View
from ..match.features import FEATURES
from ..match.softened import TIMES
from ..read.rounds import every_round
from ..read.statistics import STATISTICS
from ..read.target import Aim, most_steps, sums_gradients
from ..strategies.features import is_smooth

AUTO = "auto"


@dataclass(frozen=True)
class Told:
    """What decides.

    noise: "none", "known" or "unknown". clipped: to whatever norm. images: most in one message. steps: most local steps
    behind one message; 1 for a gradient that is sent as it is, 0 where nobody knows. linear: the update is a weighted
    sum of gradients, or a gradient. smooth: the network has no kinks. spanned: its first layer is linear with a ReLU
    behind it and wide enough to tell every image of a message from the others. labels: some message's are known.
    """

    noise: str
    clipped: bool
    images: int
    steps: int
    linear: bool
    smooth: bool
    spanned: bool
    labels: bool


@dataclass(frozen=True)
class Rule:
    """A row: when it holds, which preset of `presets.PRESETS` it takes with which other settings, and why in words."""

    holds: Callable[[Told], bool]
    preset: str
    settings: Mapping[str, Any]
    why: str


BOTH = ["cosine", "euclidean"]
GROWS = (
    "the standard deviation of the noise is known, so the prior grows with it; a fixed one, and where most of a message"
    " is noise the spectrum of the auxiliary records, are tried beside it"
)
TOLD: dict[str, Any] = {"exact": True, "features": FEATURES, "batch_statistics": STATISTICS}
SIMULATED: dict[str, Any] = {"along": 0.5, "simulated": 60, "reorder": True}
RULES: tuple[Rule, ...] = (
    Rule(
        lambda told: told.noise == "known" and told.linear and told.steps > 1 and not told.spanned,
        "noise-aware",
        {"objective": BOTH, **SIMULATED, **TOLD, "softened": TIMES},
        f"{GROWS}; several local steps are simulated, where they are whole epochs, as the first layer does not tell"
        " their images apart",
    ),
    Rule(lambda told: told.noise == "known", "noise-aware", {"objective": BOTH, **TOLD, "softened": TIMES}, GROWS),
    Rule(
        lambda told: told.noise == "unknown",
        "default",
        {"objective": BOTH, **TOLD, "softened": TIMES},
        "there is noise and its standard deviation is not known, so the prior is a fixed one",
    ),
    Rule(
        lambda told: told.smooth and told.images == 1 and not told.clipped and told.linear and told.steps == 1,
        "dlg",
        {},
        "a message is the gradient of one image in a smooth network, without clip and noise, which L-BFGS follows to"
        " the end",
    ),
    Rule(
        lambda told: told.spanned and told.linear and told.steps == 1,
        "default",
        {**TOLD},
        "without noise the first layer's gradient spans the images, so a guess by the cosine is made exact",
    ),
    Rule(
        lambda told: told.spanned and told.linear and told.steps > 1,
        "default",
        {**TOLD},
        "without noise the first layer's update spans the images of all local steps, so a guess by the cosine is made"
        " exact through local training",
    ),
    Rule(
        lambda told: told.linear and told.steps > 1,
        "default",
        {**SIMULATED, **TOLD, "softened": TIMES},
        "the first layer does not tell the images of several local steps apart, so their training is simulated, where"
        " it is whole epochs, from a guess by the cosine, read before training and half-way through it; else the guess"
        " is read half-way alone",
    ),
    Rule(
        lambda told: not told.linear and told.steps == 1,
        "default",
        {"objective": BOTH, **TOLD, "softened": TIMES},
        "one step of an optimiser that rescales gradients is undone, and what it leaves is matched",
    ),
    Rule(
        lambda told: not told.linear,
        "default",
        {"objective": BOTH, **TOLD, "softened": TIMES},
        "of an update by an optimiser that rescales gradients only the direction is matched",
    ),
    Rule(
        lambda told: True,
        "default",
        {"objective": BOTH, **TOLD, "softened": TIMES},
        "nothing makes one objective the better one, so both are tried",
    ),
)


@dataclass(frozen=True)
class Suiting:
    """A rule's answer. settings: for the table of `[attack.inversion]`, its preset among them. why: a clause."""

    settings: Mapping[str, Any]
    why: str


def pick(told: Told) -> Suiting:
    """The first row that holds; labels are inferred where none are known.

    >>> pick(Told("known", True, 8, 1, True, False, True, True)).settings["preset"]
    'noise-aware'
    """
    rule = next(rule for rule in RULES if rule.holds(told))
    if told.labels:
        return Suiting({"preset": rule.preset, **rule.settings}, rule.why)
    return Suiting(
        {"preset": rule.preset, **rule.settings, "labels": "inferred"}, f"{rule.why}; no labels are known, so inferred"
    )


def told_by(views: Sequence[View], knowledge: Knowledge) -> Told:
    """What observers of one federation are told together: the largest message that any of them can attack decides.

    Args:
        views: at least one. knowledge: granted to all of them.
    """
    facts, module = views[0].facts, views[0].module
    aims = [aim for view in views for aim in every_round(view, knowledge.beside(view))]
    images = max((aim.count for aim in aims), default=1)
    noise = "none" if facts.noise_std == 0 else "unknown" if facts.noise_std is None else "known"
    return Told(
        noise=noise,
        clipped=facts.clip_norm is not None or facts.clip_unknown,
        images=images,
        steps=most_steps(facts, aims),
        linear=sums_gradients(facts),
        smooth=is_smooth(module),
        spanned=_spanned(module, images) and _of_gradients(aims),
        labels=any(aim.labelled for aim in aims),
    )


def _of_gradients(aims: Sequence[Aim]) -> bool:
    """Whether each update's tensors moved by gradients alone."""
    recipes = [one.recipe for aim in aims for target in aim.targets for one in target.messages]
    return all(recipe is None or recipe.own_gradients for recipe in recipes)


def _spanned(module: nn.Module, images: int) -> bool:
    chain = open_chain(module)
    if chain is None or not chain.rectified or chain.layers[0].bias is None:
        return False
    return images < min(module.get_parameter(chain.layers[0].weight).shape)
