"""A plan for whatever key a training gets: where cohorts are drawn by lot, one client may be drawn more often than
another, and what is planned with one key's draws says nothing of a training with another key.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from math import ceil, inf

from ...defenses.participation import Cohort, Dropout, Everyone, Participation, RoundRobin, Separated, most_of
from ...defenses.randomness import Keystream
from ...defenses.schedule import Adaptive, RoundPlan, plans_of, reads_history
from ...defenses.scheme import Scheme
from ...defenses.steps.clip import Clip
from ...defenses.steps.perturb import PerturbCorrelated
from ...defenses.topology import Star
from .experiment import Experiment


def any_key_words(experiment: Experiment) -> str:
    """What a plan for any key assumes, in a sentence; "" where the key decides nothing that costs."""
    if why := no_worst_draw(experiment.scheme, experiment.clients):
        return (
            f"{why[0].upper()}{why[1:]}: planned as if everybody took part in every round and every message were seen;"
            " --noise-key plans the training of one key."
        )
    if (often := for_any_key(experiment.scheme, experiment.clients)) is None:
        return ""
    if _chained(experiment.scheme):
        return "Who of those whose turn it is takes part is drawn with the key: planned for the worst turns of anybody."
    return (
        f"Who takes part is drawn with the key: planned for somebody in {often.times} of {len(often.ranks)} rounds,"
        f" with {often.size} clients a round; of 10⁹ trainings less than two come out worse."
    )


def no_worst_draw(scheme: Scheme, clients: Sequence[Sized]) -> str:
    """Why no draw of the key is known to be the worst, "" where one is (`for_any_key`).

    Args:
        scheme: of the training. clients: as many as each has records.
    """
    if not scheme.topology.central:
        return "who sends to whom is drawn with the key"
    if _known_beforehand(scheme, len(clients)):
        return ""
    if len({len(rows) for rows in clients}) > 1 and not _alike_whatever_they_hold(scheme):
        return "clients of unequal numbers of records are drawn with the key"
    if scheme.budget is not None and not (scheme.claim is not None and scheme.claim.counts == "rounds"):
        return "clients leave when their budget is spent, which hangs on who is drawn with the key"
    return ""


def _alike_whatever_they_hold(scheme: Scheme) -> bool:
    """Whether no bound, noise or weight hangs on how many records a client has: clients send clipped updates, all weigh
    the same, and only hubs add noise.
    """
    local = scheme.local
    by_step = local.per_example is not None or local.step_clip is not None
    plain = all(isinstance(step, Clip) for step in scheme.client)
    return scheme.share == "update" and plain and not by_step and not scheme.aggregate.by_records


def attended_by_all(scheme: Scheme) -> list[Scheme]:
    """Schemes in each of which nobody releases less of itself than in any draw: everybody takes part in every round and
    sends its value to a server (a leader would keep its own); and, where rounds are alike but for the epoch, as long as
    its budget lasts. Where they differ in noise, a budget that is spent in other rounds may cost more.
    """
    every = replace(scheme, participation=Everyone(), topology=Star(), budget=None)
    alike = len({(p.noise, p.lr, p.lr_by_step) for p in _least_plans(scheme)}) == 1
    if scheme.budget is not None and alike:
        return [every, replace(every, budget=scheme.budget)]
    return [every]


def _known_beforehand(scheme: Scheme, clients: int) -> bool:
    rule = scheme.participation
    return isinstance(rule, Everyone | RoundRobin) or (isinstance(rule, Separated) and rule.everybody(clients))


def for_any_key(scheme: Scheme, clients: Sequence[Sized]) -> MostOften | None:
    """Who takes part in a plan for any key, of clients that are alike; None where everybody knows it beforehand."""
    if _known_beforehand(scheme, len(clients)) or not scheme.topology.central:
        return None
    plans = _least_plans(scheme)
    times = scheme.participation.most(len(plans), len(clients))
    noises, rates = {p.noise for p in plans}, {(p.lr, p.lr_by_step) for p in plans}
    epoch = _batches_of_an_epoch(scheme, clients)
    differ = len(noises) > 1 or len(rates) > 1
    both = min(len(noises), len(rates)) > 1 or (epoch > 1 and differ)
    if _chained(scheme):
        times = len(plans)  # which rounds together are the worst hangs on how far apart they are (`planned`)
    if reads_history(scheme.schedule) or both or (scheme.budget is not None and (differ or epoch > 1)):
        times = len(plans)  # no order of the rounds is the worst for sure: a budget may end them before the worst
    # A record counts once an epoch (`accounting._one_of_each_slot`), so the worst rounds lie in as many as there are.
    order = [(p.noise / p.lr if p.lr > 0 else inf, i % epoch, i) for i, p in enumerate(plans)]
    worst_first = [i for _, _, i in sorted(order)]
    ranks = [0] * len(plans)
    for rank, round in enumerate(worst_first):
        ranks[round] = rank
    fewest = max(1, scheme.participation.fewest(len(plans), len(clients)))
    return MostOften(scheme.participation, fewest, max(times, 1), tuple(ranks))


def separation_of(rule: Participation) -> int:
    """How far apart two rounds of a client are at least, by the rule of who takes part."""
    while isinstance(rule, Dropout):
        rule = rule.inner
    if isinstance(rule, Separated):
        return rule.separation
    return 1


def _chained(scheme: Scheme) -> bool:
    """Whether the noise of a round is in other rounds too."""
    return any(isinstance(step, PerturbCorrelated) for step in scheme.server)


def _least_plans(scheme: Scheme) -> Sequence[RoundPlan]:
    if isinstance(scheme.schedule, Adaptive):
        return scheme.schedule.least()
    return plans_of(scheme.schedule)


def _batches_of_an_epoch(scheme: Scheme, clients: Sequence[Sized]) -> int:
    """The rounds in which shared gradients go through all records of a client once; 1 where rounds have no order."""
    if scheme.share != "gradient" or not clients:
        return 1
    return max(1, ceil(len(clients[0]) / scheme.local.batch_size))


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
