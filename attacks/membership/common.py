"""What the membership attacks share: checks of the candidates, the global models seen, the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...defenses.complaint import one_of
from ...defenses.losses import IGNORED, loss_of
from ..base import Knowledge, Progress, Seen, View
from . import signals
from .network import network_sent

CANDIDATES = "the candidates' inputs and labels, not which of them were members"


def check_candidates(view: View, knowledge: Knowledge) -> None:
    """That there are candidates, of the view's shapes and classes. Raises ValueError."""
    inputs, targets, ids = knowledge.candidate_inputs, knowledge.candidate_targets, knowledge.candidate_ids
    if len(ids) == 0:
        raise ValueError(
            "there are no membership candidates in knowledge/, and a membership attack needs records to ask about; set"
            " candidates in the config's [capture] and train again"
        )
    if why := loss_of(view.facts.loss).refused:
        raise ValueError(why)
    if inputs.shape != (len(ids), *view.input_shape) or targets.shape != (len(ids), *view.target_shape):
        raise ValueError(
            f"the candidates have inputs {tuple(inputs.shape)}, targets {tuple(targets.shape)} and {len(ids)} ids;"
            f" expected ({len(ids)}, {', '.join(map(str, view.input_shape))}) and {(len(ids), *view.target_shape)}"
        )
    most = 2**view.classes if view.several else view.classes
    least = IGNORED if view.vocabulary and view.target_shape else 0
    if most and (targets.is_floating_point() or int(targets.min()) < least or int(targets.max()) >= most):
        raise ValueError(
            f"the candidates' targets run from {targets.min().item()} to {targets.max().item()}; class numbers from 0"
            f" to {most - 1} are expected"
        )


def check_classes(view: View, name: str) -> None:
    """That each record is of one class. Raises ValueError."""
    if view.classes < 2 or view.target_shape or view.several:
        what = f"classes = {view.classes}, at least 2 are needed"
        if view.several or view.target_shape:
            what = "sets of labels" if view.several else f"targets of shape {view.target_shape}"
        raise ValueError(f"{name!r} needs class labels; the setup has {what}")


def global_models(view: View) -> list[Seen]:
    """The broadcasts, in rounds' order, at least one. Raises ValueError."""
    models = sorted((m for m in view.messages if m.broadcast), key=lambda m: m.round)
    if not models:
        raise ValueError(
            f"the observer {view.observer!r} sees no global model, and without one there is nothing to ask about the"
            " candidates"
        )
    return models


def sees_start(view: View, message: Seen) -> bool:
    return any(m.broadcast and m.round == message.round for m in view.messages)


def own_value(message: Seen, view: View) -> bool:
    """Whether a message is its sender's own work on its own records, and not a model that a hub passes on."""
    return not message.broadcast and message.kind == view.facts.share


def others_of(view: View, message: Seen) -> list[Seen]:
    """The round's uploads from everybody else."""
    return [m for m in view.messages if own_value(m, view) and m.round == message.round and m.sender != message.sender]


def losses(view: View, knowledge: Knowledge, message: Seen, weights: Tensor) -> Tensor:
    """Of every candidate (n,), by the weights (d,) of, or made of, a message."""
    network = network_sent(view, message)
    signal = signals.loss_signal(loss_of(view.facts.loss))
    return signals.of_model(signal, network, weights, knowledge.candidate_inputs, knowledge.candidate_targets)


def among(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(one_of(what, value, allowed))


def report_progress(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
