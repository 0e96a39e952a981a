"""`audit choose`: noise and clipping, chosen."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.option import takes_options
from ..options.shared import PrintOptions
from ..options.study import ChooseOptions
from .options import on_ray, printing
from .printing import json_document, shown_progress, workers_at


@click.command("choose")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The study folder to write.")
@takes_options("options", ChooseOptions)
@on_ray
@printing
def command(config: Path, output: Path, options: ChooseOptions, ray: str | None, printing: PrintOptions) -> int:
    """Choose the noise and clipping of CONFIG: train, attack and price many settings, and attack the best one again. A
    killed study goes on where it was. Exit code 1: no setting keeps what is asked.

    \b
    Example:  audit choose config.toml -o study --vary scheme.sigma=1e-2..10 --vary scheme.clip=0.1,1
              audit choose config.toml -o other --vary scheme.noise_multiplier=.01..10 --accuracy-at-least .7
    """
    progress = shown_progress(printing.quiet)
    from ..choose.carry_out import carry_out_study
    from ..choose.opening import options_of_study
    from ..choose.outputs import document

    remark = None if printing.quiet else progress.note
    asked, force = options_of_study(options, options.vary), options.force
    workers = workers_at(ray)
    study = carry_out_study(config, output, asked, force=force, progress=progress, workers=workers, remark=remark)
    progress.close()
    if printing.as_json:
        click.echo(json_document({"study": str(output), **document(study)}))
    elif not printing.quiet:
        warned = filter(None, [study.above, study.useless, study.ranks, study.tied, study.weaker])
        click.echo("\n".join((study.sentence, *warned, *study.price.sentences, str(output / "study.html"))))
    elif study.chosen is None:
        click.echo(study.sentence, err=True)
    if study.chosen is not None:
        return 0
    return 1
