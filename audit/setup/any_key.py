"""A plan for whatever key a training gets: where cohorts are drawn by lot, one client may be drawn more often than
another, and what is planned with one key's draws says nothing of a training with another key.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from math import inf

from ...defenses.participation import Cohort, Everyone, Participation, RoundRobin, most_of
from ...defenses.randomness import Keystream
from ...defenses.schedule import Adaptive, plans_of, reads_history
from ...defenses.scheme import Scheme
from .experiment import Experiment


def any_key_words(experiment: Experiment) -> str:
    """What a plan for any key assumes, in a sentence; "" where the key decides nothing that costs."""
    if not experiment.scheme.topology.central:
        return (
            "Who sends to whom is drawn with the key, here the published one: a training draws its own, and its ε can"
            " be smaller or larger."
        )
    if (often := for_any_key(experiment.scheme, experiment.clients)) is None:
        return ""
    return (
        f"Who takes part is drawn with the key: planned for somebody in {often.times} of {len(often.ranks)} rounds,"
        f" with {often.size} clients a round; of 10⁹ trainings less than two come out worse."
    )


def for_any_key(scheme: Scheme, clients: Sequence[Sized]) -> MostOften | None:
    """Who takes part in a plan for any key; None where everybody knows it beforehand.

    Args:
        scheme: of the training. clients: as many as each has records.
    """
    if isinstance(scheme.participation, Everyone | RoundRobin) or not scheme.topology.central:
        return None
    plans = scheme.schedule.least() if isinstance(scheme.schedule, Adaptive) else plans_of(scheme.schedule)
    times = scheme.participation.most(len(plans), len(clients))
    noises, rates = {p.noise for p in plans}, {(p.lr, p.lr_by_step) for p in plans}
    if reads_history(scheme.schedule) or min(len(noises), len(rates)) > 1:
        times = len(plans)  # no order of the rounds is the worst for sure
    worst_first = sorted(range(len(plans)), key=lambda i: plans[i].noise / plans[i].lr if plans[i].lr > 0 else inf)
    ranks = [0] * len(plans)
    for rank, round in enumerate(worst_first):
        ranks[round] = rank
    by_records = sorted(range(len(clients)), key=lambda c: len(clients[c]))
    extremes = [c for pair in zip(reversed(by_records), by_records) for c in pair]
    order = tuple(dict.fromkeys(extremes))  # the most records, the fewest, the second most, …
    fewest = scheme.participation.fewest(len(plans), len(clients))
    return MostOften(scheme.participation, fewest, max(times, 1), tuple(ranks), order)


@dataclass(frozen=True)
class MostOften:
    """Cohorts of a plan: the same `size` clients in the `times` worst rounds, others in the next worst, and so on.

    inner: who says how cohorts are drawn. ranks: of each round, 0 for the worst. order: of the clients.
    """

    inner: Participation
    size: int
    times: int
    ranks: tuple[int, ...]
    order: tuple[int, ...]

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        able = set(clients)
        known = [client for client in self.order if client in able]
        first, size = self.ranks[round] // self.times * self.size, min(self.size, len(known))
        members = {known[(first + i) % len(known)] for i in range(size)}
        return Cohort(tuple(sorted(members)), self.inner.select(round, clients, rng).sampling)

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        return most_of(min(rounds, self.times), chance, clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return min(self.size, clients)
