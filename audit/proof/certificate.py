"""A proof: what is proven, of whom, towards whom, by what, of which facts and on which premises. Made here alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, replace
from math import inf
from typing import Any

from ...defenses.releases import Facts
from ...defenses.terms import Adjacency, Observer, Unit
from ..proof.theorems.drawn import epsilon_of_drawn
from ..proven.accounting import Price, proven, worst_mu
from ..proven.views import Sight, Views, joint_price
from ..results.format import Epsilon
from ..results.premises import Premise
from ..results.seal import seal


@dataclass(frozen=True)
class ProofQuestion:
    """Without these an ε says nothing. observer: with the clients who collude with it."""

    observer: Observer
    unit: Unit
    adjacency: Adjacency
    delta: float


_MAKER = object()
PROFILE = (0.3, 0.1, 0.03, 0.01)  # δ of a row's profile, which bound attacks at few false alarms
QUICK, WORTH = "PLD", 20.0  # whose profile takes seconds, of DP-SGD; above, a guess is right nearly always anyway
HALVINGS = 7  # in search of the δ at which ε is 0: to 0.008, and so a guess at even odds to 0.4 %


@dataclass(frozen=True)
class Proven:
    """An ε that holds where its premises do, for the facts of the ledger with this digest. `prove` makes it.

    method: the accountant. price: what else is known of it.
    """

    question: ProofQuestion
    epsilon: float
    method: str
    premises: frozenset[Premise]
    ledger: str
    price: Price
    maker: InitVar[object] = field(kw_only=True)

    def __post_init__(self, maker: object) -> None:
        if maker is not _MAKER:
            raise TypeError("a proof is made by `prove`, of a ledger")


@dataclass(frozen=True)
class Unproven:
    """No finite ε can be proven. price: with the reasons."""

    question: ProofQuestion
    ledger: str
    price: Price

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.price.reasons


def prove(views: Views, question: ProofQuestion, curve: bool = True) -> Proven | Unproven:
    """The ε of the worst that the observer may have in front of it, about the subject who is worst off.

    curve: also further (δ, ε), where they bound attacks and take seconds.
    """
    sights = views.of(question.observer, question.unit, question.adjacency)
    prices = [_priced(sight, question) for sight in sights]
    mu, price = worst_mu(one.mu for one in prices), max(prices, key=lambda one: one.epsilon)
    if curve and mu is None and question.unit == "record" and price.accountant == QUICK and price.epsilon <= WORTH:
        price = replace(price, profile=tuple(_profile(sights, question)))
    return _made(question, price, mu, views.ledger.digest, _premises(views, sights))


def prove_together(views: Sequence[Views], question: ProofQuestion) -> Proven | Unproven:
    """The same of several trainings of the same people."""
    sights = _sights(views, question)
    price = joint_price(sights, question.unit, question.adjacency, question.delta)
    if _may_share_draws(views, question):
        price = replace(price, reasons=(SHARED, *price.reasons))
    premises = frozenset().union(*(_premises(one, sight) for one, sight in zip(views, sights)))
    if sum(one.ledger.declared for one in views) > 1:  # keys tell the noises of trainings by this tool apart
        premises |= {Premise.APART}
    return _made(question, price, price.mu, "+".join(one.ledger.digest for one in views), premises)


def prove_settings(release: Facts, rounds: int, seen_rate: float, question: ProofQuestion) -> Proven | Unproven:
    """The same of bare numbers: rounds of one release, in each of which a client is with this chance, openly."""
    asked: dict[str, Any] = {"unit": question.unit, "adjacency": question.adjacency, "delta": question.delta}
    price = proven([release], subject=0, times=rounds, **asked)
    mu, premises = price.mu, {Premise.DECLARED, Premise.SECRET_KEY, Premise.NOTHING_ELSE_PUBLISHED}
    if seen_rate < 1:
        assert price.multiplier is not None
        value = epsilon_of_drawn(price.multiplier, rounds, seen_rate, question.delta)
        price, mu = replace(price, epsilon=value, releases=rounds), None
        premises.add(Premise.DRAWN_AT_RANDOM)
    if release.sampling is not None:
        premises.add(Premise.SECRET_DRAW)
    return _made(question, price, mu, "numbers", frozenset(premises))


def towards_another_client(views: Views, question: ProofQuestion) -> float | None:
    """What would be proven of who hears the broadcasts towards another client of the training, who hears them too and
    knows its own draw and noise; None where that hides nothing from anybody, or is known already.
    """
    observer = question.observer
    sights = views.of(observer, question.unit, question.adjacency)
    hides = any(sight.drawn_in_secret or sight.sums_noise for sight in sights)
    if observer.name != "downlink" or not hides or views.coalition(observer) or views.ledger.count_of_clients < 2:
        return None
    joined = replace(question, observer=replace(observer, colluding=1))
    seen = views.of(joined.observer, joined.unit, joined.adjacency)
    return max(_priced(sight, joined).epsilon for sight in seen)


def without_secret_draws(views: Views, question: ProofQuestion) -> float | None:
    """What would be proven if the observer knew who, and what, was drawn; None where no draw is secret."""
    sights = views.of(question.observer, question.unit, question.adjacency)
    if not any(sight.drawn_in_secret for sight in sights):
        return None
    return max(_priced(sight.drawn_openly, question).epsilon for sight in sights)


def together_without_secret_draws(views: Sequence[Views], question: ProofQuestion) -> float | None:
    """The same of several trainings of the same people."""
    sights = _sights(views, question)
    if not any(sight.drawn_in_secret for several in sights for sight in several):
        return None
    openly = [[sight.drawn_openly for sight in several] for several in sights]
    return joint_price(openly, question.unit, question.adjacency, question.delta).epsilon


SHARED = (
    "No draw of these recordings amplifies: nobody says that those of one are not those of another, as of generators"
    " with the same seed."
)


def _may_share_draws(views: Sequence[Views], question: ProofQuestion) -> bool:
    """Whether several recordings have secret draws: keys tell those of trainings apart, and nothing those of others."""
    asked = question.observer, question.unit, question.adjacency
    return sum(one.ledger.declared and any(s.drawn_in_secret for s in one.of(*asked)) for one in views) > 1


def _sights(views: Sequence[Views], question: ProofQuestion) -> list[Sequence[Sight]]:
    sights = [one.of(question.observer, question.unit, question.adjacency) for one in views]
    if not _may_share_draws(views, question):
        return list(sights)
    return [
        [sight.drawn_openly for sight in several] if one.ledger.declared else several
        for one, several in zip(views, sights)
    ]


def row_of(proof: Proven | Unproven, **more: Any) -> Epsilon:
    """The row of a table. more: what it holds beside the proof."""
    asked, price = proof.question, proof.price
    premises = sorted(p.label for p in proof.premises) if isinstance(proof, Proven) else ()
    made = {
        "observer": str(asked.observer),
        "unit": asked.unit,
        "adjacency": asked.adjacency,
        "delta": asked.delta,
        "proven": proof.epsilon if isinstance(proof, Proven) else inf,
        "accountant": price.accountant,
        "multiplier": price.multiplier,
        "releases": price.releases,
        "mu": price.mu,
        "profile": price.profile,
        "premises": tuple(premises),
        "ledger": proof.ledger,
        **more,
    }
    return Epsilon(**made, proof=seal(made))


def _priced(sight: Sight, question: ProofQuestion) -> Price:
    return sight.price(unit=question.unit, adjacency=question.adjacency, delta=question.delta)


def _profile(sights: Sequence[Sight], question: ProofQuestion) -> Iterator[tuple[float, float]]:
    """(δ, ε) at large δ, the least at which ε is nearly 0 among them: that one bounds how often a guess at even odds is
    right, as ε at a small δ bounds an attack's rarest success.
    """

    def epsilon(delta: float) -> float:
        return max(_priced(sight, replace(question, delta=delta)).epsilon for sight in sights)

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon(middle) > 0 else (low, middle)
    for delta in sorted({*PROFILE, low, high} - {0.0, 1.0}):
        yield delta, epsilon(delta)


def _made(
    question: ProofQuestion, price: Price, mu: float | None, ledger: str, premises: frozenset[Premise]
) -> Proven | Unproven:
    price = replace(price, mu=mu)
    if price.epsilon == inf:
        return Unproven(question, ledger, price)
    premises |= _premises_of_question(question.unit, question.adjacency)
    return Proven(question, price.epsilon, price.accountant, premises, ledger, price, maker=_MAKER)


def premises_of(views: Views, observer: Observer, unit: Unit, adjacency: Adjacency) -> set[str]:
    """As rows name them."""
    premises = _premises(views, views.of(observer, unit, adjacency)) | _premises_of_question(unit, adjacency)
    return {premise.label for premise in premises}


def _premises_of_question(unit: Unit, adjacency: Adjacency) -> frozenset[Premise]:
    """Messages say of how many records they are, and so does a mean that weighs by them: no noise hides that."""
    return frozenset({Premise.COUNTS_STAY} if (unit, adjacency) == ("client", "replace_one") else ())


def _premises(views: Views, sights: Iterable[Sight]) -> frozenset[Premise]:
    ledger = views.ledger
    found = {Premise.NOTHING_ELSE_PUBLISHED, Premise.PUBLISHED_KEY if ledger.published_key else Premise.SECRET_KEY}
    if any(sight.drawn_in_secret for sight in sights):
        found.add(Premise.SECRET_DRAW)
    if any(sight.sums_noise for sight in sights):
        found.add(Premise.HONEST_SHARE)
    if ledger.columns_known:
        found.add(Premise.COLUMNS_KNOWN)
    if ledger.declared:
        found.add(Premise.DECLARED)
    if ledger.plan.any_key:
        found.add(Premise.ANY_KEY)
    return frozenset(found)
