"""The losses that local training minimises and whose gradients attacks match: one small entry each.

A batch's loss is Σ values / size over its records. A loss is written as its name with what differs from its defaults,
such as "focal(gamma=2.0)", so that a config, JSON and `Recorder` carry it; nothing of that is run.

Targets are class numbers (n,), sets of labels (n,) with bit j for label j (`multi_label`), numbers in the shape of the
outputs, a class for each pixel (n, h, w) of outputs (n, C, h, w), or a word for each place (n, length) of outputs
(n, length, C).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST = 1e-30  # in place of a weight of 0, of a batch of classes that count for nothing
MOST_LABELS = 62  # of a set: bits of an int64 that leave its sign alone
IGNORED = -100  # torch's number of a place that no loss is taken of


@dataclass(frozen=True)
class Link:
    """A loss whose derivative by a network's outputs (K, B, C) is error(outputs, aim(targets (…), C)).

    error may overwrite its first argument. The aims (…, C) of all steps are computed at once: a small model's time goes
    into small calls in every step.
    """

    error: Callable[[Tensor, Tensor], Tensor]
    aim: Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Loss:
    """name: as it is written. words: for sentences. real: it takes numbers for targets. softmax: of its outputs one
    class is told, by a softmax; else each output by itself. sought: images are
    sought by its gradients. link: in closed form, None without.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    real: ClassVar[bool] = False
    softmax: ClassVar[bool] = False
    sought: ClassVar[bool] = True
    link: ClassVar[Link | None] = None

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of each record (n,), of outputs (n, C) or (n, C, h, w)."""
        raise NotImplementedError

    def size(self, targets: Tensor, taken: Tensor | None = None) -> Tensor:
        """What a batch's values are divided by, (K,), of targets (K, n, …): the number of those `taken` (K, n)."""
        if taken is not None:
            return taken.sum(1).clamp_min(1)
        return torch.full(targets.shape[:1], targets.shape[1], device=targets.device)

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of a batch, ()."""
        return self.values(outputs, targets).sum() / len(targets)

    def misfit(self, outputs: int, classes: int) -> str:
        """Why so many outputs and classes, 0 for numbers, do not go with it, a clause; "" where they do."""
        if not classes and not self.real:
            return "takes classes, and the targets are numbers"
        given = getattr(self, "weight", None) or getattr(self, "pos_weight", None)
        if given is not None and len(given) != outputs:
            return f"has {len(given)} weights, and the network {outputs} outputs"
        if outputs == 1 and classes > 2:
            return f"tells no {classes} classes by one output"
        return ""

    @property
    def refused(self) -> str:
        """Why it cannot be computed here, "" where it can."""
        return ""

    @property
    def several(self) -> bool:
        """Whether a record has a set of labels."""
        return bool(getattr(self, "multi_label", False))

    @property
    def text(self) -> str:
        """As it is written.

        >>> Focal(gamma=3).text, CrossEntropy().text
        ('focal(gamma=3)', 'cross_entropy')
        """
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        shown = ", ".join(f"{n}={list(v) if isinstance(v, tuple) else repr(v)}" for n, v in given.items())
        return f"{self.name}({shown})" if shown else self.name


def aims(outputs: Tensor, targets: Tensor, several: bool) -> Tensor:
    """What each output (n, C) is to be: numbers as they are, 1 for a class and for each label of a set, else 0; of one
    output the target itself.
    """
    if targets.is_floating_point():
        return targets.to(outputs.dtype).view(outputs.shape)
    places = torch.arange(outputs.shape[1], device=targets.device)
    if several:
        return ((targets[:, None] >> places) & 1).to(outputs.dtype)
    if outputs.shape[1] == 1:
        return targets[:, None].to(outputs.dtype)
    return (targets[:, None] == places).to(outputs.dtype)


def sides(targets: Tensor) -> Tensor:
    """β = −1 for class 0 and +1 for class 1, of targets (n,)."""
    return 2 * targets - 1


def _softmax_error(outputs: Tensor, aims: Tensor) -> Tensor:
    outputs.sub_(outputs.amax(-1, keepdim=True)).exp_()  # torch's own softmax is 3 × slower over so few classes
    return outputs.div_(outputs.sum(-1, keepdim=True)).sub_(aims)


def _hinge_error(scores: Tensor, sides: Tensor) -> Tensor:
    """−β where βz < 1, else 0: the margin is missed."""
    return torch.where(scores * sides < 1, -sides, 0.0)


def _squared_slope(outputs: Tensor, aims: Tensor) -> Tensor:
    width = outputs.shape[-1]
    return outputs.sub_(aims) if width == 1 else outputs.sub_(aims).div_(width)


def _numbers(targets: Tensor, width: int) -> Tensor:
    return targets.unsqueeze(-1) if width == 1 or targets.is_floating_point() else _one_hot(targets, width)


def _one_hot(targets: Tensor, width: int) -> Tensor:
    # torch's own gives integers first, which takes half as long again.
    return torch.zeros(*targets.shape, width).scatter_(-1, targets.unsqueeze(-1), 1.0)


def _by_record(values: Tensor) -> Tensor:
    """Means (n,) over all that is beside records."""
    return values if values.dim() == 1 else values.flatten(1).mean(1)


def _weights(weight: tuple[float, ...] | None, like: Tensor) -> Tensor | None:
    return None if weight is None else torch.tensor(weight, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """−w_y ln softmax_y, over Σ w_y. weight: of each class, None for 1. label_smoothing: in [0, 1)."""

    name = "cross_entropy"
    words = "cross-entropy"
    softmax = True

    weight: tuple[float, ...] | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_weights("weight", self.weight)
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing = {self.label_smoothing}: expected a share from 0 on, below 1")

    @property
    def plain(self) -> bool:
        return self == CrossEntropy()

    def misfit(self, outputs: int, classes: int) -> str:
        if outputs < 2 and classes != 1:  # of a single class nothing is learnt, and a note says so
            return "tells classes by as many outputs, and the network has one; of one logit it is bce_with_logits"
        return super().misfit(outputs, classes)

    @property
    def link(self) -> Link | None:  # type: ignore[override]
        return Link(_softmax_error, _one_hot) if self.plain else None

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weight = _weights(self.weight, outputs)
        return _by_record(
            F.cross_entropy(outputs, targets, weight, reduction="none", label_smoothing=self.label_smoothing)
        )

    def size(self, targets: Tensor, taken: Tensor | None = None) -> Tensor:
        if self.weight is None or targets.is_floating_point():
            return super().size(targets, taken)
        each = (
            torch.tensor(self.weight, dtype=torch.float32, device=targets.device)[targets]
            .unsqueeze(-1)
            .flatten(2)
            .mean(2)
        )
        return (each if taken is None else each * taken).sum(1).clamp_min(LEAST)

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weight = _weights(self.weight, outputs)
        return F.cross_entropy(outputs, targets, weight=weight, label_smoothing=self.label_smoothing)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Of each output's sigmoid by itself, the mean over them. pos_weight: of each output's ones, None for 1."""

    name = "bce_with_logits"
    words = "binary cross-entropy with logits"

    pos_weight: tuple[float, ...] | None = None
    multi_label: bool = False

    def __post_init__(self) -> None:
        _check_weights("pos_weight", self.pos_weight)

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        aim = aims(outputs, targets, self.multi_label)
        each = F.binary_cross_entropy_with_logits(
            outputs, aim, pos_weight=_weights(self.pos_weight, outputs), reduction="none"
        )
        return _by_record(each)


@dataclass(frozen=True)
class Focal(Loss):
    """(1 − p)^γ times the cross-entropy, p the probability of what is right (Lin et al. 2017, arXiv:1708.02002): of a
    softmax; of one output, and of a set of labels, of each output's sigmoid.

    gamma: from 0 on. weight: of each class, of a softmax. alpha: of ones, 1 − alpha of zeros, of sigmoids; None for 1.
    """

    name = "focal"
    words = "focal loss"
    softmax = True

    gamma: float = 2.0
    weight: tuple[float, ...] | None = None
    alpha: float | None = None
    multi_label: bool = False

    def __post_init__(self) -> None:
        _check_weights("weight", self.weight)
        if not 0 <= self.gamma < math.inf or not 0 <= (self.alpha or 0.0) <= 1:
            raise ValueError(f"gamma = {self.gamma}, alpha = {self.alpha}: expected gamma from 0 on, alpha from 0 to 1")

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.shape[1] > 1 and not self.multi_label:
            whole = F.cross_entropy(outputs, targets, reduction="none")
            weighed = F.cross_entropy(outputs, targets, weight=_weights(self.weight, outputs), reduction="none")
            return _by_record(self._wrong((-whole).exp()) * weighed)
        aim = aims(outputs, targets, self.multi_label)
        each = F.binary_cross_entropy_with_logits(outputs, aim, reduction="none")
        p = outputs.sigmoid()
        each = self._wrong(p * aim + (1 - p) * (1 - aim)) * each
        if self.alpha is not None:
            each = (self.alpha * aim + (1 - self.alpha) * (1 - aim)) * each
        return _by_record(each)

    def _wrong(self, right: Tensor) -> Tensor:
        return (1 - right).clamp_min(1e-12) ** self.gamma  # a root has no slope at 0


@dataclass(frozen=True)
class SquaredError(Loss):
    """factor·(ŷ − y)², the mean over outputs; torch's MSELoss has the factor 1. Of class numbers y is 1 at the class's
    output and 0 at the others.
    """

    name = "squared_error"
    words = "squared error"
    real = True

    factor: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(f"factor = {self.factor}: expected a number above 0")

    @property
    def link(self) -> Link | None:  # type: ignore[override]
        return Link(_squared_slope, _numbers) if self.factor == 0.5 else None

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _by_record(self.factor * (outputs - aims(outputs, targets, False)).square())


@dataclass(frozen=True)
class AbsoluteError(Loss):
    """|ŷ − y|, the mean over outputs; targets as of `SquaredError`."""

    name = "absolute_error"
    words = "absolute error"
    real = True

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _by_record((outputs - aims(outputs, targets, False)).abs())


@dataclass(frozen=True)
class Hinge(Loss):
    """max{0, 1 − βz} of a support vector machine of two classes: the score z, outputs (n, 1), and the side β = −1 for
    targets (n,) of class 0, +1 for class 1; its slope at the kink is 0.

    The loss of GEO's SVM (section VI-C) without its regulariser, which no config sets (λ_r = 0). As printed, max{0, β −
    ωᵀx}, the label does not multiply the score; this is the hinge loss that the paper means.

    >>> Hinge().values(torch.tensor([[2.0], [0.5], [0.5]]), torch.tensor([1, 1, 0]))
    tensor([0.0000, 0.5000, 1.5000])
    """

    name = "hinge"
    words = "hinge loss"
    sought = False  # a record beyond the margin has no gradient
    link = Link(_hinge_error, lambda targets, width: sides(targets).unsqueeze(-1).expand(*targets.shape, width))

    def misfit(self, outputs: int, classes: int) -> str:
        return "" if (outputs, classes) == (1, 2) else "takes one output, of two classes"

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.relu(1 - sides(targets) * outputs.squeeze(-1))


@dataclass(frozen=True)
class NextToken(Loss):
    """Cross-entropy of each place's next word: outputs (n, length, words), targets (n, length), `IGNORED` where none is
    asked. by: what weighs the same in a batch: a "record", whose places are averaged first, or a "token", as in the
    transformers library.

    >>> outputs, targets = torch.zeros(2, 3, 4), torch.tensor([[1, IGNORED, IGNORED], [1, 2, 3]])
    >>> NextToken().values(outputs, targets), NextToken("token").size(targets[None])        # ln 4, of each record
    (tensor([1.3863, 1.3863]), tensor([4]))
    """

    name = "next_token"
    words = "cross-entropy of the next word"
    softmax = True

    by: str = "record"

    def __post_init__(self) -> None:
        if self.by not in ("record", "token"):
            raise ValueError(f"by = {self.by!r}: expected 'record' or 'token'")

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
        total = each.view(targets.shape).sum(1)
        return total if self.by == "token" else total / (targets != IGNORED).sum(1).clamp_min(1)

    def size(self, targets: Tensor, taken: Tensor | None = None) -> Tensor:
        if self.by == "record":
            return super().size(targets, taken)
        counted = (targets != IGNORED).sum(2)
        return (counted if taken is None else counted * taken).sum(1).clamp_min(1)

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.values(outputs, targets).sum() / self.size(targets[None])[0]


Function = Callable[[Tensor, Tensor], Tensor]
ALLOWED: dict[str, Function] = {}  # by "module:function", what its owner, or who attacks, lets run in this process


@dataclass(frozen=True)
class OwnLoss(Loss):
    """A function of somebody's own: outputs (n, …), targets (n, …) as a setup keeps them → the mean over records, ().

    code: "module:function", which runs where it is in `ALLOWED` alone.
    """

    name = "own"
    words = "a loss of its owner's"
    real = True

    code: str = ""

    @property
    def refused(self) -> str:
        if self.code in ALLOWED:
            return ""
        return f"the loss {self.code!r} is its owner's code; if you trust its file, --allow-model {self.code} runs it"

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.refused:
            raise ValueError(self.refused)
        one = ALLOWED[self.code]
        return torch.stack([one(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(outputs))])


LOSSES: dict[str, type[Loss]] = {
    one.name: one for one in (CrossEntropy, BinaryCrossEntropy, Focal, SquaredError, AbsoluteError, Hinge, NextToken)
}


@cache
def loss_of(text: str) -> Loss:
    """The loss that is written so.

    >>> loss_of("cross_entropy(weight=[1, 2.5])"), loss_of("focal").gamma
    (CrossEntropy(weight=(1, 2.5), label_smoothing=0.0), 2.0)

    Raises:
        ValueError: it is none, in one sentence.
    """
    names = ", ".join(LOSSES)
    if text in LOSSES:
        return LOSSES[text]()
    if re.fullmatch(r"[\w.]+:\w+", text):
        return OwnLoss(text)
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        kind = {**LOSSES, OwnLoss.name: OwnLoss}[call.func.id]
        given = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, KeyError, MemoryError, RecursionError):
        raise ValueError(f"loss = {text[:80]!r}: known are {names}, with parameters as in focal(gamma=2)") from None
    return loss_with(kind, given)


def loss_with(kind: type[Loss], given: dict[str, Any]) -> Loss:
    """A loss with these parameters. Raises ValueError."""
    known = [f.name for f in fields(kind)]
    if stranger := [name for name in given if name not in known]:
        raise ValueError(
            f"loss {kind.name}: {stranger[0]!r} is no parameter of it; {', '.join(known) or 'none'} can be"
        )
    try:
        return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})
    except (TypeError, OverflowError):
        raise ValueError(f"loss {kind.name}: a parameter is of the wrong type in {str(given)[:80]}") from None


def _check_weights(name: str, weight: tuple[float, ...] | None) -> None:
    if weight is not None and not (weight and all(0 <= w < math.inf for w in weight) and max(weight) > 0):
        raise ValueError(f"{name} = {list(weight)[:5]}: expected numbers from 0 on, one for each output")
