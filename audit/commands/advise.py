"""`audit advise`: what the paper behind a scheme would choose."""

from __future__ import annotations

from pathlib import Path

import click

from .options import common
from .printing import json_document


@click.command("advise")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override a config value, e.g. theory.smoothness=2.",
)
@common
def command(config: Path, overrides: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """What the paper's own analysis would choose for CONFIG's scheme, and which of its assumptions do not hold.

    \b
    Example:  audit advise config.toml --set theory.smoothness=2
    """
    from ..theory.recommend import advice_document, advice_text, recommendations

    advised = recommendations(config, overrides)
    click.echo(json_document(advice_document(advised)) if as_json else advice_text(advised))
