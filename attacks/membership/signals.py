"""What a model, or many at once, says of a record: its loss, its logit-scaled confidence φ, its confidence."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from ...defenses.engine import stacks
from ...defenses.layout import Layout
from ...defenses.losses import CrossEntropy, Loss, NextToken, sides

Signal = Callable[[Tensor, Tensor], Tensor]  # outputs (..., n, C), targets (n,) -> (..., n) or (..., n, C)

# A chunk of models × records holds about this many activations (64 MB in float32); a rule on shapes only.
CHUNK_NUMBERS = 2**24


def loss_signal(trained: Loss) -> Signal:
    """The loss that models were trained with."""

    def of_records(outputs: Tensor, targets: Tensor) -> Tensor:
        if trained == CrossEntropy() and targets.dim() == 1:
            return cross_entropy(outputs, targets)
        of_one = (3,) if isinstance(trained, NextToken) else (2, 4)  # (n, length, C); (n, C) or (n, C, h, w)
        if outputs.dim() in of_one:
            return trained.values(outputs, targets)
        return torch.stack([trained.values(each, targets) for each in outputs])

    return of_records


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """As ln(1 + e^−φ), so that small losses keep all their digits.

    >>> cross_entropy(torch.tensor([[0.0, 0.0], [50.0, 0.0]]).double(), torch.tensor([1, 0]))      # ln 2 and e^−50
    tensor([6.9315e-01, 1.9287e-22], dtype=torch.float64)
    """
    odds = phi(outputs, targets)
    return torch.logaddexp(torch.zeros_like(odds), -odds)


def phi(outputs: Tensor, targets: Tensor) -> Tensor:
    """φ = ln f_y − ln Σ_{y'≠y} f_{y'} = z_y − logsumexp of the other logits (LiRA section IV-C, arXiv:2112.03570). It
    is the log-odds of the confidence, read from the logits because ln(p/(1 − p)) is ∞ as soon as p rounds to 1. Of a
    single score z for two classes, the logits (0, z), it is the signed margin: z for class 1, −z for class 0.

    >>> phi(torch.tensor([[50.0, 0.0]]), torch.tensor([0])).item()
    50.0
    """
    _labels_only("φ or a confidence", targets)
    if outputs.shape[-1] == 1:
        return sides(targets) * outputs.squeeze(-1)
    others = outputs.masked_fill(F.one_hot(targets, outputs.shape[-1]).bool(), float("-inf"))
    own = outputs.gather(-1, targets.expand(outputs.shape[:-1])[..., None]).squeeze(-1)
    return own - others.logsumexp(-1)


def confidence(outputs: Tensor, targets: Tensor) -> Tensor:
    """f_y, the probability of the record's own label, in [0, 1]."""
    return phi(outputs, targets).sigmoid()


def probabilities(outputs: Tensor, targets: Tensor) -> Tensor:
    """The whole prediction vector (..., n, C), of a single score z that of the logits (0, z)."""
    _labels_only("a prediction vector", targets)
    if outputs.shape[-1] == 1:
        outputs = torch.cat([torch.zeros_like(outputs), outputs], -1)
    return outputs.softmax(-1)


def of_model(signal: Signal, module: nn.Module, weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """`signal` of one model on every record: (n, …), float64.

    Args:
        weights: (d,), flat. signal, module, inputs, targets: as for `of_models`.
    """
    return of_models(signal, module, weights[None], inputs, targets)[0]


def of_models(signal: Signal, module: nn.Module, weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """`signal` of every model on every record: (S, n, …), float64 from outputs on.

    Networks run in evaluation mode. Fully connected ones run as one stack; with convolutions one model follows the
    other, since a stack of them becomes a grouped convolution (on a CPU 3 to 7 times slower than one by one), and so
    do networks that do not stack, such as an LSTM.

    Args:
        signal: of this file: outputs and targets to a value by record. module: the network.
        weights: (S, d), flat, in `Layout.of(module)`'s order. inputs, targets: (n, *shape) and (n, …).

    Raises:
        ValueError: the weights do not fit the network.
    """
    network = copy.deepcopy(module).eval()
    layout = Layout.of(network)
    if weights.shape[1:] != (layout.dim,):
        raise ValueError(
            f"the weights have shape {tuple(weights.shape)}, expected (models, {layout.dim}) for this network"
        )
    alone = len(weights) == 1 or any(len(shape) > 2 for shape in layout.shapes)
    alone = alone or not stacks(network, tuple(inputs.shape[1:]))
    stack = 1 if alone else max(1, CHUNK_NUMBERS // layout.dim)
    per_record = numbers_per_record(network, tuple(inputs.shape[1:]))
    values = []
    for models in weights.split(stack):
        step = max(1, CHUNK_NUMBERS // (len(models) * per_record))
        parts = [
            signal(_outputs(network, layout, models, x).double(), y)
            for x, y in zip(inputs.split(step), targets.split(step))
        ]
        values.append(torch.cat(parts, 1))
    return torch.cat(values)


@torch.no_grad()
def _outputs(network: nn.Module, layout: Layout, weights: Tensor, inputs: Tensor) -> Tensor:
    """(S, m, C). Arguments are small enough already."""
    inputs = inputs.to(weights.dtype)
    if len(weights) == 1:
        return functional_call(network, layout.split(weights[0]), (inputs,))[None]
    return vmap(lambda named: functional_call(network, named, (inputs,)))(layout.split(weights))


def _numbers(output: object) -> int:
    """How many numbers a layer gives; an LSTM gives nested tuples."""
    return (
        output.numel()
        if isinstance(output, Tensor)
        else sum(map(_numbers, output if isinstance(output, tuple) else ()))
    )


@torch.no_grad()
def numbers_per_record(network: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers one record and all its activations are.

    >>> numbers_per_record(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (4,))
    12
    """
    sizes = [prod(shape)]
    leaves = [module for module in network.modules() if not list(module.children())]
    hooks = [leaf.register_forward_hook(lambda _, __, output: sizes.append(_numbers(output))) for leaf in leaves]
    try:
        network(torch.zeros(1, *shape, dtype=next(network.parameters()).dtype))
    finally:
        for hook in hooks:
            hook.remove()
    return sum(sizes)


def _labels_only(what: str, targets: Tensor) -> None:
    if targets.is_floating_point():
        raise ValueError(
            f"{what} needs class labels, but the targets are {targets.dtype} numbers; use the loss for regression"
        )
