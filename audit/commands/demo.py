"""`audit demo`: the whole way on digits that scikit-learn brings, or on invented notes."""

from __future__ import annotations

from pathlib import Path

import click

from .options import common
from .printing import json_document, shown_progress


@click.command("demo")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("audit-demo"), show_default=True)
@click.option("--quick", is_flag=True, help="Fewer people and shorter attacks; the report says so.")
@click.option("--text", is_flag=True, help="Invented notes in place of digits: bare, and as recommended.")
@common
def command(output: Path, quick: bool, text: bool, as_json: bool, quiet: bool) -> None:
    """One training three times, attacked each time: bare, with a published scheme's claim, and as recommended. No GPU
    and no network.

    \b
    Example:  audit demo -o audit-demo
              audit demo --text -o text-demo
    """
    progress = shown_progress(quiet)
    from .. import demo as demonstration

    made = demonstration.demo(output, quick=quick, text=text, progress=progress)
    progress.close()
    results = [str(folder.resolve() / "results") for folder in demonstration.folders(output, text)]
    page = str(made.page.resolve())
    if as_json:
        click.echo(json_document({"report": page, "results": results, "answers": list(made.answers)}))
    elif quiet:
        click.echo(page)
    else:
        click.echo("\n".join((*made.answers, page)))
