"""What records' targets are, decided by their values, the network's outputs and the loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...defenses.losses import MOST_LABELS, Loss, NextToken, OwnLoss, loss_of
from ..errors import BadInput
from ..owners_code import in_words
from .recording import DataFacts


@dataclass(frozen=True)
class TargetKind:
    """classes: 0 where targets are numbers. shape: of a record's targets, () for one. loss: as declared, with what its
    targets tell of it; None where nobody declared one.
    """

    classes: int
    shape: tuple[int, ...]
    loss: str | None

    @property
    def label_sets(self) -> bool:
        """Whether each record has a set of labels."""
        return self.loss is not None and loss_of(self.loss).several


def target_kind(
    targets: Tensor, outputs: tuple[int, ...] | None, data: DataFacts, loss: str | None, where: str
) -> TargetKind:
    """Of the first targets (n, …) that are seen.

    Args:
        outputs: of the network for a record, None where nobody knows. data: what its owner says of classes.
        loss: as declared. where: for a sentence.

    Raises:
        BadInput: they do not go with the outputs or the loss.
    """
    if loss is not None and loss_of(loss).name == NextToken.name:
        if data.vocabulary is None or (outputs is not None and outputs != (*targets.shape[1:], len(data.vocabulary))):
            raise BadInput(
                f"{where}: loss = {loss!r} scores each word of a vocabulary at each place of a text, and the network"
                f" gives {outputs} for a record"
            )
        return TargetKind(len(data.vocabulary), tuple(targets.shape[1:]), loss)
    if loss is None and targets.dim() == 2 and targets.shape[1:] == outputs and _one_hot(targets):
        return TargetKind(targets.shape[1], (), None)
    if targets.dim() > 1 and loss is None:
        raise BadInput(
            f"{where}: targets of shape {tuple(targets.shape[1:])} for a record; say what was minimised, such as"
            " loss='bce_with_logits' of sets of labels, loss='squared_error' of numbers, or loss='next_token' of text"
        )
    if targets.dim() > 1:
        return _of_several(targets, outputs or (data.classes,), loss_of(str(loss)), where)
    width = (outputs or (data.classes,))[0]
    classes = data.classes
    if classes is None:
        classes = _classes(targets, width, where)
    if outputs == (1,) and classes == 2 and loss is None:
        loss = "bce_with_logits"
    if loss is not None and outputs is not None and (why := loss_of(loss).misfit(outputs[0], classes)):
        raise BadInput(f"{where}: loss = {loss!r} {why}")
    return TargetKind(classes, (), loss)


def _classes(targets: Tensor, width: int | None, where: str) -> int:
    """How many classes targets (n,) are of, 0 for numbers, by their values."""
    if not _whole(targets):
        return 0
    if width is None and targets.is_floating_point():
        return 0
    if width is None:
        raise BadInput(f"{where}: how many classes there are cannot be told; give data={{'classes': …}}")
    if width > 1:
        return width
    return 2 * bool(((targets == 0) | (targets == 1)).all())


def stored_targets(targets: Tensor, kind: TargetKind, where: str) -> Tensor:
    """Targets of that kind as a setup keeps them: int64 classes, sets of labels as bits, or float32.

    Raises:
        BadInput: they are not of that kind.
    """
    if kind.label_sets:
        if targets.dim() != 2 or targets.shape[1] != kind.classes or not bool(((targets == 0) | (targets == 1)).all()):
            raise BadInput(f"{where}: targets must be 0 or 1 for each of {kind.classes} labels, (n, {kind.classes})")
        return (targets.long() << torch.arange(kind.classes)).sum(1)
    if (
        targets.dim() == 2
        and not kind.shape
        and kind.classes
        and targets.shape[1] == kind.classes
        and _one_hot(targets)
    ):
        targets = targets.argmax(1)
    if tuple(targets.shape[1:]) != kind.shape:
        raise BadInput(f"{where}: targets of shape {tuple(targets.shape[1:])} for a record; expected {kind.shape}")
    if not kind.classes:
        return targets.float()
    if not _whole(targets) or bool(((targets < 0) | (targets >= kind.classes)).any()):
        raise BadInput(f"{where}: targets must be class numbers from 0 to {kind.classes - 1}")
    return targets.long()


def check_own_loss(kind: TargetKind, outputs: tuple[int, ...] | None, targets: Tensor, where: str) -> None:
    """That a loss of its owner's takes such outputs, and targets (n, …) as they are kept. Raises BadInput."""
    loss = None if kind.loss is None else loss_of(kind.loss)
    if not isinstance(loss, OwnLoss) or outputs is None:
        return
    targets = stored_targets(targets, kind, where)
    try:
        values = loss.values(torch.zeros(len(targets), *outputs), targets)
        if values.shape == targets.shape[:1]:
            why = ""
        else:
            why = f"gives shape {tuple(values.shape[1:])}, expected one number"
    except Exception as error:
        why = f"raises {in_words(error)}"
    if why:
        given = f"outputs {(1, *outputs)} and targets {(1, *targets.shape[1:])} of {str(targets.dtype)[6:]}"
        raise BadInput(f"{where}: the loss {loss.code!r} {why}, of {given}, as a record is kept")


def _of_several(targets: Tensor, outputs: tuple[int | None, ...], loss: Loss, where: str) -> TargetKind:
    """Targets (n, k) or (n, …): a class for each pixel, sets of labels, one class as a row, or a number each."""
    shape, text = tuple(targets.shape[1:]), loss.text
    own = isinstance(loss, OwnLoss)
    if outputs[1:] and shape == outputs[1:] and (loss.softmax or own) and _whole(targets):
        return TargetKind(int(outputs[0] or 0), shape, text)
    if own:
        return TargetKind(0, shape, text)
    if shape != outputs and outputs != (None,):
        raise BadInput(
            f"{where}: targets of shape {shape} for a record, and outputs of shape {outputs}, with loss {text}"
        )
    if len(shape) > 1 and not loss.softmax:
        return TargetKind(0, shape, text)
    if len(shape) == 1 and "multi_label" in loss.__dataclass_fields__:
        if shape[0] > MOST_LABELS:
            raise BadInput(f"{where}: sets of {shape[0]} labels; at most {MOST_LABELS} can be recorded")
        return TargetKind(shape[0], (), replace(loss, **{"multi_label": True}).text)
    if len(shape) == 1 and _one_hot(targets):
        return TargetKind(shape[0], (), text)
    if not loss.real:
        raise BadInput(f"{where}: loss = {text!r} takes one class of a record, and its targets are of shape {shape}")
    return TargetKind(0, shape, text)


def _whole(targets: Tensor) -> bool:
    return not targets.is_floating_point() or bool((targets == targets.round()).all())


def _one_hot(targets: Tensor) -> bool:
    return bool(((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all())
