"""`audit run`: attacks on what a setup captured, scored and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options.attack import AttackOptions
from ..options.option import takes_options
from ..options.shared import GateOptions, PrintOptions
from .gated import Gated
from .options import gated, on_ray, printing
from .printing import json_document, shown_progress, workers_at

if TYPE_CHECKING:
    from ..results.format import Results


@click.command("run")
@click.argument("setup", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The results folder to write.")
@takes_options("options", AttackOptions)
@click.option(
    "--explain",
    is_flag=True,
    help="Also print, for every inversion, which of its methods ran and why the others did not, one clause each."
    " results.json has it anyway, as `methods`.",
)
@gated
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@on_ray
@printing
def command(
    setup: Path,
    output: Path,
    options: AttackOptions,
    gates: GateOptions,
    force: bool,
    ray: str | None,
    explain: bool,
    printing: PrintOptions,
) -> int:
    """Attack what SETUP captured, score the evidence and write results. A killed run goes on where it was.

    \b
    Example:  audit run setup -o results --fail-if 'reidentified > 0.2'
              audit run setup -o pictures --attack auto
              audit run setup -o worth --ablate
              audit run setup -o pictures --attack inversion --explain
    """
    progress = shown_progress(printing.quiet)
    from .. import run as runner
    from ..results.ablation import worth_json
    from ..results.methods import explained_methods
    from ..say.words import takes_long

    judge = Gated.of(gates)
    job = runner.opened(setup, runner.RunOptions(**vars(options)), progress)
    runner.check_gates(judge.gates, job)

    def announce(minutes: float) -> None:
        progress.plan(minutes)
        shorter = "--quick shortens the attacks"
        if job.choice is not None:
            shorter = "fewer --minutes leave out the longest attacks, --quick shortens them"
        if (long := takes_long(minutes, shorter)) and not printing.quiet:
            progress.note(long)

    results = runner.carry_out(job, output, force=force, progress=progress, announce=announce, workers=workers_at(ray))
    progress.close()
    silent = printing.quiet or printing.as_json
    if not silent:
        methods = explained_methods(results) if explain else ()
        click.echo("\n".join((*_sentences(results), *methods, str(output))))
    status, judged = judge.judge(results, silent)
    if printing.as_json:
        worth = {"worth": worth_json(results)} if results.ablated else {}
        dumped = results.model_dump(by_alias=True)
        click.echo(json_document({"folder": str(output), "gates": judged, **worth, "results": dumped}))
    return status


def _sentences(results: Results) -> tuple[str, ...]:
    """The verdict, what a piece of knowledge is worth, and what was not tried or tested."""
    from ..judge.judgement import AuditEvidence, judge
    from ..results.ablation import stronger_without, worth_lines
    from ..say.accuracy import only_ranks, useless
    from ..say.verdict import sentences
    from ..say.warnings import declared_said, doubted, not_run, not_tested, picked_said, spent_before

    lacks = (*declared_said(results.setup), *doubted(results), *not_run(results), *not_tested(results.epsilon))
    picked = dict.fromkeys(filter(None, (picked_said(attack.settings) for attack in results.attacks)))
    setup = results.setup
    model = filter(None, [useless(setup), only_ranks(setup), spent_before(setup)])
    answer = sentences(judge(AuditEvidence.of(results)))
    return (*answer, *model, *stronger_without(results), *picked, *worth_lines(results), *lacks)
