"""`audit init`: a commented config."""

from __future__ import annotations

import sys
import tomllib
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from .options import common
from .printing import json_document

if TYPE_CHECKING:
    from ..setup.template import Wanted

OBSERVERS = {
    "server": "the server, which sees every update",
    "downlink": "the other clients and whoever hears the broadcasts; the server is trusted",
    "model": "whoever gets the final model; the server and the clients are trusted",
}
UNITS = {"record": "one record, such as a patient's row", "client": "a client with all that it has"}
RECORDS = {"table": "rows of a table", "images": "pictures"}


@click.command("init")
@click.argument("scheme", required=False)
@common
def command(scheme: str | None, as_json: bool, quiet: bool) -> None:
    """Print a commented config for SCHEME. Without SCHEME three questions are asked, on a terminal, and the config
    proves ε = 8 for the answers.

    \b
    Example:  audit init ldp > config.toml
              audit init > config.toml
    """
    from ..setup.template import config_template, wanted_config

    if scheme is None and not sys.stdin.isatty():
        raise BadInput("audit init asks three questions on a terminal; elsewhere name a scheme, as in `audit init ldp`")
    template = wanted_config(_asked()) if scheme is None else config_template(scheme)
    click.echo(json_document(tomllib.loads(template)) if as_json else template, nl=as_json)


def _asked() -> Wanted:
    """Three questions, on stderr, as stdout is the config."""
    from ..setup.template import Wanted

    return Wanted(
        observer=_chosen("From whom are the data to be hidden?", OBSERVERS),
        unit=_chosen("Whose data does one ε hide?", UNITS),
        records=_chosen("What are the records?", RECORDS),
    )


def _chosen(question: str, answers: dict[str, str]) -> Any:
    """The name of one of the answers, each of which stands beside its number."""
    click.echo(question, err=True)
    for number, words in enumerate(answers.values(), 1):
        click.echo(f"  {number}  {words}", err=True)
    number = click.prompt("Number", type=click.IntRange(1, len(answers)), default=1, err=True)
    return list(answers)[number - 1]
