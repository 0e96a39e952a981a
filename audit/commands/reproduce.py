"""`audit reproduce`: a published table beside what is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import SEEDS, common, on_device, on_ray
from .printing import json_document, shown_progress, workers_at


@click.command("reproduce")
@click.argument("name")
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    help="Folder of downloaded data sets (and weights, where the table needs some).",
)
@click.option("--data", help="Which data set, where the table leaves a choice.")
@click.option("--trials", type=int, help="Independent repetitions. Default: as published.")
@click.option("--quick", is_flag=True, help="Fewer shadows, trials or images; every row says so.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="A folder to keep the table and finished cells in; the same command goes on.",
)
@click.option("--seed", type=SEEDS, default=0, show_default=True)
@on_device
@on_ray
@common
def command(name: str, ray: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """A published table, NAME, beside the published numbers. `audit reproduce list` names them.

    \b
    Example:  audit reproduce geometric-table3 --data-root data --quick -o table3
    """
    from ..reproduce.tables import TABLES
    from ..reproduce.tables import reproduce as fill

    if name == "list":
        about = {known: table.about for known, table in TABLES.items()}
        if as_json:
            click.echo(json_document([{"name": known, "about": what} for known, what in about.items()]))
        for known, what in about.items() if not as_json else ():
            click.echo(f"{known}  {what}")
        return
    progress = shown_progress(quiet)
    made = fill(name, progress=progress, workers=workers_at(ray), **given)
    progress.close()
    click.echo(json_document(made.document()) if as_json else made.text)
