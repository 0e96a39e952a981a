"""`audit init`: a commented config."""

from __future__ import annotations

import tomllib

import click

from .options import common
from .printing import json_document


@click.command("init")
@click.argument("scheme", default="ldp")
@common
def command(scheme: str, as_json: bool, quiet: bool) -> None:
    """Print a commented config for SCHEME.

    \b
    Example:  audit init ldp > config.toml
    """
    from ..setup.template import config_template

    template = config_template(scheme)
    click.echo(json_document(tomllib.loads(template)) if as_json else template, nl=as_json)
