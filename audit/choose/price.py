"""What the search itself costs, beside the setting's own ε.

A recommended setting's ε says nothing of how it was found. Where trials look at private records, each of them is a
mechanism on the same people, and whoever sees what they sent has seen all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np
import torch

from ..errors import BadInput
from ..proof.theorems.accountants import ORDERS
from ..proof.theorems.selection import selection_epsilon
from ..proven.views import Views, joint_price
from ..say import study as say
from ..say.words import number
from ..setup.config import AuditTable
from ..setup.description import with_key
from ..setup.experiment import Experiment
from ..setup.key import PUBLISHED
from ..setup.planned import planned_ledger
from .again import Again
from .case import StudyCase
from .trial import Trial


@dataclass(frozen=True)
class SearchPrice:
    """epsilon: of all trainings of the study together, for [audit]'s observer, unit, adjacency and δ; None where they
    looked at nobody's records. trainings: None where their number is not to be shown. sentences: what it says, and of
    whom.
    """

    epsilon: float | None
    trainings: int | None
    sentences: tuple[str, ...]


def search_price(case: StudyCase, trials: Sequence[Trial], tried: Sequence[Again]) -> SearchPrice:
    """The price of every training, those attacked again included.

    Args:
        case: the study. trials: of the search. tried: what was attacked again.
    """
    if case.selects:
        return selection_price(case, tried)
    trained = [t for t in trials if t.outcome is not None or t.why == "training diverged"]
    plain = sum(again.baselines for again in tried)
    count = len(trained) + sum(len(again.seeds) for again in tried) + plain
    if not count:
        return SearchPrice(None, 0, (say.NOTHING_TRAINED,))
    if case.rows == "auxiliary":
        return SearchPrice(None, count, (say.auxiliary_alone(count),))
    experiments = [with_key(case.to_train(t.point, case.config.seed), case.key_of("trial", t.number)) for t in trained]
    points = {t.number: t.point for t in trials}
    experiments += [
        with_key(case.to_train(points[again.trial], seed), case.key_of("again", again.trial, i))
        for again in tried
        for i, seed in enumerate(again.seeds)
    ]
    open_noise = case.key == PUBLISHED
    epsilon = inf if plain or open_noise else composed_epsilon(experiments)
    asked = case.config.audit
    said = say.search_seen(
        asked.observer.words, count, count - len(trained), plain, open_noise, epsilon, terms_of(asked)
    )
    if asked.unit == "client" and not dealt_alike(experiments):
        said += say.OF_NUMBERS
    if case.search == "random":
        said += say.why_no_selection(case.no_selection)
    instead = "" if case.config.data.partition == "writer" else say.ON_AUXILIARY  # of holders there are none
    return SearchPrice(epsilon, count, (said, f"{say.SCORES}{instead}."))


def terms_of(asked: AuditTable) -> str:
    return f"per {asked.unit}, {asked.adjacency}, δ = {number(asked.delta)}"


def selection_price(case: StudyCase, tried: Sequence[Again]) -> SearchPrice:
    """The price of a private selection: of the winner's model and accuracy, and of its trainings with fresh seeds,
    where nothing is shown of the other trials, nor how many there were (`proof.theorems.selection`).
    """
    asked = case.config.audit
    again = sum(len(one.seeds) for one in tried)
    curve = _worst_curve(case)
    if not curve.any():
        return SearchPrice(None, 0, (say.NOTHING_TRAINED,))
    bare = any(one.baselines for one in tried)
    if bare or case.key == PUBLISHED:
        epsilon = inf
    else:
        epsilon = selection_epsilon(curve, case.trials, again, asked.delta)
    noise = ""
    if bare:
        noise = say.SOME_BARE
    if case.key == PUBLISHED:
        noise = say.OPEN_NOISE
    said = say.selection_seen(again, noise, epsilon, terms_of(asked), case.trials)
    if asked.unit == "client" and tried:
        said += say.OF_NUMBERS
    return SearchPrice(epsilon, None, (said, say.KEEP))


def _worst_curve(case: StudyCase) -> np.ndarray:
    """The largest Rényi divergence of any candidate, whatever its key."""
    asked, worst = case.config.audit, np.zeros_like(ORDERS)
    seeds = [case.config.seed]
    if case.config.data.partition == "writer":  # each may draw other writers, with fewer records
        seeds += [case.fresh_of(i)(0) for i in range(case.seeds)]
    for point, seed in product(case.space.points(), seeds):
        try:
            experiment = case.to_train(point, seed)
        except BadInput:
            continue  # never trained, by whom it is drawn whatsoever
        limit = case.goals.epsilon_at_most
        if limit is not None and case.proven(point) > limit:
            continue
        ledger = planned_ledger(experiment, any_key=True)
        for sight in Views(ledger, asked.honest).of(asked.observer, asked.unit, asked.adjacency):
            worst = np.maximum(worst, sight.renyi(unit=asked.unit, adjacency=asked.adjacency))
    return worst


def composed_epsilon(experiments: Sequence[Experiment]) -> float:
    """The ε of all of them together, for the first one's [audit]: clients have the same numbers in all of them; records
    are with the same client only where no seed deals them anew (`views.joint_price`).
    """
    asked = experiments[0].config.audit
    unit, adjacency = asked.unit, asked.adjacency
    views = [Views(planned_ledger(experiment), asked.honest) for experiment in experiments]
    sights = [one.of(asked.observer, unit, adjacency) for one in views]
    numbered = unit == "client" or dealt_alike(experiments)
    return joint_price(sights, unit, adjacency, asked.delta, numbered=numbered).epsilon


def dealt_alike(experiments: Sequence[Experiment]) -> bool:
    """Whether each client has the same records in all of them: where all holders of a table take part, it has; where a
    seed draws the writers who do, or a setting says who holds what, it has not.
    """
    first = experiments[0]
    return all(
        one.data.description.get("sha256") == first.data.description.get("sha256")
        and len(one.clients) == len(first.clients)
        and all(map(torch.equal, one.clients, first.clients))
        for one in experiments
    )
