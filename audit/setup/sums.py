"""What is public of how a server made each next model of the clients' values: which lets whoever sees the models alone
take the step between two of them for a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

from ...attacks.base import PublicFacts, Sum
from ...defenses.schedule import RoundPlan
from ...defenses.scheme import Scheme
from ...defenses.steps.perturb import Perturb
from ...defenses.update import Add, Optimise, Replace


def sums_of(
    scheme: Scheme, facts: PublicFacts, clients: Sequence[int], rounds: Sequence[Mapping[str, float]]
) -> tuple[dict[int, Sum], str]:
    """By round how the server merged it; and why of no round that is public, "" where it is.

    Args:
        scheme: what was trained. facts: of a client's message. clients: how many records each has.
        rounds: the public figures of each.
    """
    if why := _unreadable(scheme, clients):
        return {}, why
    if not all("participants" in row for row in rounds):
        return {}, "how many clients took part in a round is secret"
    records, found = clients[0], {}
    for number, row in enumerate(rounds):
        many = int(row["participants"])
        plan = scheme.schedule.plan(number, {})
        if many < 1 or plan is None or plan != RoundPlan():
            continue
        weights = scheme.aggregate.weights([records] * many)
        scale = weights.scale * sum(weights.counts)
        noise = None if facts.noise_std is None else facts.noise_std / sqrt(many)
        if noise is not None and scheme.server:
            own = _noise_of(scheme.server[0], facts, records * many, many)  # type: ignore[arg-type]
            noise = sqrt(noise**2 + (own / scale) ** 2)
        used = records
        if facts.share == "gradient":
            size = min(facts.batch_size, records)
            place = number % -(-records // size)
            used = min(size, records - place * size)
            if isinstance(scheme.update, Optimise) and noise is not None:
                noise *= scheme.update.lr
        found[number] = Sum(many, used, many == len(clients), scale, noise)
    return found, "" if found else "the learning rate or the noise changes from round to round"


def _unreadable(scheme: Scheme, clients: Sequence[int]) -> str:
    """Why a step of the server is not the mean of its clients' values and known noise, "" where it is."""
    if not scheme.topology.central:
        return "there is no server"
    if len(set(clients)) > 1:
        return "clients hold unequal numbers of records, and a sum of their values is then of no one gradient"
    if scheme.local.per_example is not None:
        return "clients draw their batches in secret"
    update = scheme.update
    plain = isinstance(update, Add | Replace) or (isinstance(update, Optimise) and update.optimiser == "sgd")
    noise_only = len(scheme.server) == 0 or (len(scheme.server) == 1 and isinstance(scheme.server[0], Perturb))
    if scheme.gather or not plain or not noise_only:
        return "the server does more with the clients' values than average them and add noise"
    return ""


def _noise_of(step: Perturb, facts: PublicFacts, records: int, senders: int) -> float:
    """What the server's own noise has in each component of the merged value, in parameter units."""
    if step.noise_std is not None:
        return step.noise_std
    law = sqrt(2) if step.mechanism == "laplace" else 1.0
    scale = {"nothing": 1, "records": records, "senders": senders}[step.divided_by]
    return law * (facts.clip_norm or 0.0) * (step.noise_multiplier or 0.0) / scale
