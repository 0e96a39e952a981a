"""Several trainings of the same people: what whoever sees them all learns."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from ...defenses.terms import Adjacency, Observer, Unit
from ..errors import BadInput
from ..results.format import Epsilon
from ..results.words import at_most, listed
from .accounting import Exposure, Price, worst_mu
from .numbers_table import EpsilonTable
from .table import ledger_of, table
from .views import Views

APART = "ε of each at an equal share of δ added"


def together(sources: Sequence[Path], **asked: Any) -> EpsilonTable:
    """The table of all of several trainings, whose people are taken for the same: rows that all of them have.

    Args:
        sources: configs or setups, at least two. asked: as of `table`, but for results and a target.

    Raises:
        BadInput: as `table` does, or where their δ differ and none was asked for.
    """
    made = [table(source, **asked) for source in sources]
    if len(deltas := {one.delta for one in made}) > 1:
        raise BadInput(f"the trainings have δ of {listed([f'{d:g}' for d in sorted(deltas)])}; give one with --delta")
    opened = [ledger_of(source, asked.get("overrides", ()), asked.get("key")) for source in sources]
    views = [Views(ledger, config.audit.honest) for ledger, config in opened]
    alone = [{(row.observer, row.unit, row.adjacency): row for row in one.rows} for one in made]
    rows = [
        _row(views, [rows[place] for rows in alone], made[0].delta)
        for place in alone[0]
        if all(place in rows for rows in alone)
    ]
    names = ", ".join(map(str, sources))
    return EpsilonTable(names, made[0].delta, tuple(rows), secret=all(one.secret for one in made))


def _row(views: Sequence[Views], alone: Sequence[Epsilon], delta: float) -> Epsilon:
    first = alone[0]
    price = joint_price(views, Observer.parse(first.observer), first.unit, first.adjacency, delta)
    each = listed([at_most(row.proven) for row in alone])
    words = f"{len(alone)} trainings of the same people, seen together; ε of each alone: {each}."
    return Epsilon(
        observer=first.observer,
        unit=first.unit,
        adjacency=first.adjacency,
        delta=delta,
        proven=price.epsilon,
        accountant=price.accountant,
        multiplier=price.multiplier,
        releases=price.releases,
        mu=price.mu,
        notes=(words, *price.reasons),
    )


def joint_price(views: Sequence[Views], observer: Observer, unit: Unit, adjacency: Adjacency, delta: float) -> Price:
    """The price of what an observer sees of all trainings, whoever in one is whoever in another.

    Where in each training everybody is as well off, they are composed as one's releases are. Elsewhere, nobody says who
    is who, so the ε of each at an equal share of δ are added.
    """
    asked: dict[str, Any] = {"unit": unit, "adjacency": adjacency}
    sights = [one.of(observer, unit, adjacency) for one in views]
    exposures = [sight[0].least(**asked, delta=delta) for sight in sights if len(sight) == 1]
    if len(exposures) == len(views) and all(len(one.histories) == 1 for one in exposures):
        return Exposure.joined(exposures).worst(**asked, delta=delta)
    share = delta / len(views)
    worst = [max((s.price(**asked, delta=share) for s in sight), key=lambda p: p.epsilon) for sight in sights]
    total = sum(price.epsilon for price in worst)
    known = worst_mu(price.mu for price in worst)
    mu = None if known is None else sum((price.mu or 0.0) ** 2 for price in worst) ** 0.5
    return Price(total, "none" if total == inf else APART, None, sum(p.releases for p in worst), mu, ())
