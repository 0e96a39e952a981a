"""`audit diff`: what leaked more in one results folder than in another."""

from __future__ import annotations

from pathlib import Path

import click

from .options import common
from .printing import json_document


@click.command("diff")
@click.argument("before", metavar="RESULTS_A", type=click.Path(path_type=Path))
@click.argument("after", metavar="RESULTS_B", type=click.Path(path_type=Path))
@common
def command(before: Path, after: Path, as_json: bool, quiet: bool) -> int:
    """What leaked more in RESULTS_B than in RESULTS_A, and what the bounds did. Exit code 1: a regression beyond the
    intervals, or something that only RESULTS_A measured.

    \b
    Example:  audit diff released candidate
    """
    from ..ci.diff import compared
    from ..results.format import Results

    comparison = compared(Results.read(before), Results.read(after))
    if as_json:
        click.echo(json_document(comparison.document()))
    elif not quiet:
        click.echo(comparison.text)
    if comparison.regressions:
        return 1
    return 0
