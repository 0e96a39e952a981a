"""Whether attacks can use an owner's network: tried while the owner can still change it, before training is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...defenses import models
from ...defenses.hugging_face import LanguageModel, facts_of_network
from ...defenses.losses import loss_of
from ..errors import BadInput
from ..owners_code import in_words
from .network import Network
from .wrappers import bare_module

Builder = Callable[..., Any]  # a class or a function that gives a network
LIKE_IMAGES = (3, 32, 32)  # a shape that a class of images or of tables can be tried with before records are known
# Of a network that gives more than a row for a record, by whether records are texts: dimensions, shape, loss.
OUTPUTS = {
    True: (3, "or (1, length, words)", "'next_token' of each place's next word"),
    False: (4, "or (1, classes, height, width)", "'cross_entropy' of a class for each pixel"),
}
ALONE = "; without records and data={'input_shape': …} ε is priced all the same"


@dataclass(frozen=True)
class SeenRecords:
    """What is known of records. shape: of one. classes: how many there are, 0 for regression; None where nobody knows
    yet. loss: that was declared. texts: whether records are numbers of words.
    """

    shape: Sequence[int] | None
    classes: int | None
    loss: str | None = None
    texts: bool = False


def check_usable(
    module: nn.Module, name: str, records: SeenRecords, where: str, builder: Builder | None = None
) -> tuple[int, ...] | None:
    """That attacks can build the network again and give it records, as far as it can be told by now.

    Args:
        module: of the owner, in whose process it runs. name: as of a `Network`.
        records: what is known of them. where: for a sentence. builder: what makes the network, None for its class.

    Returns:
        The shape of what it gives for a record, None where nobody knows.

    Raises:
        BadInput: in one sentence.
    """
    shape, classes, loss = records.shape, records.classes, records.loss
    if shape is None:
        outputs = None
    else:
        outputs = outputs_of(module, shape, where, records.texts)
    if outputs is not None and len(outputs) > 1 and loss is None:
        raise BadInput(
            f"{where}: the network gives shape {(1, *outputs)} for one record; say what is minimised, as"
            f" loss={OUTPUTS[records.texts][2]}{ALONE}"
        )
    if shape is not None and mixes_records(module, shape, records.texts):
        why = "the network gives a record other outputs in a batch than alone, as an LSTM without batch_first=True does"
        warnings.warn(f"{where}: {why}; attacks, and a clip of records, take each by itself", stacklevel=4)
    if outputs is not None and classes is not None and len(outputs) == 1:
        if classes and outputs[0] != classes and (outputs[0], classes) != (1, 2):
            raise BadInput(
                f"{where}: the network gives {outputs[0]} numbers for a record, and data says classes = {classes}"
            )
        if loss is not None and (why := loss_of(loss).misfit(outputs[0], classes)):
            raise BadInput(f"{where}: loss = {loss!r} {why}")
    if outputs is None and loss is not None:
        _check_last(module, loss)
    if ":" in name:
        if classes is None and outputs is not None:
            most = outputs[0]
            if records.texts:
                most = outputs[-1]
            classes = most * (most > 1)
        check_builder(module, type(module) if builder is None else builder, shape, classes)
    return outputs


def _check_last(module: nn.Module, loss: str) -> None:
    """That a stack whose last layer is linear has outputs enough for its loss. Raises BadInput."""
    last = list(module.modules())[-1]
    while isinstance(module, nn.Sequential) and len(module):
        module = module[-1]
    if module is not last or not isinstance(last, nn.Linear):
        return
    if why := loss_of(loss).misfit(last.out_features, max(2, last.out_features)):
        raise BadInput(f"model: loss = {loss!r} {why}")


def warn_of_no_attacks(network: Network) -> None:
    """Warns the owner of a module that no attack can build again, before its training begins."""
    if network.known:
        return
    kinds = dict.fromkeys(layer.partition("(")[0] for layer in network.layers)
    strange = [kind for kind in kinds if kind not in models.LAYERS]
    what = "a class that no file of yours holds"
    if strange:
        what = f"a network with {', '.join(strange)}"
    stack = f"a Sequential of {', '.join(models.LAYERS)}"
    why = f"{what} cannot be built again; attacks take {stack}, or a class in a file of your own"
    warnings.warn(f"model: ε is priced and attacks are left out: {why}", stacklevel=4)  # where a Recorder is opened


def warn_of_all_frozen(network: Network) -> None:
    """Warns the owner of a module of which nothing is trained: a copy for evaluation, or a network that was opened
    before it was told what is trained.
    """
    if network.parameters and set(network.parameters) <= set(network.untrained):
        why = "requires_grad is False of all its parameters, so that all are taken as trained and sent"
        more = "open the Recorder with the network as it is trained, if that is not so"
        warnings.warn(f"model: {why}; {more}", stacklevel=4)  # where a Recorder is opened


def check_builder(module: nn.Module, builder: Builder, shape: Sequence[int] | None, classes: int | None) -> None:
    """That a class or a function of the owner's gives the same network again, in the owner's own process, as an attack
    will ask for one. Of one that takes the shape of a record nothing is known before that is.

    Raises:
        BadInput: it raises, or has other tensors.
    """
    if models.takes_shape(builder):
        if shape is None or classes is None:
            _check_takes_a_shape(builder)
            return
        given: tuple[Any, ...] = (tuple(shape), classes)
    else:
        given = ()
    call = f"{builder.__name__}({', '.join(map(str, given))})"
    try:
        with torch.random.fork_rng(devices=[]):
            again = bare_module(builder(*given)).state_dict()
        wrong = [n for n, v in module.state_dict().items() if n not in again or again[n].shape != v.shape]
        why = ""
        if wrong:
            why = f"has no tensor {wrong[0]!r} of the same shape"
    except Exception as error:
        why = f"raises {in_words(error)}"
    if why:
        raise BadInput(
            f'model: an attack makes its network by {call}, which {why}; say by build="module:function" what makes it'
            " with (input_shape, classes) or with nothing, or for ε alone record net.state_dict() in its place"
        )


def _check_takes_a_shape(kind: Builder) -> None:
    """That a builder whose first argument stands for a record's shape wants no number there. Raises BadInput."""
    try:
        with torch.random.fork_rng(devices=[]):
            kind(LIKE_IMAGES, 2)
    except TypeError as error:
        raise BadInput(
            f"model: an attack makes its network by {kind.__name__}(input_shape, classes), which with {LIKE_IMAGES}, a"
            f' shape to try it with, raises {in_words(error)}; let it take a shape, say by build="module:function" what'
            " makes it with nothing, or for ε alone record net.state_dict() in its place"
        ) from None
    except Exception:  # a class of tables may refuse an image; its own shape is tried with its first records
        return


def outputs_of(module: nn.Module, input_shape: Sequence[int], where: str, texts: bool = False) -> tuple[int, ...]:
    """The shape (C,) or (C, h, w) of what the owner's network, in the owner's own process, gives for a record.

    Args:
        module: as it is; nothing of it changes. input_shape: of a record. where: for a sentence.
        texts: whether it takes numbers of words.

    Raises:
        BadInput: it is none that attacks can be tried on: it takes no real numbers, or gives no single row.
    """
    like = next(module.parameters())
    record = torch.zeros(1, *input_shape, device=like.device, dtype=like.dtype, requires_grad=not texts)
    try:
        result = _given(module, record.long() if texts else record.clone())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(
            f"{where}: the network takes no {'texts' if texts else 'records of real numbers'} of shape"
            f" {tuple(input_shape)} ({in_words(error)}); of token ids give data={{'tokenizer': 'tokenizer.json'}}"
            f" or 'vocabulary'{ALONE}"
        ) from None
    if not isinstance(result, Tensor) or result.dim() not in (2, OUTPUTS[texts][0]):
        if isinstance(result, Tensor):
            gives = f"shape {tuple(result.shape)}"
        else:
            gives = f"a {type(result).__name__}"
        raise BadInput(
            f"{where}: the network gives {gives} for one record; attacks need (1, outputs), {OUTPUTS[texts][1]}{ALONE}"
        )
    if not texts and not _follows(result, record):
        raise BadInput(
            f"{where}: what the network gives does not follow its inputs by a gradient, as where they are token ids;"
            f" they need data={{'tokenizer': 'tokenizer.json'}} or 'vocabulary'{ALONE}"
        )
    return tuple(result.shape[1:])


def _given(module: nn.Module, records: Tensor) -> Any:
    """What the owner's network gives for records, as after training; its modes stay."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        network = module.eval()
        return (network if facts_of_network(module) is None else LanguageModel(module))(records)
    finally:
        for part, mode in modes:
            part.training = mode


def mixes_records(module: nn.Module, input_shape: Sequence[int], texts: bool) -> bool:
    """Whether a record gets other outputs beside others than alone, as from an LSTM that takes a batch for its time."""
    like = next(module.parameters())
    three = torch.zeros(3, *input_shape, device=like.device, dtype=torch.long if texts else like.dtype)
    three[1] = 1
    try:
        with torch.no_grad():
            alone, together = _given(module, three[:1]), _given(module, three)
    except Exception:  # of so many it takes none
        return False
    others = together[::2] if len(together) == len(three) else alone + 1
    return not torch.allclose(others, alone.expand_as(others), rtol=1e-3, atol=1e-5, equal_nan=True)


def _follows(result: Tensor, inputs: Tensor) -> bool:
    """Whether a gradient reaches the inputs: looked up, since a backward pass would call the owner's hooks."""
    todo, seen = [result.grad_fn], set[Any]()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if getattr(node, "variable", None) is inputs:
            return True
        seen.add(node)
        todo += [before for before, _ in node.next_functions]
    return False
