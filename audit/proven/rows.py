"""The rows of the three-number table: claimed and proven ε by observer, unit and adjacency (a run adds the demonstrated
ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ...defenses.progress import Progress
from ...defenses.scheme import Claim
from ...defenses.terms import ADJACENCIES, UNITS, Adjacency, Observer, Unit
from ..errors import BadInput
from ..proof.certificate import ProofQuestion, prove, row_of, towards_another_client, without_secret_draws
from ..results.format import Epsilon
from ..say.words import claimant, known_to_another
from ..setup.auditor import Auditor
from ..setup.format import Declaration
from ..setup.ledger import Ledger
from ..setup.planned import priced_ledger
from ..setup.promise import promise
from .views import Views


def setup_rows(
    auditor: Auditor,
    delta: float,
    observers: Sequence[Observer] | None = None,
    units: Sequence[Unit] = UNITS,
    adjacencies: Sequence[Adjacency] = ADJACENCIES,
    progress: Progress | None = None,
) -> list[Epsilon]:
    """`rows` of a trained setup, priced by `priced_ledger`; where that is not what happened, a note says what happened
    would have cost.

    Args:
        auditor: with its ledger.
        delta, units, adjacencies, progress: as for `rows`. observers: None for `observers_of`.
    """
    recorded, ledger = auditor.ledger, priced_ledger(auditor)
    assert recorded is not None and ledger is not None
    setup = auditor.setup
    honest, claim = setup.config.audit.honest, setup.claim
    if observers is None:
        observers = observers_of(ledger, claim, setup.config.audit.observer)
    table = rows(ledger, claim, delta, observers, units, adjacencies, honest, progress)
    if said := _declared_words(auditor.declared):
        table = [row.having(notes=(*row.notes, *said)) if row.proven != inf else row for row in table]
    if ledger is recorded:
        return table
    taken = rows(recorded, None, delta, observers, units, adjacencies, honest)
    return [row.having(notes=(EX_POST.format(then.proven), *row.notes)) for row, then in zip(table, taken)]


def _declared_words(declared: Sequence[Declaration]) -> list[str]:
    """What a proof of a recorded training rests on."""
    said = []
    for status, words in (("declared", "Priced as its owner declares, and not checked"), ("checked", "Checked")):
        if found := [f"{d.said} ({d.why})" if status == "checked" else d.said for d in declared if d.status == status]:
            said.append(f"{words}: {'; '.join(found)}.")
    return said


EX_POST = (
    "What was released decided how many rounds there were, or their noise, so the worst that could come is priced; the"
    " path that was taken would cost {:.4g} (ex post: no ε, as another path could have been taken)."
)


def observers_of(ledger: Ledger, claim: Claim | None, *asked: Observer) -> tuple[Observer, ...]:
    """Whom a table is about by default: those of the federation, the claim's, and of those asked for who is in it."""
    there = [observer for observer in asked if not _absent(ledger, observer)]
    claimed = [] if claim is None else [claim.observer]
    return tuple(dict.fromkeys((*ledger.default_observers, *claimed, *there)))


def check_observers(ledger: Ledger, observers: Sequence[Observer]) -> None:
    """Raises BadInput for an observer that the federation does not have."""
    if why := next(filter(None, (_absent(ledger, observer) for observer in observers)), ""):
        raise BadInput(why)


def _absent(ledger: Ledger, observer: Observer) -> str:
    """Why an observer is not one of the federation, "" if it is."""
    if observer.colluding and observer.colluding >= ledger.count_of_clients:
        others = ledger.count_of_clients - 1
        return f"observer {str(observer)!r}: {others} clients can collude against another one, all of them at most"
    if observer.kind.party and observer.name not in ledger.observers:
        what = "a server and no such party"
        if ledger.observers:
            what = "no server, and no such party"
        return f"observer {str(observer)!r}: this federation has {what}"
    if ledger.observers and observer.needs_server:
        own = ", ".join(ledger.observers)
        return f"observer {str(observer)!r}: this federation has no server; its observers are {own} and uplink"
    return ""


def row(views: Views, question: ProofQuestion, claim: Claim | None, curve: bool = True) -> Epsilon:
    """The answer to one question, beside the claim where it is about the same. curve: see `prove`."""
    proof, ledger = prove(views, question, curve), views.ledger
    price = proof.price
    clients = 0
    if question.unit == "client":
        clients = len(ledger.participations())
    claimed, notes = None, [*promise(question.delta, clients), *price.reasons]
    if (another := towards_another_client(views, question) or 0.0) > price.epsilon:
        notes.append(known_to_another(another))
    about = question.observer, question.unit, question.adjacency
    if claim is not None and (claim.observer, claim.unit, claim.adjacency) == about:
        claimed, note = _claimed(claim, ledger, question.delta, price.epsilon)
        notes.insert(0, note)
    return row_of(
        proof,
        claimed=claimed,
        claimed_by="" if claimed is None or claim is None else claim.whose,
        proven_without_sampling=without_secret_draws(views, question),
        notes=tuple(notes),
    )


def rows(
    ledger: Ledger,
    claim: Claim | None,
    delta: float,
    observers: Sequence[Observer] | None = None,
    units: Sequence[Unit] = UNITS,
    adjacencies: Sequence[Adjacency] = ADJACENCIES,
    honest: float = 1.0,
    progress: Progress | None = None,
) -> list[Epsilon]:
    """One row per observer, unit and adjacency at `delta`, about the client who is worst off.

    Args:
        ledger: what was released. claim: whose ε stands in the row of its own observer, unit and adjacency.
        delta: in [0, 1).
        observers: None for all that the federation has by default. units, adjacencies: which rows.
        honest: the share of the other senders whose noise counts where an observer sees only sums.
        progress: called with the rows priced and in all.

    Raises:
        BadInput: nothing was released, or an observer that the federation does not have.
    """
    table = []
    if not ledger.participations() and not ledger.releases:
        raise BadInput("no client sent anything, so nothing was released and there is nothing to price")
    check_observers(ledger, observers or ())
    views = Views(ledger, honest)
    asked = observers or observers_of(ledger, claim)
    count = len(asked) * len(units) * len(adjacencies)
    for observer in asked:
        for unit in units:
            for adjacency in adjacencies:
                table.append(row(views, ProofQuestion(observer, unit, adjacency, delta), claim))
                if progress is not None:
                    progress(len(table), count, "pricing rows")
    return table


def _claimed(claim: Claim, ledger: Ledger, delta: float, proven: float) -> tuple[float | None, str]:
    """The ε claimed at δ, None where that is nothing; and a sentence that says whose it is."""
    if claim.epsilon is None:
        value = None if proven == inf else proven
        return value, f"Claimed {claimant(claim.whose)}: {claim.sentence}."
    own, rounds = max(ledger.participations().values(), default=0), len(ledger.rounds)
    if claim.counts == "rounds":
        counted, words = rounds, "rounds"
    else:
        counted, words = own, "releases of one client"
    value = claim.epsilon(counted, delta)
    if claim.whose == "owner":
        nothing = ""
        if value == inf:
            nothing = f", which says nothing at δ = {delta:g}"
        return None if value == inf else value, f"Claimed {claimant(claim.whose)}: {claim.sentence}{nothing}."
    return value, f"Claimed {claimant(claim.whose)}: {claim.sentence}; {counted} {words}."
