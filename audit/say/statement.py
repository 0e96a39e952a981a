"""What the proven ε guarantee, in plain sentences: whose data, towards whom, which two worlds, what has to hold.

It says what TensorFlow Privacy's `compute_dp_sgd_privacy_statement` says: ε by level, with and without a secret draw,
whom a level leaves out, and what is assumed; for every observer, and both adjacencies by their name here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..results.format import Epsilon
from ..results.premises import Premise
from .words import NO_SECRET, at_least, at_most, listed, number, observer, times

_LEVELS = {"client": "All data of one client (client level)", "record": "One record (example level)"}
ADJACENCIES_IN_WORDS = {
    "zero_out": "in one of the worlds {it} counts as nothing (zero_out)",
    "replace_one": "in one of the worlds another's data, of as many records, are in the place of {it} (replace_one)",
}
NOT_PRICED = "No ε was priced, so nothing is guaranteed."
NOTHING = "Whoever looks may learn everything."
NO_DRAW = "No secret draw is counted on."
NUMBER_IS_KNOWN = "How many take part is no secret in either world."
_COVERED = {
    "client": "A client's ε covers all its records together, but not those that a person has with other clients.",
    "record": "A record's ε covers that record alone: a person with several is protected less.",
}


def statement(rows: Sequence[Epsilon]) -> list[str]:
    """Paragraphs about the proven ε of rows of any observers, units and adjacencies; upper limits are rounded up.

    >>> from ...defenses.releases import GaussianLaw, declare
    >>> from ...defenses.terms import Observer
    >>> from ..proof.certificate import ProofQuestion, prove_settings, row_of
    >>> question = ProofQuestion(Observer("server"), "client", "zero_out", delta=1e-5)
    >>> proof = prove_settings(declare("", 0, GaussianLaw(5.0), 1.0, frozenset({0})), 9, 1.0, question)
    >>> print(statement([row_of(proof)])[1])
    All data of one client (client level), towards the server: ε is at most 2.45 at δ = 10⁻⁵ if in one of the worlds it
    counts as nothing (zero_out), with 9 draws of noise, each at least 5 times the sensitivity. No secret draw is
    counted on.
    """
    if not rows:
        return [NOT_PRICED]
    places: dict[tuple[str, str], list[Epsilon]] = {}
    for row in rows:
        places.setdefault((row.observer, row.unit), []).append(row)
    units = dict.fromkeys(row.unit for row in rows)
    # A draw by coins hides nobody from whoever knows how many it gave.
    counts = "" if any(map(counts_on_a_draw, rows)) else f" {NUMBER_IS_KNOWN}"
    return [
        "Take two worlds that differ in the data of one client, or in one record. Whatever is seen has in one world a"
        " probability of at most e^ε times that in the other, plus δ. The smaller ε and δ, the less it tells; ε = ∞"
        f" promises nothing.{counts}",
        *(_place(own) for own in places.values()),
        " ".join(_COVERED[unit] for unit in units),
        *holds_if(rows),
    ]


def holds_if(rows: Sequence[Epsilon]) -> list[str]:
    """What the proofs of these rows rest on, all of it; nothing where none has a finite ε."""
    named = {name for row in rows for name in row.premises}
    if not named:
        return []
    premises = [premise.value for premise in Premise if premise.label in named]
    said = f"This holds if all parties do what the scheme says; {'; '.join(premises)}."
    published = Premise.PUBLISHED_KEY.label in named
    return [said, *([f"{NO_SECRET} Against them nothing of this holds."] if published else [])]


def _place(rows: Sequence[Epsilon]) -> str:
    first = rows[0]
    limits = [_limit(row) for row in rows]
    return f"{_LEVELS[first.unit]}, towards {observer(first.observer)}: {'; '.join(limits)}. {draw_line(rows)}"


def _limit(row: Epsilon) -> str:
    worlds = ADJACENCIES_IN_WORDS[row.adjacency].format(it="it")
    if row.proven is None:
        return f"nothing was priced if {worlds}"
    if row.proven == inf:
        return f"no finite ε is proven (ε = ∞) if {worlds}"
    delta = "" if row.delta is None else f" at δ = {number(row.delta)}"
    noise = ""
    if row.releases and row.multiplier is not None and row.multiplier < inf:
        each = ""
        if row.releases > 1:
            each = "each "
        noise = f", with {times(row.releases, 'draw')} of noise, {each}at least {at_least(row.multiplier)} times the"
        noise += " sensitivity"
    return f"ε is at most {at_most(row.proven)}{delta} if {worlds}{noise}"


def draw_line(rows: Sequence[Epsilon]) -> str:
    """Whether these ε count on a draw that nobody saw, and what they are without it."""
    if not any(row.finite for row in rows):
        return NOTHING
    counting = [row for row in rows if counts_on_a_draw(row)]
    if not counting:
        return NO_DRAW
    without = listed([f"{at_most(row.proven_without_sampling)} ({row.adjacency})" for row in counting])
    return (
        "This counts on nobody knowing who, or which records, were drawn, nor how many, where each is drawn by a coin;"
        f" if any of that is known, ε is at most {without}."
    )


def counts_on_a_draw(row: Epsilon) -> bool:
    """Whether its ε is larger for whoever knows who, or what, was drawn."""
    return row.finite and row.proven_without_sampling not in (None, row.proven)
