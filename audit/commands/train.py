"""`audit train`: a federation trained, its messages captured."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import ENGINES
from .options import SEEDS, OneOf, common, on_ray
from .printing import json_document, shown_progress, workers_at


@click.command("train")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The setup folder to write.")
@click.option(
    "--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override a config value; may be repeated."
)
@click.option("--seed", type=SEEDS, help="Override the config's seed.")
@click.option(
    "--noise-key",
    metavar="FILE",
    help="Draw noise with this key (64 hex digits; `published` for one that is no secret). Default: a fresh one,"
    " kept in SETUP/auditor/noise-key.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be trained and how much it would take on disk.")
@click.option(
    "--engine",
    type=OneOf(ENGINES),
    help="batched: all clients of a round as one; looped: one by one; sliced: 100 by 100, for large cohorts. Default:"
    " batched; with --ray sliced, whose slices go to the workers.",
)
@click.option(
    "--allow-model",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Import this model of yours, from here or installed, by repeating the config's [model] name. It is called as"
    " FUNCTION(input_shape, classes, **options) and returns a torch.nn.Module.",
)
@click.option("--force", is_flag=True, help="Replace a different setup in the output folder.")
@on_ray
@common
def command(
    config: Path,
    output: Path | None,
    overrides: tuple[str, ...],
    seed: int | None,
    noise_key: str | None,
    dry_run: bool,
    engine: str | None,
    allow_model: str | None,
    force: bool,
    ray: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train the federation of CONFIG and capture its messages into a setup folder. A killed run goes on where it was.

    \b
    Example:  audit train config.toml -o setup --set scheme.sigma=0.5
    """
    progress = shown_progress(quiet)
    from ..proven.target import build
    from ..setup import capture
    from ..setup.config import CANARY, read_config
    from ..setup.folder import open_setup
    from ..setup.key import given_key
    from ..setup.remarks import ending, remarks
    from ..worlds.federation.plan import canary_settings

    if ray is not None and engine not in (None, "sliced"):
        raise click.UsageError(
            f"--ray deals slices of a cohort to workers, and --engine {engine} makes none; leave it out"
        )
    engine = engine or ("batched" if ray is None else "sliced")
    key = given_key(noise_key)
    parsed = read_config(config, [*overrides, *([f"seed={seed}"] if seed is not None else [])])
    canary_settings(parsed.attack.get(CANARY, {}))  # now, and not after a long training
    experiment = build(parsed, config.parent, allow_model)
    for remark in remarks(experiment, engine) if not quiet else ():
        progress.note(remark)
    if dry_run:
        progress.close()
        plan = capture.planned_bytes(experiment)
        click.echo(json_document(plan) if as_json else _planned(plan))
        return
    if output is None:
        raise click.UsageError("give the setup folder with -o SETUP")
    capture.train(experiment, output, key=key, force=force, engine=engine, progress=progress, workers=workers_at(ray))
    progress.close()
    ended = ending(output, experiment)
    if as_json:
        if ended is not None and not quiet:
            progress.note(ended)
        click.echo(json_document({"setup": str(output), "ended": ended, **open_setup(output).summary}))
    elif not quiet:
        if ended is not None:
            click.echo(ended)
        click.echo(str(output))


def _planned(plan: dict[str, int]) -> str:
    return (
        f"{plan['rounds']} rounds, {plan['parameters']:,} parameters; {plan['uploads']} uploads and"
        f" {plan['broadcasts']} broadcasts kept: {plan['bytes'] / 2**20:.1f} MiB, and"
        f" {plan['state_bytes'] / 2**20:.1f} MiB more while it runs"
    )
