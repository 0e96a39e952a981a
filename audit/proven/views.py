"""What has to be priced for an observer: which releases, about whom, and what else would be enough.

Every `Sight` is something the observer may have in front of it; its ε is that of the worst. A sight has alternatives,
each of which bounds it, so the least of them counts: whatever an observer computes from what another one sees costs no
more than what that other one sees (post-processing).

uplink(L), any L of one client's uploads, needs care: the models between the uploads are not seen.

- The client's own L uploads. A clip of the whole vector holds from whatever model the training began, so it is enough
  for them. A bound on the distance from that model is not, since the model carries the client's other uploads; nor is a
  bound on single records. Then all own uploads count.
- Another client's L uploads. They began from models that the subject's data went into, and a clipped vector may turn
  around: 2C each, under either adjacency, except in the first round. Or else all of the subject's own uploads in the
  rounds before the last, of which everything later is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb, floor, inf
from typing import Any

import numpy as np

from ...defenses.terms import KINDS, Adjacency, Observer, Unit
from ..setup.counted import Counted
from ..setup.ledger import Ledger, LedgerMessage
from .accounting import Exposure, Price, sort_and_size, worst_mu

MOST_CHOICES = 500  # of uploads of one client that are priced: beyond it all of them are, in some seconds
APART = "ε of each at an equal share of δ added"


@dataclass(frozen=True, eq=False)
class Sight:
    """One view: alternatives that bound it, the observer's own first, each with who else sees that much ("" for it)."""

    alternatives: tuple[tuple[Exposure, str], ...]

    @property
    def drawn_in_secret(self) -> bool:
        return any(exposure.drawn_in_secret for exposure, _ in self.alternatives)

    @property
    def sums_noise(self) -> bool:
        """Whether noise of several senders counts together."""
        about = (r for exposure, _ in self.alternatives for _, history in exposure.histories for r in history)
        return any(sum(count for _, count in r.terms) > 1 for r in about)

    @property
    def drawn_openly(self) -> Sight:
        """The same, of somebody who knows who, and what, was drawn."""
        return Sight(tuple((exposure.drawn_openly, words) for exposure, words in self.alternatives))

    def least(self, *, unit: Unit, adjacency: Adjacency, delta: float) -> Exposure:
        """The alternative whose price is the least."""
        asked = {"unit": unit, "adjacency": adjacency, "delta": delta}
        exposures = [exposure for exposure, _ in self.alternatives]
        return min(exposures, key=lambda one: one.worst(**asked).epsilon)  # type: ignore[arg-type]

    def price(self, *, unit: Unit, adjacency: Adjacency, delta: float) -> Price:
        """The least of the alternatives' prices."""
        prices = [
            (exposure.worst(unit=unit, adjacency=adjacency, delta=delta), words)
            for exposure, words in self.alternatives
        ]
        price, words = min(prices, key=lambda one: one[0].epsilon)
        if words:
            return replace(price, reasons=(words, *price.reasons))
        return price

    def renyi(self, *, unit: Unit, adjacency: Adjacency) -> np.ndarray:
        """The least of the alternatives' Rényi divergences, at each of `accountants.ORDERS`."""
        curves = [exposure.worst_renyi(unit=unit, adjacency=adjacency) for exposure, _ in self.alternatives]
        return np.minimum.reduce(curves)

    def success_ceiling(self, kappa: float, *, unit: Unit, adjacency: Adjacency) -> float:
        """The most often that any attack can succeed where without the record it succeeds with `kappa` (`tradeoff`)."""
        return min(exposure.worst_ceiling(kappa, unit=unit, adjacency=adjacency) for exposure, _ in self.alternatives)

    def noise_scale(self, *, unit: Unit, adjacency: Adjacency, delta: float, target_epsilon: float) -> float:
        """The factor on all noise that brings the price down to the target. Raises ValueError where none does."""
        scales, errors = [], []
        for exposure, _ in self.alternatives:
            try:
                scales.append(
                    exposure.worst_noise_scale_for(
                        unit=unit, adjacency=adjacency, delta=delta, target_epsilon=target_epsilon
                    )
                )
            except ValueError as error:
                errors.append(error)
        if not scales:
            raise errors[0]
        return min(scales)


class Views:
    """The sights of every observer of one ledger, each prepared once, however many units and adjacencies are asked for.

    Args:
        ledger: what was released.
        honest: the share of all other clients, in [0, 1], that draw their own noise and tell nobody what they know. The
          others collude with every observer (`Observer.colluding`), if it has no more on its side anyway.
    """

    def __init__(self, ledger: Ledger, honest: float = 1.0) -> None:
        self.ledger = ledger
        self.honest = honest
        self._sights: dict[tuple[Observer, float], tuple[Sight, ...]] = {}
        self._exposures: dict[Observer, Exposure] = {}

    def of(self, observer: Observer, unit: Unit, adjacency: Adjacency) -> tuple[Sight, ...]:
        """All that is to be priced of an observer for the ε of this unit and adjacency."""
        turn = 1.0
        if (unit, adjacency) == ("client", "zero_out"):
            turn = 2.0
        key = (observer, 1.0 if observer.catches is None else turn)
        if key not in self._sights:
            self._sights[key] = tuple(self._prepared(observer, turn))
        return self._sights[key]

    def _prepared(self, observer: Observer, turn: float) -> Iterable[Sight]:
        ledger, coalition = self.ledger, self.coalition(observer)
        if coalition:
            observer = observer.with_models
        if (bounds := ledger.instead_of(observer)) is not None:
            subjects = ledger.subjects(observer)
            return [Sight(tuple((Exposure.of(releases, subjects, coalition), "") for releases in bounds))]
        if (
            coalition and observer.kind.party
        ):  # whoever colludes hands on its mail: all that others than the subject get
            return [
                Sight(((Exposure.of(behind(ledger, Observer("peer"), subject), [subject], coalition), ""),))
                for subject in ledger.subjects(observer)
            ]
        if observer.catches is not None:
            return _caught(ledger.caught, observer.catches, turn)
        if observer.kind.anybody and observer.name in ledger.observers:
            return [
                Sight(((Exposure.of(ledger.count(ledger.revealed(mail)), others), ""),))
                for party, mail in sorted(ledger.mail.items())
                if (others := sorted(ledger.everyone - {party}))
            ]
        views = [(observer, "")]
        if not ledger.observers:
            more = [Observer(name) for name in KINDS if name != observer.name and not KINDS[name].party]
            views += [
                (other, f"Who sees more learns no more than this: priced as for {other.words}.")
                for other in more
                if observer.sees_at_most(other)
            ]
        return [Sight(tuple((self._exposure(who, coalition), words) for who, words in views))]

    def coalition(self, observer: Observer) -> int:
        """How many clients, all but the subject at most, tell the observer what they know."""
        others = max(0, self.ledger.count_of_clients - 1)
        dishonest = others - floor(self.honest * others)
        return min(others, max(dishonest, observer.colluding))

    def _exposure(self, observer: Observer, coalition: int) -> Exposure:
        key = replace(observer.alone, colluding=coalition)
        if key not in self._exposures:
            seen, subjects = self.ledger.count(self.ledger.seen_by(observer)), self.ledger.subjects(observer)
            self._exposures[key] = Exposure.of(seen, subjects, coalition)
        return self._exposures[key]


def behind(ledger: Ledger, observer: Observer, client: int) -> list[Counted]:
    """All releases about a client that an observer may have something of, however many it catches or whoever it is."""
    if observer.catches is not None:
        seen = _history(ledger, ledger.uploads.values())
    elif observer.kind.anybody and observer.name in ledger.observers:
        seen = ledger.count(ledger.revealed(m for party, mail in ledger.mail.items() if party != client for m in mail))
    else:
        seen = ledger.count(ledger.seen_by(observer))
    return [release for release in seen if client in release.subjects]


def _caught(ledger: Ledger, limit: int, turn: float) -> Iterator[Sight]:
    """What whoever catches `limit` uploads of one client may have: the subject's own, or another one's, which can turn
    around by `turn` times their bound.
    """
    uploads = ledger.uploads
    if not uploads:  # rounds for which nobody was drawn
        yield Sight(((Exposure.of([], sorted(ledger.everyone)), ""),))
        return
    clients = sorted(uploads)
    history = _history(ledger, uploads.values())
    own = [(Exposure.of(history, clients), "")]
    alone = all(_stands_alone(r) for r in history)
    if alone and (worst := _worst_of(ledger, uploads, limit)) is not None:
        own.insert(0, (worst, ""))
    yield Sight(tuple(own))
    last = max(m.round for messages in uploads.values() for m in messages)
    first = min(m.round for messages in uploads.values() for m in messages)
    if len(clients) < 2 or first == last:
        return
    before = _history(ledger, ([m for m in messages if m.round < last] for messages in uploads.values()))
    words = "Another client's caught upload tells of the subject too, through the model it was trained from"
    others = [(Exposure.of(before, clients), f"{words}: priced as all of the subject's uploads before the last round.")]
    later = {client: [m for m in messages if m.round > first] for client, messages in uploads.items()}
    if alone and (worst := _worst_of(ledger, later, limit, turn)) is not None:
        others.insert(0, (worst, f"{words}: it can turn around, at twice its bound."))
    yield Sight(tuple(others))


def _history(ledger: Ledger, uploads: Iterable[Sequence[LedgerMessage]]) -> list[Counted]:
    return ledger.count(ledger.revealed(m for messages in uploads for m in messages))


def _stands_alone(release: Counted) -> bool:
    """Whether its bound holds from whatever model the value was trained."""
    return release.bound_of == "client" and not release.centred and release.sampling is None


def _worst_of(
    ledger: Ledger, uploads: Mapping[int, Sequence[LedgerMessage]], limit: int, turn: float = 1.0
) -> Exposure | None:
    """Any `limit` uploads of each client: every choice that may be the worst is a history of its own. None where these
    are too many.

    Each upload is counted by itself: the other batches of an epoch began from models that the subject's batch changed.
    turn: by how many times their bound they can turn around.
    """

    def of(message: LedgerMessage) -> list[Counted]:
        counted = ledger.count((ledger.releases[i] for i in message.releases), alone=True)
        return [r.turned(1.0 if r.anywhere else turn) for r in counted]

    choices: list[list[Counted]] = []
    for messages in filter(None, uploads.values()):
        alike: dict[object, list[tuple[float, list[Counted]]]] = defaultdict(list)
        for own in map(of, messages):
            sort, size = sort_and_size(own)
            alike[sort].append((size, own))
        ranked = [
            [own for _, own in sorted(some, key=lambda one: one[0], reverse=True)[:limit]] for some in alike.values()
        ]
        taken = min(limit, len(messages))
        if comb(taken + len(ranked) - 1, taken) > MOST_CHOICES:
            return None
        for choice in combinations_with_replacement(range(len(ranked)), taken):
            counts = [choice.count(i) for i in range(len(ranked))]
            if all(count <= len(some) for count, some in zip(counts, ranked)):
                choices.append([r for count, some in zip(counts, ranked) for own in some[:count] for r in own])
    return Exposure.of_choices(choices, len(uploads))


def joint_price(
    sights: Sequence[Sequence[Sight]], unit: Unit, adjacency: Adjacency, delta: float, *, numbered: bool = False
) -> Price:
    """The price of what an observer sees of all trainings, whoever in one is whoever in another.

    Where in each training everybody is as well off, or clients have the same numbers in all of them, they are composed
    as one's releases are. Elsewhere, nobody says who is who: the Rényi divergences of each one's worst off are added,
    or the ε of each at an equal share of δ, whichever proves less.

    Args:
        sights: of each training. unit, adjacency, delta: of the ε.
        numbered: a client, or whoever holds a record, has the same number in all trainings.
    """
    from ..proof.theorems.accountants import epsilon_of_renyi

    asked: dict[str, Any] = {"unit": unit, "adjacency": adjacency}
    seen = [[sight.least(**asked, delta=delta) for sight in several] for several in sights]
    alike = all(len(several) == 1 and len(several[0].histories) == 1 for several in seen)
    if alike:
        seen = [[replace(one, place={0: 0}) for one in several] for several in seen]  # anybody
    if (numbered or alike) and (together := Exposure.joined(seen)) is not None:
        return together.worst(**asked, delta=delta)
    share = delta / len(sights)
    prices = [[s.price(**asked, delta=share) for s in sight] for sight in sights]
    worst = [max(several, key=lambda p: p.epsilon) for several in prices]
    total = sum(price.epsilon for price in worst)
    mus = [worst_mu(price.mu for price in several) for several in prices]
    mu = None if None in mus else sum((each or 0.0) ** 2 for each in mus) ** 0.5
    added = sum(np.maximum.reduce([s.renyi(**asked) for s in several]) for several in sights)
    epsilon, how = min((total, "none" if total == inf else APART), (epsilon_of_renyi(added, delta), "RDP"))
    return Price(epsilon, how, None, sum(p.releases for p in worst), mu, ())
