"""Price: the ε table, and the demonstrated ε where canaries were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...defenses.progress import Progress
from ...defenses.terms import ADJACENCIES, Adjacency, Observer
from ...defenses.workers import HERE, Workers
from ..proven.rows import observers_of, setup_rows
from ..results.format import AttackResult, Epsilon
from ..results.gates import Gate, check_attacks, check_rows
from ..setup.ledger import Ledger
from ..worlds.federation.rows import demonstrate_rows
from .job import Job


@dataclass(frozen=True, eq=False)
class Priced:
    """The ε table, the canaries' entries, and what a reader must be warned of."""

    rows: tuple[Epsilon, ...] = ()
    attacks: tuple[AttackResult, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tested(self) -> bool:
        return any(row.tested for row in self.rows)


def priced(job: Job, progress: Progress | None, workers: Workers = HERE) -> Priced:
    """Claimed and proven ε, and the demonstrated one where canaries were asked for."""
    ledger, config = job.auditor.ledger, job.setup.config.audit
    if ledger is None:
        warnings = ["auditor/ is absent: ε was not priced."]
        if job.canaries is not None:
            warnings.append("No canary audit: without auditor/ there is no ε to compare it with.")
        return Priced(warnings=tuple(warnings))
    observers, adjacencies = _places(job, ledger)
    table = setup_rows(job.auditor, config.delta, observers, adjacencies=adjacencies, progress=progress)
    asked = (str(config.observer), config.unit, config.adjacency)
    about = _about(job)
    table = [
        row.having(
            asked=(row.observer, row.unit, row.adjacency) == asked,
            aside=not any(Observer.parse(row.observer).sees_at_most(observer) for observer in about),
        )
        for row in table
    ]
    if job.canaries is None:
        return Priced(tuple(table))
    filled, attacks, reasons = demonstrate_rows(
        replace(job.auditor, allow_model=job.options.allow_model),
        table,
        job.canaries,
        job.options.seed,
        progress,
        job.observers,
        workers,
    )
    return Priced(tuple(filled), tuple(attacks), tuple(reasons))


def _places(job: Job, ledger: Ledger) -> tuple[tuple[Observer, ...], tuple[Adjacency, ...]]:
    """The observers and adjacencies of the ε table, each for both units; known before anything runs."""
    config, claim = job.setup.config.audit, job.setup.claim
    wanted = {config.adjacency} | ({claim.adjacency} if claim else set())
    asked = job.observers
    if job.canaries is not None:
        wanted |= set(job.canaries.adjacencies)
        asked += tuple(map(Observer.parse, job.canaries.observers))
    return tuple(observers_of(ledger, claim, config.observer, *asked)), tuple(a for a in ADJACENCIES if a in wanted)


def _about(job: Job) -> tuple[Observer, ...]:
    """Whom the run is about: who is named by the config, by `--observer` or for canaries."""
    canaries = () if job.canaries is None else map(Observer.parse, job.canaries.observers)
    return (job.setup.config.audit.observer, *job.observers, *canaries)


def check_gates(gates: Sequence[Gate], job: Job) -> None:
    """That this run measures what is gated, said before a long run. Raises BadInput."""
    check_attacks(gates, job.names)
    if (ledger := job.auditor.ledger) is not None:
        check_rows(gates, *_places(job, ledger))
