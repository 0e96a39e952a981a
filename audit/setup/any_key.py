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
    often = for_any_key(experiment.scheme, experiment.clients)
    if often is None or not_for_any_key(experiment.scheme, experiment.clients):
        return ""
    return (
        f"Who takes part is drawn with the key: planned for somebody in {often.times} of {len(often.ranks)} rounds,"
        f" with {often.size} clients a round; of 10⁹ trainings less than two come out worse."
    )


def not_for_any_key(scheme: Scheme, clients: Sequence[Sized]) -> str:
    """Why no plan holds for any key, "" where one does.

    Args:
        scheme: of the training. clients: as many as each has records.
    """
    if not scheme.topology.central:
        return f"who sends to whom is drawn with the key; {INSTEAD}"
    if not _known_beforehand(scheme) and len({len(rows) for rows in clients}) > 1:
        return f"clients of unequal numbers of records are drawn with the key; {INSTEAD}"
    return ""


INSTEAD = "price the trained setup, or plan the training of one key with --noise-key"


def _known_beforehand(scheme: Scheme) -> bool:
    return isinstance(scheme.participation, Everyone | RoundRobin)


def for_any_key(scheme: Scheme, clients: Sequence[Sized]) -> MostOften | None:
    """Who takes part in a plan for any key, of clients that are alike; None where everybody knows it beforehand."""
    if _known_beforehand(scheme) or not scheme.topology.central:
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
    fewest = max(1, scheme.participation.fewest(len(plans), len(clients)))
    return MostOften(scheme.participation, fewest, max(times, 1), tuple(ranks))


@dataclass(frozen=True)
class MostOften:
    """Cohorts of a plan: the same `size` clients in the `times` worst rounds, others in the next worst, and so on.

    inner: who says how cohorts are drawn. ranks: of each round, 0 for the worst.
    """

    inner: Participation
    size: int
    times: int
    ranks: tuple[int, ...]

    def select(self, round: int, clients: Sequence[int], rng: Keystream) -> Cohort:
        first, size = self.ranks[round] // self.times * self.size, min(self.size, len(clients))
        members = {clients[(first + i) % len(clients)] for i in range(size)}
        return Cohort(tuple(sorted(members)), self.inner.select(round, clients, rng).sampling)

    def most(self, rounds: int, clients: int, chance: float = 1.0) -> int:
        return most_of(min(rounds, self.times), chance, clients)

    def fewest(self, rounds: int, clients: int) -> int:
        return min(self.size, clients)
