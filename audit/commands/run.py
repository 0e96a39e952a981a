"""`audit run`: attacks on what a setup captured, scored and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .gated import Gated
from .options import SEEDS, common, gates_too, on_device, on_ray
from .printing import json_document, shown_progress, workers_at

if TYPE_CHECKING:
    from ..results.format import Results


@click.command("run")
@click.argument("setup", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The results folder to write.")
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    help="An attack (`audit list attacks`); may be repeated. auto: an inversion by the preset that suits what the"
    " observer is told. Default: every one that applies, within --minutes.",
)
@click.option(
    "--minutes",
    type=float,
    help="Without --attack: run the attacks that apply, the cheapest first, canaries too, as far as this goes; of an"
    " inversion that is too long as many messages as fit. Counted from shapes, for two cores, and never by a clock: the"
    " same command runs the same attacks everywhere. Default: 60,"
    " without canaries.",
)
@click.option(
    "--observer", "observers", multiple=True, help="Who attacks (`audit list observers`). Default: the config's."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="ATTACK.KEY=VALUE",
    help="Override an attack's setting, e.g. inversion.iterations=1000.",
)
@click.option(
    "--ablate",
    is_flag=True,
    help="Also run the inversion without each piece of what it knows (labels, noise, clip, local training,"
    " normalisation statistics), one at a time: what each is worth to the attacker. No verdict or gate is on these.",
)
@click.option("--seed", type=SEEDS, default=0, show_default=True)
@on_device
@click.option("--lpips-weights", type=click.Path(path_type=Path), help="File or folder of LPIPS backbone weights.")
@gates_too
@click.option(
    "--allow-model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Import this model of yours, from here or installed, by repeating the setup's [model] name. It is called as"
    " FUNCTION(input_shape, classes, **options) and returns a torch.nn.Module.",
)
@click.option("--quick", is_flag=True, help="A third of the iterations and one message; the report says so.")
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@on_ray
@common
def command(
    setup: Path,
    output: Path,
    gates: tuple[str, ...],
    junit: Path | None,
    trackers: tuple[str, ...],
    force: bool,
    ray: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Attack what SETUP captured, score the evidence and write results. A killed run goes on where it was.

    \b
    Example:  audit run setup -o results --fail-if 'reidentified > 0.2'
              audit run setup -o pictures --attack auto
              audit run setup -o worth --ablate
    """
    progress = shown_progress(quiet)
    from .. import run as runner
    from ..results.ablation import worth_json

    gated = Gated.of(gates, trackers, junit)
    job = runner.opened(setup, runner.RunOptions(**given))
    runner.check_gates(gated.gates, job)
    results = runner.carry_out(job, output, force=force, progress=progress, workers=workers_at(ray))
    progress.close()
    if not (quiet or as_json):
        click.echo("\n".join((*_sentences(results), str(output))))
    status, judged = gated.judge(results, quiet or as_json)
    if as_json:
        worth = {"worth": worth_json(results)} if results.ablated else {}
        dumped = results.model_dump(by_alias=True)
        click.echo(json_document({"folder": str(output), "gates": judged, **worth, "results": dumped}))
    return status


def _sentences(results: Results) -> tuple[str, ...]:
    """The verdict, what a piece of knowledge is worth, and what was not tried or tested."""
    from ..results.ablation import stronger_without, worth_lines
    from ..say.accuracy import useless
    from ..say.warnings import declared_said, doubted, not_run, not_tested, picked_said

    lacks = (*declared_said(results.setup), *doubted(results), *not_run(results), *not_tested(results.epsilon))
    picked = dict.fromkeys(filter(None, (picked_said(attack.settings) for attack in results.attacks)))
    model = filter(None, [useless(results.setup)])
    return (*results.verdict.sentences, *model, *stronger_without(results), *picked, *worth_lines(results), *lacks)
