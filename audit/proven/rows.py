"""The rows of the three-number table: claimed and proven ε by observer, unit and adjacency (a run adds the demonstrated
ones).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...defenses.scheme import Claim
from ...defenses.terms import ADJACENCIES, UNITS, Adjacency, Observer, Unit
from ..errors import BadInput
from ..results.format import Epsilon
from ..setup.auditor import Auditor
from ..setup.ledger import Ledger
from ..setup.planned import priced_ledger
from .views import Views


def setup_rows(
    auditor: Auditor,
    delta: float,
    observers: Sequence[Observer] | None = None,
    units: Sequence[Unit] = UNITS,
    adjacencies: Sequence[Adjacency] = ADJACENCIES,
) -> list[Epsilon]:
    """`rows` of a trained setup, priced by `priced_ledger`; where that is not what happened, a note says what happened
    would have cost.

    Args:
        auditor: with its ledger.
        delta, observers, units, adjacencies: as for `rows`.
    """
    recorded, ledger = auditor.ledger, priced_ledger(auditor)
    assert recorded is not None and ledger is not None
    honest = auditor.setup.config.audit.honest
    table = rows(ledger, auditor.setup.scheme.claim, delta, observers, units, adjacencies, honest)
    if ledger is recorded:
        return table
    taken = rows(recorded, None, delta, observers, units, adjacencies, honest)
    return [row.having(notes=(EX_POST.format(then.proven), *row.notes)) for row, then in zip(table, taken)]


EX_POST = (
    "What was released decided how many rounds there were, or their noise, so the worst that could come is priced; the"
    " path that was taken would cost {:.4g} (ex post: no ε, as another path could have been taken)."
)


def rows(
    ledger: Ledger,
    claim: Claim | None,
    delta: float,
    observers: Sequence[Observer] | None = None,
    units: Sequence[Unit] = UNITS,
    adjacencies: Sequence[Adjacency] = ADJACENCIES,
    honest: float = 1.0,
) -> list[Epsilon]:
    """One row per observer, unit and adjacency at `delta`, about the client who is worst off.

    Args:
        ledger: what was released. claim: whose ε stands in the row of its own observer, unit and adjacency.
        delta: in [0, 1).
        observers: None for all that the federation has by default. units, adjacencies: which rows.
        honest: the share of the other senders whose noise counts where an observer sees only sums.

    Raises:
        BadInput: nothing was released, or an observer that the federation does not have.
    """
    table = []
    if not ledger.participations():
        raise BadInput("no client sent anything, so nothing was released and there is nothing to price")
    missing = [o for o in observers or () if o.kind.party and o.name not in ledger.observers]
    if missing:
        what = "no server, and no such party" if ledger.observers else "a server and no such party"
        raise BadInput(f"observer {str(missing[0])!r}: this federation has {what}")
    absent = [o for o in observers or () if ledger.observers and o.needs_server]
    if absent:
        raise BadInput(
            f"observer {str(absent[0])!r}: this federation has no server; its observers are"
            f" {', '.join(ledger.observers)} and uplink"
        )
    views = Views(ledger, honest)
    own, rounds = max(ledger.participations().values(), default=0), len(ledger.rounds)
    for observer in observers or ledger.default_observers:
        for unit in units:
            for adjacency in adjacencies:
                sights = views.of(observer, unit, adjacency)
                prices = [sight.price(unit=unit, adjacency=adjacency, delta=delta) for sight in sights]
                price = max(prices, key=lambda p: p.epsilon)
                claimed, notes = None, list(price.reasons)
                if claim is not None and (claim.observer, claim.unit, claim.adjacency) == (observer, unit, adjacency):
                    counted, words = (rounds, "rounds") if claim.counts == "rounds" else (own, "releases of one client")
                    claimed = claim.epsilon(counted, delta)
                    notes.insert(0, f"Claimed: {claim.sentence}; {counted} {words}.")
                table.append(
                    Epsilon(
                        observer=str(observer),
                        unit=unit,
                        adjacency=adjacency,
                        delta=delta,
                        claimed=claimed,
                        proven=price.epsilon,
                        accountant=price.accountant,
                        multiplier=price.multiplier,
                        releases=price.releases,
                        notes=tuple(notes),
                    )
                )
    return table
