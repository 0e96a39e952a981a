"""Gates on results, and trackers that get their numbers: of `audit run`, `mechanism` and `flower`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..options.shared import GateOptions, PrintOptions
from .printing import json_document

if TYPE_CHECKING:
    from ..ci.tracking import Tracker
    from ..results.format import Results
    from ..results.gates import Gate
    from ..worlds.outcome import OwnAudit


@dataclass(frozen=True)
class Gated:
    """What is asked of results: that no gate fails, and that their numbers are sent on. junit: a file, or None."""

    gates: tuple[Gate, ...]
    trackers: tuple[Tracker, ...]
    junit: Path | None

    @classmethod
    def of(cls, asked: GateOptions) -> Gated:
        """From what was typed; found out before a long run. Raises BadInput."""
        from ..ci.tracking import opened_trackers
        from ..results.gates import parse_gate

        return cls(tuple(map(parse_gate, asked.gates)), tuple(opened_trackers(asked.trackers)), asked.junit)

    def judge(self, results: Results, quiet: bool) -> tuple[int, list[dict[str, Any]]]:
        """The exit code by the gates, and each with what became of it; what failed is said on stderr."""
        from ..ci.junit import judge_gates

        for tracker in self.trackers:
            tracker(results)
        outcomes = judge_gates(self.gates, results, self.junit)
        for outcome in outcomes:
            if outcome.failed or not quiet:
                click.echo(outcome.sentence, err=outcome.failed)
        failed = any(outcome.failed for outcome in outcomes)
        return int(failed), [{"gate": str(gate), **vars(outcome)} for gate, outcome in zip(self.gates, outcomes)]


def say_own_audit(made: OwnAudit, output: Path | None, gated: Gated, printing: PrintOptions) -> int:
    """Says what the audit of somebody's own code found, and gives the exit code by the gates.

    Args:
        made: what was found. output: the results folder it was saved in, None for none.
        gated: what is asked of it.
        printing: whether as one document, and whether nothing is said but what failed.
    """
    results = made.results()
    silent = printing.quiet or printing.as_json
    if not silent:
        folder = [] if output is None else [str(output)]
        notes = [note for note in made.about.notes if note not in made.violated[:1]]  # which the first sentence is
        click.echo("\n".join((*made.sentences, *notes, *folder)))
    status, judged = gated.judge(results, silent)
    if printing.as_json:
        place = None if output is None else str(output)
        click.echo(json_document({"folder": place, "gates": judged, "results": results.model_dump(by_alias=True)}))
    return status
