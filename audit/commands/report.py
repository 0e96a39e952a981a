"""`audit report`: the page of results, their numbers, or a claim card."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from ..options.shared import PrintOptions
from .options import OneOf, printing
from .printing import json_document


@click.command("report")
@click.argument("results", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The page to write. Default: report.html in the (first) results folder.",
)
@click.option(
    "--format",
    "form",
    type=OneOf(["html", "json", "csv"]),
    help="Default: html. csv: one row a number, for pandas or a spreadsheet.",
)
@click.option(
    "--card",
    type=click.Path(path_type=Path),
    help="Write the claim card of one setup: card.md by NIST SP 800-226, card.yaml for OpenDP's registry.",
)
@click.option(
    "--statement",
    type=click.Path(path_type=Path),
    help="Write two pages for a board, of one setup: statement.md or statement.html.",
)
@click.option(
    "--card-from",
    type=click.Path(path_type=Path),
    help="TOML of what only the owner can state on the card or the statement.",
)
@printing
def command(
    results: tuple[Path, ...],
    output: Path | None,
    form: str | None,
    card: Path | None,
    statement: Path | None,
    card_from: Path | None,
    printing: PrintOptions,
) -> None:
    """Write the leakage report of one results folder, or of several side by side. With --card or --statement the
    page is written where -o names it. With --json and no file named the report itself is JSON; else JSON tells what
    was written.

    \b
    Example:  audit report results-a results-b -o page.html
              audit report results --card card.md --statement statement.html -o page.html
    """
    named = card is not None or statement is not None
    if card_from is not None and not named:
        raise click.UsageError("--card-from says what stands on a claim card; name its file with --card card.md")
    if named and form is not None and output is None:
        raise click.UsageError("--format is of the report; name its file with -o, or leave --format out")
    if printing.as_json and output is None and form not in (None, "json"):
        raise click.UsageError(f"--format {form} prints no JSON; give -o FILE, or leave --format out")
    from ..errors import bad_input
    from ..files import write_named
    from ..report.board import statement_text
    from ..report.card import card_text
    from ..report.render import render

    form = form or ("json" if printing.as_json and output is None else "html")
    if form == "html" and output is None and not named:
        output = results[0] / "report.html"
    texts: dict[str, tuple[Path, str]] = {}
    with bad_input(""):
        if output is not None or not named:
            text = str(render(list(results), format=cast(Any, form)))
            if output is None:
                click.echo(text)
                return
            texts["report"] = (output, text)
        if card is not None:
            texts["card"] = (card, card_text(results, card, card_from))
        if statement is not None:
            texts["statement"] = (statement, statement_text(results, statement, card_from))
        write_named([(path, text.encode()) for path, text in texts.values()])
    if printing.as_json:
        written = {kind: str(path) for kind, (path, _) in texts.items()}
        click.echo(json_document(written | ({"format": form} if "report" in texts else {})))
    elif not printing.quiet:
        click.echo("\n".join(str(path) for path, _ in texts.values()))
