"""For whoever sees models and no single upload: the step from one model to the next is a message of all who took part.

A server that adds the clients' mean value to the model gives that mean away. Of gradients, and of what SGD and momentum
make of them, it is in turn the mean gradient of all clients' images together, where each image weighs the same: that of
clients of equal size, and of others where the server weighs them by their numbers of records.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from ...base import Knowledge, PublicFacts, Seen, Sum, View
from .clipped_weights import stretched
from .local_training import LINEAR
from .target import Aim, target_of


def summed(view: View, knowledge: Knowledge) -> list[Aim]:
    """Every step from one broadcast model to the next, of rounds of which it is public who merged what (`View.sums`).

    It is read as one client's update, of as many records, in batches so many times as large. Clips act on each client's
    value, so after one the scale is unknown. Optimisers that rescale gradients are not undone: of several clients'
    updates only the mean is seen. A derived message has the id of the model that came out, and the round it was made
    in.
    """
    models = {m.round: m for m in view.messages if m.broadcast and m.sender == "server"}
    alike = len(set(view.records.values())) == 1
    aims = []
    for round, of in sorted(view.sums.items()):
        if round in models and round + 1 in models:
            before, after = models[round], models[round + 1]
            step = Seen(
                after.id,
                round,
                after.sender,
                after.receivers,
                "update",
                of.records,
                partial(_step, before, after, of.scale),
                False,
            )
            own, value, start = view.facts.of_round(round), step.load(), before.load()
            facts = _as_one_client(own, of)
            factor = stretched(start + value, start, own, of.noise_std, of.clients)
            if factor > 1:
                noise = None if of.noise_std is None else factor * of.noise_std
                value, facts = factor * (start + value) - start, replace(facts, noise_std=noise)
            each = of.records // of.clients if alike or of.clients == 1 else 0
            target = target_of(step, value, start, facts, knowledge, each=each, clients=of.clients)
            aims.append(Aim("one-round", (replace(target, stretched=factor),), (step,), summed=True))
    return aims


def _step(before: Seen, after: Seen, scale: float) -> Tensor:
    return (after.load() - before.load()) / scale


def _as_one_client(facts: PublicFacts, of: Sum) -> PublicFacts:
    gradient = facts.share == "gradient"  # a step of the server's SGD is one of a client's
    several = of.clients > 1 and not gradient and facts.optimiser not in LINEAR
    return replace(
        facts,
        share="update",
        optimiser="sgd" if gradient else "unknown" if several else facts.optimiser,
        steps=1 if gradient else facts.steps,
        epochs=None if gradient else facts.epochs,
        batch_size=of.records if gradient else of.clients * facts.batch_size,
        clip_norm=None,
        clip_unknown=facts.clip_unknown or (facts.clip_norm is not None and facts.share != "weights"),
        noise_std=of.noise_std,
        schedule=(),
    )
