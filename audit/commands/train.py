"""`audit train`: a federation trained, its messages captured."""

from __future__ import annotations

from pathlib import Path

import click

from ..options.choices import EngineName
from ..options.option import takes_options
from ..options.shared import PrintOptions
from ..options.train import TrainOptions
from .options import on_ray, printing
from .printing import json_document, shown_progress, workers_at


@click.command("train")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The setup folder to write.")
@takes_options("options", TrainOptions)
@click.option("--dry-run", is_flag=True, help="Only say what would be trained and how much it would take on disk.")
@on_ray
@printing
def command(
    config: Path, output: Path | None, options: TrainOptions, dry_run: bool, ray: str | None, printing: PrintOptions
) -> None:
    """Train the federation of CONFIG and capture its messages into a setup folder. A killed run goes on where it was.

    \b
    Example:  audit train config.toml -o setup --set scheme.sigma=0.5
    """
    progress = shown_progress(printing.quiet)
    from ..api import experiment_of, seeded
    from ..setup import capture
    from ..setup.config import read_config
    from ..setup.folder import open_setup
    from ..setup.key import given_key
    from ..setup.remarks import ending, remarks

    engine = _engine(options, ray)
    key = given_key(None if options.noise_key is None else str(options.noise_key))
    experiment = experiment_of(read_config(config, seeded(options)), config.parent, options.allow_model)
    for remark in remarks(experiment, engine) if not printing.quiet else ():
        progress.note(remark)
    if dry_run:
        progress.close()
        plan = capture.planned_bytes(experiment)
        click.echo(json_document(plan) if printing.as_json else _planned(plan))
        return
    if output is None:
        raise click.UsageError("give the setup folder with -o SETUP")
    progress.plan(capture.planned_minutes(experiment))
    workers = workers_at(ray)
    capture.train(experiment, output, key=key, force=options.force, engine=engine, progress=progress, workers=workers)
    progress.close()
    ended = ending(output, experiment)
    if printing.as_json:
        if ended is not None and not printing.quiet:
            progress.note(ended)
        click.echo(json_document({"setup": str(output), "ended": ended, **open_setup(output).summary}))
    elif not printing.quiet:
        if ended is not None:
            click.echo(ended)
        click.echo(str(output))


def _engine(options: TrainOptions, ray: str | None) -> EngineName:
    if ray is None:
        return options.engine or "batched"
    if options.engine not in (None, "sliced"):
        raise click.UsageError(
            f"--ray deals slices of a cohort to workers, and --engine {options.engine} makes none; leave it out"
        )
    return "sliced"


def _planned(plan: dict[str, int]) -> str:
    return (
        f"{plan['rounds']} rounds, {plan['parameters']:,} parameters; {plan['uploads']} uploads and"
        f" {plan['broadcasts']} broadcasts kept: {plan['bytes'] / 2**20:.1f} MiB, and"
        f" {plan['state_bytes'] / 2**20:.1f} MiB more while it runs"
    )
