"""What a proof says of an attack before it is tried: the most often that any attack could succeed.

A run that does a little better is no contradiction: `results.verdict.beyond_proof` says which is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from ...defenses.terms import ADJACENCIES, Adjacency, Observer
from ..proof.theorems.pictures import blind_chance
from ..proven.views import Views
from ..setup.ledger import Ledger

STEPS = 64  # of the area under a curve


class Limits:
    """Limits for the attacks on one setup.

    Args:
        ledger: what was released. honest: as of `Views`.
    """

    def __init__(self, ledger: Ledger, honest: float) -> None:
        self.ledger = ledger
        self.honest = honest
        self._views: dict[tuple[int, bool], Views] = {}

    def rebuilt(self, observer: Observer, last_round: int, chances: Sequence[float]) -> float:
        """The mean over records of how often any attack can pick the record out of its own pool.

        It is about records that were in the batches behind the attacked messages, so no secret draw of them counts.

        Args:
            observer: who attacks, with what it has seen up to `last_round`.
            chances: for each record how often outputs made without it would succeed.
        """
        views = self._until(last_round, all_drawn=True)
        known = {kappa: min(_ceiling(views, observer, a, kappa) for a in ADJACENCIES) for kappa in set(chances)}
        return fsum(known[kappa] for kappa in chances) / len(chances)

    def closeness(self, observer: Observer, last_round: int, success: float) -> float:
        """ln of the largest chance of blind success with which no attack succeeds more often than `success`; −∞ where
        nothing is proven. Records and observer are as of `rebuilt`.
        """
        views = self._until(last_round, all_drawn=True)
        return blind_chance(lambda kappa: min(_ceiling(views, observer, a, kappa) for a in ADJACENCIES), success)

    def member(self, observer: Observer, false_alarms: int, non_members: int, strata: int = 1) -> float:
        """The largest expected TPR of a test that calls everybody a member who scores above all but `false_alarms` of
        the non-members.

        Members and non-members of a stratum y, a class judged by one client, were dealt by lot and are in the same
        proportions, n_y of n. Had a member traded places with a non-member of its stratum (replace_one), which no label
        tells, it would score above the threshold with probability (fp_y + 1)/(n_y + 1) at most: over all members
        Σ (n_y/n)(fp_y + 1)/(n_y + 1), less than (false_alarms + strata)/n; n counts one less, as proportions are whole
        numbers.
        """
        kappa = min(1.0, (false_alarms + strata) / max(1, non_members - 1))
        return _ceiling(self._until(self.ledger.last_round), observer, "replace_one", kappa)

    def area(self, observer: Observer, non_members: int, strata: int = 1) -> float:
        """The largest expected AUC of any attack, members and non-members as of `member`: the mean TPR above all but 0,
        1, … of the non-members, a coin breaking ties. Of many, `STEPS` of these stand for those below them.
        """
        ends = sorted({-(-non_members * k // STEPS) for k in range(1, STEPS + 1)})
        most = [self.member(observer, end - 1, non_members, strata) for end in ends]
        return fsum(tpr * (end - start) for tpr, start, end in zip(most, [0, *ends], ends)) / non_members

    def advantage(self, observer: Observer) -> float:
        """The largest expected attribute advantage: how much more often any attack guesses a value right of members
        than of others.

        Whoever calls those members whose value is guessed right has a test of membership with TPR f(κ) at FPR κ, the
        shares guessed right; so the advantage is TPR − FPR (Yeom et al. 2018, arXiv:1709.01604), with (ε, δ)
        at most (e^ε − 1 + 2δ)/(e^ε + 1). Members and others were dealt by lot, as of `member`, and had they traded
        places (replace_one), κ would be no other. The largest f(κ) − κ is not above that of `STEPS` steps.
        """
        views = self._until(self.ledger.last_round)
        most = [_ceiling(views, observer, "replace_one", step / STEPS) for step in range(1, STEPS + 1)]
        return min(1.0, max(tpr - step / STEPS for step, tpr in enumerate(most)))

    def _until(self, last_round: int, all_drawn: bool = False) -> Views:
        """What there is to see up to a round; all_drawn: by whoever knows who was drawn."""
        key = (last_round, all_drawn)
        if key not in self._views:
            messages = {i: m for i, m in self.ledger.messages.items() if m.round <= last_round}
            plan = replace(self.ledger.plan, drawn_openly=all_drawn)
            self._views[key] = Views(replace(self.ledger, messages=messages, plan=plan), self.honest)
        return self._views[key]


def _ceiling(views: Views, observer: Observer, adjacency: Adjacency, kappa: float) -> float:
    sights = views.of(observer, "record", adjacency)
    return max(sight.success_ceiling(kappa, unit="record", adjacency=adjacency) for sight in sights)
