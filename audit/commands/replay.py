"""`audit replay`: a training on neighbouring data with the same coins and releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..replay.adjacency import ADJACENCIES, PAIRS, ReplayAdjacency
from .options import SEEDS, OneOf, common
from .printing import json_document, shown_progress

if TYPE_CHECKING:
    from ..replay.outcome import Replay


@click.command("replay")
@click.argument("what", metavar="FILE.py:FUNCTION")
@click.option("--data", required=True, metavar="FILE.py:NAME", help="The data set, or a function that gives it.")
@click.option(
    "--adjacency", type=OneOf(ADJACENCIES), default="zero_out", show_default=True, help="How the data sets differ."
)
@click.option("--opacus", is_flag=True, help="FUNCTION takes (data, privacy_engine) and trains with Opacus.")
@click.option("--neighbours", type=click.IntRange(1), default=PAIRS, show_default=True, help="How many are tried.")
@click.option("--unit", type=OneOf(["client", "record"]), default="record", show_default=True, help="What an entry is.")
@click.option("--seed", type=SEEDS, default=0, show_default=True, help="Of all coins.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A folder for replay.json: norms, names, steps.")
@common
def command(
    what: str,
    data: str,
    adjacency: ReplayAdjacency,
    opacus: bool,
    neighbours: int,
    unit: str,
    seed: int,
    output: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Is the sensitivity what the proof takes it for? Runs FUNCTION(data, tap) on data and on neighbours of it, with
    the same coins and the same noisy releases: what noise is added to may move by its bound, and nothing else that
    leaves may differ. A violation is a fact and ends with 1; none found is no proof.

    \b
    Example:  audit replay train.py:train --data train.py:data --adjacency add_remove
              audit replay train.py:private --data train.py:data --opacus -o replayed
    """
    progress = shown_progress(quiet)
    from ..replay.outcome import FILE
    from ..replay.request import replay_named

    asked: dict[str, Any] = {"neighbours": neighbours, "unit": unit, "seed": seed, "progress": progress}
    made = replay_named(what, data, adjacency, opacus, folder=output, **asked)
    progress.close()
    return say_replay(made, None if output is None else output / FILE, as_json, quiet)


def say_replay(made: Replay, path: Path | None, as_json: bool, quiet: bool) -> int:
    """Says what was found, and gives the exit code: 1 where something is violated, 2 where no bound was reached.

    path: of replay.json.
    """
    if as_json:
        click.echo(json_document(made.document()))
    elif not quiet:
        click.echo("\n".join((*made.sentences, *([] if path is None else [str(path)]))))
    elif made.violations or not made.queries:
        click.echo(made.sentences[0 if made.violations else 1], err=True)
    if made.violations:
        return 1
    return 0 if made.queries else 2  # a gate does not pass where no bound was checked
