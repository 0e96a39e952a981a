"""Which row of the ε table an answer is about. Every choice of a row is made here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...defenses.terms import Adjacency, Unit
from ..results.checks import observers_aside
from ..results.format import AttackResult, Epsilon


@dataclass(frozen=True)
class RowQuestion:
    """Whose loss is asked about. An ε means nothing without observer, unit, adjacency and δ."""

    observer: str
    unit: Unit
    adjacency: Adjacency
    delta: float | None

    @classmethod
    def about(cls, row: Epsilon) -> RowQuestion:
        """The question that a row answers."""
        return cls(row.observer, row.unit, row.adjacency, row.delta)

    @classmethod
    def asked(cls, rows: Iterable[Epsilon]) -> RowQuestion | None:
        """The question that the config asks ([audit]), by the row that is marked; None where none is."""
        return next((cls.about(row) for row in rows if row.asked), None)


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """The rows that count.

    quoted: the one that a short text quotes: a refuted one, else `asked`, else a claim about an attacked observer, else
      the bounding one of which least is proven. None without rows.
    asked: the one that the question is about; None where nobody asks. answer: that one, else `quoted`.
    by_observer: the row that bounds the attacks on each observer (`bounding_rows`).
    bounding: what a proof must cover: these, and every row that a config asks about. Attacks after records, or on an
      observer who sees less, do not answer for clients, or for the server.
    """

    quoted: Epsilon | None
    asked: Epsilon | None
    answer: Epsilon | None
    by_observer: Mapping[str, Epsilon | None]
    bounding: tuple[Epsilon, ...]

    @classmethod
    def of(
        cls,
        question: RowQuestion | None,
        attacks: Sequence[AttackResult],
        epsilon: Sequence[Epsilon],
        refuted: Sequence[Epsilon],
    ) -> ChosenRows:
        """refuted: rows whose claim or proof is refuted, the gravest first."""
        aside = observers_aside(epsilon)
        attacked = [attack.observer for attack in attacks if attack.scored and attack.observer not in aside]
        by_observer = bounding_rows(attacked or [row.observer for row in epsilon if not row.aside], epsilon)
        asked = [row for row in epsilon if row.asked or RowQuestion.about(row) == question]
        bounding = list({id(row): row for row in (*by_observer.values(), *asked) if row is not None}.values())
        claimed = [row for row in epsilon if row.claimed is not None and row.observer in by_observer]
        by_proof = sorted(bounding, key=lambda row: row.proven or 0.0, reverse=True)
        gravest = [row for row in refuted if not row.aside]
        quoted = next(iter([*gravest, *asked, *claimed, *by_proof, *epsilon]), None)
        first = next(iter(asked), None)
        return cls(quoted, first, first or quoted, by_observer, tuple(bounding))

    @property
    def observers(self) -> frozenset[str]:
        """Who was attacked, or whom a proof is wanted for."""
        return frozenset(self.by_observer) | {row.observer for row in self.bounding}


def bounding_rows(observers: Iterable[str], epsilon: Sequence[Epsilon]) -> dict[str, Epsilon | None]:
    """For each observer the row that bounds attacks; None for an observer without a row.

    Attacks are after single records, so it is the row of unit record where there is one, with `zero_out`: in the
    training data or not. Of several such rows (several δ) it is the one with the largest proven ε.
    """

    def order(row: Epsilon) -> tuple[bool, bool, bool, float]:
        return row.unit != "record", row.adjacency != "zero_out", row.proven is not None, -(row.proven or 0.0)

    return {
        observer: min((row for row in epsilon if row.observer == observer), key=order, default=None)
        for observer in dict.fromkeys(observers)
    }
