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
    if why := _unreadable(scheme, facts, clients):
        return {}, why
    if not all("participants" in row for row in rounds):
        return {}, "how many clients took part in a round is secret"
    unequal, missing = len(set(clients)) > 1, False
    found: dict[int, Sum] = {}
    for number, row in enumerate(rounds):
        many = int(row["participants"])
        plan = scheme.schedule.plan(number, {})
        missing = missing or many < len(clients)
        if many < 1 or plan is None or plan != RoundPlan() or (unequal and many < len(clients)):
            continue
        sizes = [*clients] if unequal else [clients[0]] * many
        weights = scheme.aggregate.weights(sizes)
        scale = weights.scale * sum(weights.counts)
        of_one = facts.of_round(number).noise_std
        noise = None if of_one is None else _noise_of_clients(scheme, of_one, sizes)
        if noise is not None and scheme.server:
            own = _noise_of(scheme.server[0], facts, sum(sizes), many)  # type: ignore[arg-type]
            noise = sqrt(noise**2 + (own / scale) ** 2)
        used = sum(sizes)
        if facts.share == "gradient":
            size = min(facts.batch_size, max(sizes))
            place = number % -(-max(sizes) // size)  # of unequal sizes, all records are in the one batch
            used = sum(min(size, own - place * size) for own in sizes)
            if isinstance(scheme.update, Optimise) and noise is not None:
                noise *= scheme.update.lr
        found[number] = Sum(many, used, many == len(clients), scale, noise)
    if not found and unequal and missing:
        return {}, "clients hold unequal numbers of records, and which of them took part in a round is not told"
    return found, "" if found else "the learning rate or the noise changes from round to round"


def _unreadable(scheme: Scheme, facts: PublicFacts, clients: Sequence[int]) -> str:
    """Why a step of the server is not the mean of its clients' values and known noise, "" where it is."""
    if not scheme.topology.central:
        return "there is no server"
    if len(set(clients)) > 1 and (why := _unlike(scheme, facts, clients)):
        return f"clients hold unequal numbers of records, and {why}"
    if scheme.local.per_example is not None:
        return "clients draw their batches in secret"
    update = scheme.update
    plain = isinstance(update, Add | Replace) or (isinstance(update, Optimise) and update.optimiser == "sgd")
    noise_only = len(scheme.server) == 0 or (len(scheme.server) == 1 and isinstance(scheme.server[0], Perturb))
    if scheme.gather or not plain or not noise_only:
        return "the server does more with the clients' values than average them and add noise"
    return ""


def _unlike(scheme: Scheme, facts: PublicFacts, clients: Sequence[int]) -> str:
    """Why not every record counts the same in a sum of all clients' values, "" where it does: a value is a mean over a
    client's records, times its steps where it is an update, and must weigh as much as it has records.
    """
    counts = scheme.aggregate.weights(clients).counts
    if any(own * clients[0] != counts[0] * records for own, records in zip(counts, clients)):
        return "the server averages their values whatever that number, so that their records do not count the same"
    if facts.batch_size >= max(clients) or (facts.share != "gradient" and facts.steps is not None):
        return ""
    if facts.share == "gradient":
        return "a batch is not all of a client's records, so that their records do not count the same"
    return "they take unequally many local steps, so that their records do not count the same"


def _noise_of_clients(scheme: Scheme, noise_std: float, records: Sequence[int]) -> float:
    """What the clients' own noise has in each component of the weighted mean of their values, in parameter units.

    noise_std: the mean of theirs, which stands in the public figures.
    """
    counts = scheme.aggregate.weights(records).counts
    by_records = any(isinstance(step, Perturb) and step.divided_by == "records" for step in scheme.client)
    each = [1 / own if by_records else 1.0 for own in records]
    unit = noise_std * len(each) / sum(each)
    return unit * sqrt(sum((count * own) ** 2 for count, own in zip(counts, each))) / sum(counts)


def _noise_of(step: Perturb, facts: PublicFacts, records: int, senders: int) -> float:
    """What the server's own noise has in each component of the merged value, in parameter units."""
    if step.noise_std is not None:
        return step.noise_std
    law = 1.0
    if step.mechanism == "laplace":
        law = sqrt(2)
    scale = {"nothing": 1, "records": records, "senders": senders}[step.divided_by]
    return law * (facts.clip_norm or 0.0) * (step.noise_multiplier or 0.0) / scale
