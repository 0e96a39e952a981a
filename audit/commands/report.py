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
    type=OneOf(["html", "json", "csv", "md"]),
    help="Default: html. csv: one row a number, for pandas or a spreadsheet.",
)
@click.option(
    "--card",
    type=click.Path(path_type=Path),
    help="Write the claim card of one setup instead: card.md by NIST SP 800-226, card.yaml for OpenDP's registry.",
)
@click.option(
    "--statement",
    type=click.Path(path_type=Path),
    help="Write two pages for a board instead, of one setup: statement.md or statement.html.",
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
    """Write the leakage report of one results folder, or of several side by side. With --json and without -o the
    report itself is JSON; with -o or --card, what was written is told in JSON.

    \b
    Example:  audit report results-a results-b -o page.html
              audit report results --card card.md
              audit report results --statement statement.html
    """
    if card is not None or statement is not None:
        if output is not None or form is not None or None not in (card, statement):
            raise click.UsageError(
                "--card and --statement write in the page's place; give one of them, leave -o and --format out"
            )
        _write_instead(results, card, statement, card_from, printing)
        return
    if card_from is not None:
        raise click.UsageError("--card-from says what stands on a claim card; name its file with --card card.md")
    from ..errors import bad_input
    from ..report.render import render

    if printing.as_json and output is None and form not in (None, "json"):
        raise click.UsageError(f"--format {form} prints no JSON; give -o FILE, or leave --format out")
    form = form or ("json" if printing.as_json and output is None else "html")
    if form == "html" and output is None:
        output = results[0] / "report.html"
    with bad_input(""):
        made = render(list(results), output, cast(Any, form))
    if output is not None and printing.as_json:
        click.echo(json_document({"report": str(made), "format": form}))
    elif not printing.quiet or output is None:
        click.echo(str(made))


def _write_instead(
    results: tuple[Path, ...], card: Path | None, statement: Path | None, owner: Path | None, printing: PrintOptions
) -> None:
    """The claim card or the statement."""
    from ..errors import bad_input
    from ..report.board import write_statement
    from ..report.card import write_card

    with bad_input(""):
        if card is not None:
            kind, written = "card", write_card(results, card, owner)
        else:
            assert statement is not None
            kind, written = "statement", write_statement(results, statement, owner)
    if printing.as_json:
        click.echo(json_document({kind: str(written)}))
    elif not printing.quiet:
        click.echo(str(written))
