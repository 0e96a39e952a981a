"""Labels of a batch out of what was sent: which method reads them is decided by what is told, by a table of rules.

Only public facts, the network and the message's form decide, nobody's labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ....defenses.layout import Layout
from ..read.target import Target
from .classifier import KNOW_THEM, Head, Probed, bias_like, find_classifier, probe
from .counts import as_labels, dealt_counts, labels_by_errors, labels_from_bias, nearest_counts, predicted_counts

NOISY = 0.5  # counts by which noise moves an entry of the bias: from there on the weight's rows are read too
ACTIVE = 0.999  # of the clip norm: from there on a value may have been clipped, and its scale is unknown


@dataclass(frozen=True, eq=False)
class OfClassifier:
    """What a message says of the classifier.

    gradient: (classes,) of the bias, of unknown positive scale unless `scaled`.
    update: (classes,) what an optimiser that rescales gradients added to the bias, in parameter units; None of others.
    noise: its standard deviation on an entry of the bias, in counts (of a rescaling optimiser: as a share of the
    longest way that its steps can go, times the count).
    start, end: the network before and, where an update tells it, after training.
    """

    target: Target
    classifier: Head
    gradient: Tensor
    update: Tensor | None
    noise: float
    start: Probed
    end: Probed
    scaled: bool

    @property
    def predicted(self) -> bool:
        """Whether random images say about what the network made of the client's; afterwards, that is all there is."""
        return self.start.undecided


def read(module: nn.Module, layout: Layout, target: Target, shape: tuple[int, ...]) -> OfClassifier:
    """What `target` says of the classifier of `module`.

    Raises:
        ValueError: no classifier is found, or it has no bias and its features no mean, or it took several steps of Adam
            or RMSprop.
    """
    classifier = find_classifier(module, shape)
    weights = layout.split(target.weights)
    start = probe(module, weights, classifier, shape)
    named, recipe = layout.split(target.gradient.cpu()), target.recipe
    clip = target.clip_norm
    unclipped = clip is None or (
        not target.per_layer and float(target.gradient.norm(target.clip_order)) < ACTIVE * clip
    )
    scaled = target.scale_known and unclipped
    rescaled = recipe is not None and not recipe.linear
    unit = recipe.lr * len(recipe.sizes) if recipe is not None and rescaled else 1.0
    noise = target.count * (target.noise_moved if rescaled else target.noise_std) / unit
    several = rescaled and recipe is not None and len(recipe.sizes) > 1  # rows of signs are no sum over images
    if several and classifier.bias is None:
        raise ValueError(
            f"labels cannot be inferred: several steps of a rescaling optimiser tell them by the bias of the classifier"
            f" {classifier.name!r} alone, and it has none; {KNOW_THEM}"
        )
    gradient = bias_like(named, classifier, start.features, noise > NOISY and not several)
    update, end = None, start
    if target.update is not None and (rescaled or scaled):
        # A rescaled row is no sum over images: only the bias' own will do, where nothing but gradients moved it.
        if rescaled and classifier.bias is not None and (recipe is None or recipe.own_gradients):
            update = layout.split(target.update.cpu())[classifier.bias].double()
        if target.noise_share < 0.5:
            end = probe(module, layout.split(target.weights + target.update.to(target.weights)), classifier, shape)
    return OfClassifier(target, classifier, gradient, update, noise, start, end, scaled)


def _by_sign(sent: OfClassifier) -> Tensor:
    return labels_from_bias(sent.gradient, sent.target.count)


def _predicted(sent: OfClassifier) -> Tensor:
    if not sent.scaled:
        raise ValueError("counts by predictions need the scale of the gradient")
    ends = sent.start.probabilities, sent.end.probabilities
    return as_labels(predicted_counts(sent.gradient, *ends, sent.target.count))


def _dealt(sent: OfClassifier) -> Tensor:
    recipe = sent.target.recipe
    if sent.update is None or recipe is None:
        raise ValueError("counts of dealt records need an unclipped update of Adam or RMSprop to a classifier's bias")
    ends = sent.start.probabilities, sent.end.probabilities
    return as_labels(dealt_counts(sent.update, *ends, recipe, sent.target.count, sent.target.noise_moved))


METHODS: dict[str, Callable[[OfClassifier], Tensor]] = {
    "idlg": _by_sign,  # of one image
    "bias-corrected": _by_sign,
    "predicted": _predicted,
    "dealt": _dealt,
}


@dataclass(frozen=True)
class Way:
    """A row: when it holds, which of `METHODS` it takes, and what is said of it."""

    holds: Callable[[OfClassifier], bool]
    method: str
    said: str


RULES: tuple[Way, ...] = (
    Way(
        lambda sent: sent.target.count == 1,
        "idlg",
        "of one image, the class whose entry of the classifier's gradient is the most negative (iDLG)",
    ),
    Way(
        lambda sent: sent.update is not None and sent.predicted and sent.noise <= sent.target.count,
        "dealt",
        "likeliest counts behind an update of the classifier's bias, records dealt to the steps' batches by lot",
    ),
    Way(
        lambda sent: sent.scaled and sent.predicted,
        "predicted",
        "counts by the classifier's gradient and what the network predicts of random images, before and after training",
    ),
    Way(lambda sent: True, "bias-corrected", "counts by sign and size of the classifier's gradient"),
)


BY_ERRORS = "counts of classes whose errors, as the network has them on random images, add up to the bias's gradient"


@dataclass(frozen=True, eq=False)
class Inferred:
    """labels: (n,) int64, sorted. method: of `METHODS`, or "errors". said: how they were read, in plain words."""

    labels: Tensor
    method: str
    said: str


def infer_together(module: nn.Module, layout: Layout, messages: Sequence[Target], shape: tuple[int, ...]) -> Inferred:
    """The labels of the images that all messages are of: the mean of the counts that single messages tell. Those by
    sign and size alone count only where there are no others, as those tell less.

    Args:
        module: the network. layout: of its parameters. messages: of equal count. shape: of an image.

    Raises:
        ValueError: as `read`.
    """
    found = [infer(module, layout, one, shape) for one in messages]
    told = [one for one in found if one.method != RULES[-1].method] or found
    if len(found) == 1 or messages[0].minimised.several:
        return found[0]
    most = 1 + max(int(one.labels.max()) for one in told)
    counts = torch.stack([one.labels.bincount(minlength=most) for one in told]).double().mean(0)
    labels = as_labels(nearest_counts(counts, messages[0].count))
    return Inferred(labels, told[0].method, f"mean over {len(told)} messages: {told[0].said}")


def infer(module: nn.Module, layout: Layout, target: Target, shape: tuple[int, ...]) -> Inferred:
    """The labels of a target by the first rule that holds.

    Args:
        module: the network. layout: of its parameters. shape: of an image.

    Raises:
        ValueError: as `read`.
    """
    sent = read(module, layout, target, shape)
    if target.loss != "cross_entropy":
        outputs = torch.cat([sent.start.outputs, sent.end.outputs])
        labels = labels_by_errors(sent.gradient, outputs, target.minimised, target.count, sent.scaled)
        return Inferred(labels, "errors", BY_ERRORS)
    rule = next(rule for rule in RULES if rule.holds(sent))
    return Inferred(METHODS[rule.method](sent), rule.method, rule.said)
