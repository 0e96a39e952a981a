"""Several trainings of the same people: what whoever sees them all learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...defenses.terms import Observer
from ..errors import BadInput
from ..proof.certificate import Premise, ProofQuestion, Proven, prove_together, row_of, together_without_secret_draws
from ..results.format import Epsilon
from ..say.words import at_most, listed
from .numbers_table import EpsilonTable
from .table import ledger_of, table
from .views import Views

APART = f"Nobody checked, and ε rests on it: {Premise.APART.value}."


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
    spent, spent_delta = sum(one.spent for one in made), sum(one.spent_delta for one in made)  # each by its own search
    return EpsilonTable(names, made[0].delta, tuple(rows), spent=spent, spent_delta=spent_delta)


def _row(views: Sequence[Views], alone: Sequence[Epsilon], delta: float) -> Epsilon:
    first = alone[0]
    question = ProofQuestion(Observer.parse(first.observer), first.unit, first.adjacency, delta)
    proof = prove_together(views, question)
    each = listed([at_most(row.proven) for row in alone])
    words = f"{len(alone)} trainings of the same people, seen together; ε of each alone: {each}."
    if isinstance(proof, Proven) and Premise.APART in proof.premises:
        apart = [APART]
    else:
        apart = []
    of_each = dict.fromkeys(note for row in alone for note in row.notes if note not in proof.price.reasons)
    return row_of(
        proof,
        proven_without_sampling=together_without_secret_draws(views, question),
        notes=(words, *apart, *proof.price.reasons, *of_each),
    )
