"""What records' targets are, decided by their values, the network's outputs and the loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...defenses.losses import MOST_LABELS, Loss, loss_of
from ..errors import BadInput
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


def kind_of(
    targets: Tensor, outputs: tuple[int, ...] | None, data: DataFacts, loss: str | None, where: str
) -> TargetKind:
    """Of the first targets (n, …) that are seen.

    Args:
        outputs: of the network for a record, None where nobody knows. data: what its owner says of classes.
        loss: as declared. where: for a sentence.

    Raises:
        BadInput: they do not go with the outputs or the loss.
    """
    known = None if loss is None else loss_of(loss)
    width = outputs[0] if outputs else data.classes
    if targets.dim() > 1 and known is None:
        raise BadInput(
            f"{where}: targets of shape {tuple(targets.shape[1:])} for a record; say what was minimised, such as"
            " loss='bce_with_logits' of sets of labels, or loss='squared_error' of numbers"
        )
    if outputs is not None and len(outputs) > 1:
        return _of_pixels(targets, outputs, known, where)
    if width is None and not targets.is_floating_point():
        raise BadInput(f"{where}: how many classes there are cannot be told; give data={{'classes': …}}")
    if targets.dim() > 1:
        return _of_rows(targets, width, known, where)
    whole = _whole(targets)
    binary = whole and bool(((targets == 0) | (targets == 1)).all())
    if data.classes is not None:
        classes = data.classes
    elif width == 1:
        classes = 2 if binary else 0
    else:
        classes = int(width or 0) if whole else 0
    if known is None and width == 1 and classes == 2:
        known = loss_of("bce_with_logits") if outputs is not None else None
    if known is not None and outputs is not None and (why := known.misfit(outputs[0], classes)):
        raise BadInput(f"{where}: loss = {known.text!r} {why}")
    return TargetKind(classes, (), None if known is None else known.text)


def taken(targets: Tensor, kind: TargetKind, where: str) -> Tensor:
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


def _of_rows(targets: Tensor, width: int | None, loss: Loss | None, where: str) -> TargetKind:
    """Targets (n, k): sets of labels, one class as a row, or numbers."""
    assert loss is not None
    shape = tuple(targets.shape[1:])
    if shape != (width,) and width is not None:
        raise BadInput(f"{where}: targets of shape {shape} for a record, and the network gives {width} numbers")
    if "multi_label" in loss.__dataclass_fields__:
        if shape[0] > MOST_LABELS:
            raise BadInput(f"{where}: sets of {shape[0]} labels; at most {MOST_LABELS} can be recorded")
        several = loss_of(_with_sets(loss))
        return TargetKind(shape[0], (), several.text)
    if _one_hot(targets):
        return TargetKind(shape[0], (), loss.text)
    if not loss.real:
        raise BadInput(
            f"{where}: loss = {loss.text!r} takes one class of a record, and its targets are {shape[0]} numbers"
        )
    return TargetKind(0, shape, loss.text)


def _with_sets(loss: Loss) -> str:
    return loss.text if loss.several else type(loss)(**{**vars(loss), "multi_label": True}).text


def _of_pixels(targets: Tensor, outputs: tuple[int, ...], loss: Loss | None, where: str) -> TargetKind:
    """Of outputs (C, h, w): a class for each pixel, or a number for each output."""
    assert loss is not None
    shape = tuple(targets.shape[1:])
    if shape == outputs[1:] and loss.softmax and _whole(targets):
        return TargetKind(outputs[0], shape, loss.text)
    if shape == outputs and not loss.softmax:
        return TargetKind(0, shape, loss.text)
    raise BadInput(
        f"{where}: targets of shape {shape}, outputs of shape {outputs} for a record and loss = {loss.text!r} do not go"
        " together"
    )


def _whole(targets: Tensor) -> bool:
    return not targets.is_floating_point() or bool((targets == targets.round()).all())


def _one_hot(targets: Tensor) -> bool:
    return bool(((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all())
