"""`audit init`: a commented config."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...defenses.nearest import instead
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
SHOWN = 6  # holders that are listed
SEED = 0  # of the config that is written, whose lot decides which rows train
CAPTURED = 12  # holders: more messages than theirs no run of ten minutes attacks
FILES = {"table": "Your table, a file", "images": "Your pictures, a folder with a folder for every class"}


@click.command("init")
@click.argument("scheme", required=False)
@common
def command(scheme: str | None, as_json: bool, quiet: bool) -> None:
    """Print a commented config for SCHEME. Without SCHEME questions are asked on a terminal: what is to be hidden from
    whom, and what the records are and where; the config proves ε = 8 for the answers.

    \b
    Example:  audit init ldp > config.toml
              audit init > config.toml
    """
    if scheme is None and not sys.stdin.isatty():
        raise BadInput("audit init asks its questions on a terminal; elsewhere name a scheme, as in `audit init ldp`")
    from ..setup.template import config_template, wanted_config

    try:
        if scheme is None:
            template = wanted_config(_asked())
        else:
            template = config_template(scheme)
    except click.Abort:
        click.echo("\nInterrupted; no config was written.", err=True)
        raise click.exceptions.Exit(130) from None
    click.echo(json_document(tomllib.loads(template)) if as_json else template, nl=as_json)


def _asked() -> Wanted:
    """From whom, about whom, which records, and what is to be known of these; on stderr, as stdout is the config."""
    from ..setup.template import Wanted

    observer = _chosen("From whom are the data to be hidden?", OBSERVERS)
    unit = _chosen("Whose data does one ε hide?", UNITS)
    records = _chosen("What are the records?", RECORDS)
    root, columns = _records(records)
    wanted = Wanted(observer, unit, records, root=root)
    if columns:
        click.echo(f"Columns: {', '.join(columns)}", err=True)
        target = _target(columns)
        holder = _holder({name: cells for name, cells in columns.items() if name != target})
        drop = _too_many_words({name: cells for name, cells in columns.items() if name not in (target, holder)})
        wanted = replace(wanted, target=target, holder=holder, drop=drop)
    if wanted.holder:
        rows = Counter(columns[wanted.holder])
        return replace(wanted, clients=len(rows), captured=_fewest(rows))
    clients = click.prompt("How many clients train together?", type=click.IntRange(1), default=3, err=True)
    return replace(wanted, clients=clients)


def _fewest(rows: Counter[str]) -> tuple[int, ...]:
    """The numbers, by their names' order, of the holders who have fewest rows: ε per record is largest there."""
    numbers = sorted(range(len(rows)), key=[rows[name] for name in sorted(rows)].__getitem__)
    return tuple(sorted(numbers[:CAPTURED]))


def _target(columns: Mapping[str, list[str]]) -> str:
    """The column that is predicted; asked again for one of a single value."""
    while len({*columns[name := _column("Which column is predicted?", columns)]} - {""}) < 2:
        click.echo(f"{name!r} has the same value in every row: there is nothing to predict.", err=True)
    return name


def _holder(columns: Mapping[str, list[str]]) -> str:
    """The column that says whose a row is, "" where none does; asked again where a holder has no row that trains."""
    from ...defenses.data.csv_table import deal_of
    from ...defenses.randomness import stream
    from ..setup.experiment import idle_holders

    question = "Which column says whose row it is, such as hospital? (Enter: none; rows are dealt evenly)"
    while name := _column(question, columns, default=""):
        cells, rows = columns[name], Counter(columns[name])
        training = deal_of(len(cells), stream(SEED, "data")).train
        listed = ", ".join(f"{holder} {count}" for holder, count in rows.most_common(SHOWN))
        click.echo(f"{len(rows)} holders, by rows: {listed}{', …' if len(rows) > SHOWN else ''}", err=True)
        if "" in rows or len(rows) == 1:
            if len(rows) == 1:
                lack = "has one holder alone"
            else:
                lack = f"is empty in {rows['']} rows"
            click.echo(f"{name!r} {lack}; every row needs one of two holders or more.", err=True)
        elif idle := idle_holders(rows, (cells[row] for row in training)):
            click.echo(f"In {name!r} {idle}; join small holders in the file, or take another column.", err=True)
        else:
            return name
    return ""


def _too_many_words(columns: Mapping[str, list[str]]) -> tuple[str, ...]:
    """The columns of more words than become columns, such as a person's number; left out, which is told."""
    import pandas as pd

    from ...defenses.data.cells import Said, read_column
    from ...defenses.data.csv_table import CATEGORIES

    dropped = []
    for name, cells in columns.items():
        words = Counter(cell for cell in cells if cell)
        try:
            numbers = read_column(pd.Series(cells, name=name), Said()).number
        except ValueError:  # of several units
            numbers = False
        if numbers or len(words) <= CATEGORIES:
            continue
        dropped.append(name)
        several = sum(count > 1 for count in words.values())
        shared = ""
        if several:
            shared = f" If it names people, {several} have several rows, and ε per record is of one row."
        click.echo(f"{name!r} has {len(words)} different words and is left out.{shared}", err=True)
    return tuple(dropped)


def _records(kind: str) -> tuple[str, dict[str, list[str]]]:
    """Where they are, and of a table the cells of each column; asked again until it can be read."""
    while True:
        question = f"{FILES[kind]} (Enter: bundled ones, to try)"
        root = click.prompt(question, default="", show_default=False, err=True)
        try:
            return root, _columns(root) if root and kind == "table" else {}
        except ValueError as error:
            click.echo(f"{error}.", err=True)


def _columns(root: str) -> dict[str, list[str]]:
    """The cells of each column of the table `root`. Raises ValueError where it cannot be read."""
    from ...defenses.data.delimited import read_delimited

    if not Path(root).is_file():
        raise ValueError(f"{root!r} is no file; a table with a header is needed, such as patients.csv")
    table = read_delimited(Path(root)).table
    return {str(name): list(table[name].fillna("").astype(str).str.strip()) for name in table.columns}


def _column(question: str, columns: Collection[str], default: str | None = None) -> str:
    """One of the columns, or `default`, which Enter stands for; asked again for any other word."""
    while True:
        name = click.prompt(question, default=default, show_default=False, err=True)
        if name in columns or name == default:
            return str(name)
        said = f"There is no column {name!r}{instead(name, columns)}"
        click.echo(said if said.endswith("?") else f"{said}.", err=True)


def _chosen(question: str, answers: dict[str, str]) -> Any:
    """The name of one of the answers, each of which stands beside its number."""
    click.echo(question, err=True)
    for number, words in enumerate(answers.values(), 1):
        click.echo(f"  {number}  {words}", err=True)
    number = click.prompt("Number", type=click.IntRange(1, len(answers)), default=1, err=True)
    return list(answers)[number - 1]
