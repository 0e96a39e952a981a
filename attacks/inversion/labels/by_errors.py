"""Labels by the errors that a loss has for each class, where it is not the plain cross-entropy.

The gradient of a classifier's bias is the mean of records' errors at the outputs. What the error of a class is on
average, the network says of random images; so the counts of classes are those whose errors add up to the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....defenses.losses import Loss
from .classifier import KNOW_THEM
from .counts import as_labels, labels_from_bias, nearest_counts


def labels_by_errors(gradient: Tensor, outputs: Tensor, loss: Loss, count: int, scaled: bool) -> Tensor:
    """The `count` labels (n,), sorted, behind the gradient (outputs,) of a classifier's bias.

    Args:
        gradient: of unknown positive scale unless `scaled`. outputs: (m, outputs), of random images. loss: what was
            minimised. count: n ≥ 1.

    Raises:
        ValueError: the gradient does not tell them.
    """
    width = outputs.shape[1]
    if count == 1 and loss.several:
        return ((gradient < 0).long() << torch.arange(width)).sum()[None]
    if loss.several or (width == 1 and count > 1 and not scaled):
        what = "of sets of labels the gradient tells how often each stands, not which stand together"
        why = what if loss.several else "one output's gradient of unknown size tells the label of one record alone"
        raise ValueError(f"labels cannot be inferred: {why}; {KNOW_THEM}")
    if count == 1:
        return gradient.argmin()[None] if width > 1 else (gradient < 0).long()
    if loss.softmax and not scaled:
        return labels_from_bias(gradient, count)
    errors, weights = _errors(outputs, loss)
    off = errors - weights[:, None] * gradient  # whose sum over the batch is 0
    if not scaled:
        unit = gradient / gradient.norm().clamp_min(1e-300)
        off = errors - (errors @ unit)[:, None] * unit
    system = torch.cat([off.T, off.new_ones(1, len(off)) * off.abs().max()])
    aim = torch.cat([off.new_zeros(width), off.new_full((1,), count) * off.abs().max()])
    estimate = torch.linalg.lstsq(system, aim[:, None], driver="gelsd").solution[:, 0]
    return as_labels(nearest_counts(estimate, count))


def _errors(outputs: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """(classes, outputs), the mean error of a record of each class, and (classes,), what it counts for."""
    z, many = outputs.double().requires_grad_(), len(outputs)
    classes = torch.arange(max(2, outputs.shape[1]))
    with torch.enable_grad():
        errors = [torch.autograd.grad(loss.values(z, c.expand(many)).sum(), z)[0].mean(0) for c in classes]
    return torch.stack(errors), loss.size(classes[:, None]).double()
