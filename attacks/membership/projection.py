"""Whether what a record makes linear layers read lies in the span of what a message tells of it (ProjRes,
arXiv:2604.21197): the gradient of a linear layer is a sum of error times input, so its rows span the inputs of those
records that took part, and another record's have a rest outside.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..base import Knowledge, Seen, View
from ..text.span import CLEAR, SENT
from .captured import descent
from .network import started_with
from .products import once
from .signals import CHUNK_NUMBERS, numbers_per_record

MOST = 0.5  # of a layer's width: of a span that no gap ends the strongest half, so that others have a rest outside
EDGE = 1.02  # times the largest direction of noise alone, which varies by 1 %
RUNS = 32  # texts that are run at once; images and rows by their numbers
DECOMPOSING = 20  # operations of a singular value decomposition, times the product of its sides and the shorter one
TINY = 1e-300  # in place of a length of 0
HELD_NUMBERS = 2**25  # of what layers read of all candidates, which is kept for a round's other messages: 256 MB


def projection_residuals(view: View, knowledge: Knowledge, message: Seen) -> Tensor:
    """The share of what each candidate makes linear layers read that lies outside of the message's spans: (n,) float64
    in [0, 1], the mean over layers, and over a text's words. Those layers count whose span has an end, or all
    where none has.

    Raises:
        ValueError: no linear layer is sent.
    """
    start = view.global_model(message.round)
    sent = view.layout.split(descent(message, message.load(), start, view.facts).double())
    first, chunks = _read_at(view, knowledge, message.round)
    texts = view.vocabulary is not None
    groups = _alike(first)
    noise = view.facts.of_round(message.round).noise_std or 0.0
    spans = {group[0]: span_of([sent[f"{path}.weight"] for path in group], noise) for group in groups}
    telling = {path: basis for path, (basis, clear) in spans.items() if clear}
    used = telling or {path: basis for path, (basis, _) in spans.items()}
    parts = []
    for records, read in chunks:
        rests = [_mean_rest(read[path], basis, records if texts else None) for path, basis in used.items()]
        parts.append(torch.stack(rests).mean(0))
    return torch.cat(parts)


Read = tuple[Tensor, Mapping[str, Tensor]]  # some candidates, and what each linear layer reads of them


def _read_at(view: View, knowledge: Knowledge, round: int) -> tuple[Mapping[str, Tensor], Iterable[Read]]:
    """What linear layers read at the round's global model: of the first candidate, and of all, some at a time. It is
    the same for every message of the round, and kept where it is small.
    """
    network = copy.deepcopy(started_with(view, round)).double().eval().requires_grad_(False)
    weights = {name: value.double() for name, value in view.layout.split(view.global_model(round)).items()}
    texts, paths = view.vocabulary is not None, linear_layers(view)
    inputs = knowledge.candidate_inputs if texts else knowledge.candidate_inputs.double()
    step = RUNS if texts else max(1, CHUNK_NUMBERS // numbers_per_record(network, view.input_shape))
    first = _read(network, weights, paths, inputs[:1])
    chunks = ((records, _read(network, weights, paths, records)) for records in inputs.split(step))
    distinct = {id(value): value.numel() for value in first.values()}
    if len(inputs) * sum(distinct.values()) > HELD_NUMBERS:
        return first, chunks
    return first, once(view, knowledge, ("read", round), lambda: list(chunks))


def linear_layers(view: View) -> list[str]:
    """Paths of those that are trained, at least one. The classifier's is left out where there are others: its errors
    are nearly the same for all records of a class, so they span fewer inputs than there are.

    Raises:
        ValueError: there is none.
    """
    trained = {*view.layout.names}
    modules = view.module.named_modules()
    linear = {path: layer for path, layer in modules if isinstance(layer, nn.Linear) and f"{path}.weight" in trained}
    if not linear:
        raise ValueError("the network trains no linear layer, whose gradient would span the inputs of records")
    return [path for path, layer in linear.items() if layer.out_features > view.classes] or [*linear]


def span_operations(view: View) -> int:
    """About how many the spans of one message's layers take, beside running the candidates.

    Raises:
        ValueError: no linear layer is sent.
    """
    shapes = [view.module.get_parameter(f"{path}.weight").shape for path in linear_layers(view)]
    return sum(DECOMPOSING * outputs * width * min(outputs, width) for outputs, width in shapes)


def span_of(gradients: Sequence[Tensor], noise_std: float = 0.0) -> tuple[Tensor, bool]:
    """The span of the inputs of layers (outputs, width) that read the same, each by its length: a basis (width, k), and
    whether a gap, or the largest direction of noise alone, ends it. Keys alone span less, as their errors sum to zero
    over a text.

    Behind a gap it has fewer directions than the layers are wide, and than their errors can have: one less than the
    outputs, as a softmax's sum to zero.
    """
    lengths = [g.norm().clamp_min(TINY) for g in gradients]
    rows = torch.cat([g / length for g, length in zip(gradients, lengths, strict=True)])
    _, sizes, right = torch.linalg.svd(rows, full_matrices=False)
    outputs, width = rows.shape
    rank = max(1, int(MOST * min(rows.shape)))
    if noise_std > 0:
        edge = noise_std / float(min(lengths)) * (outputs**0.5 + width**0.5)
        above = int((sizes > EDGE * edge).sum())
        return (right[:above].T, True) if 0 < above < width else (right[:rank].T, False)
    ratios = sizes[:-1] / sizes[1:].clamp_min(max(SENT * float(sizes[0]), TINY))
    ended = int(ratios.argmax()) + 1 if len(ratios) else 0
    if ended and float(ratios[ended - 1]) >= CLEAR and ended < min(outputs - 1, width):
        return right[:ended].T, True
    return right[:rank].T, False


def _alike(read: Mapping[str, Tensor]) -> list[list[str]]:
    """The layers that read the same, together."""
    groups: dict[int, list[str]] = {}
    for path, value in read.items():
        groups.setdefault(id(value), []).append(path)
    return [*groups.values()]


def _mean_rest(read: Tensor, basis: Tensor, texts: Tensor | None) -> Tensor:
    """The mean share outside of what a layer reads of each record (n, …, width), padding of `texts` left out: (n,)."""
    rest = (read - (read @ basis) @ basis.T).norm(dim=-1) / read.norm(dim=-1).clamp_min(TINY)
    shares = rest.reshape(len(read), -1)
    counted = torch.ones_like(shares)
    if texts is not None and shares.shape == texts.shape:
        counted = (texts >= 0).to(shares.dtype)
    return (shares * counted).sum(1) / counted.sum(1)


def _read(network: nn.Module, weights: Mapping[str, Tensor], paths: list[str], inputs: Tensor) -> dict[str, Tensor]:
    """What each layer reads of records (n, …), (n, …, width): its first input."""
    caught: dict[str, Tensor] = {}

    def catch(path: str):
        def hook(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
            caught.setdefault(path, given[0])

        return hook

    hooks = [network.get_submodule(path).register_forward_pre_hook(catch(path)) for path in paths]
    try:
        with torch.no_grad():
            functional_call(network, dict(weights), (inputs,))
    finally:
        for hook in hooks:
            hook.remove()
    return caught
