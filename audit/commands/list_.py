"""`audit list`: what there is to choose from."""

from __future__ import annotations

import shutil
import sys

import click

from .options import OneOf, common
from .printing import json_document


@click.command("list")
@click.argument(
    "what",
    type=OneOf(["schemes", "attacks", "metrics", "datasets", "models", "observers"]),
    metavar="schemes|attacks|metrics|datasets|models|observers",
)
@common
def command(what: str, as_json: bool, quiet: bool) -> None:
    """List what there is to choose from.

    \b
    Example:  audit list schemes
    """
    from ..catalogue import catalogue, text

    entries = catalogue(what)
    if as_json:
        click.echo(json_document(entries))
        return
    click.echo(text(entries, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
