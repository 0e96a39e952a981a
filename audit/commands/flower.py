"""`audit flower`: a Flower app's own code, with a canary and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import BadInput
from ..options.option import takes_options
from ..options.own_code import FlowerOptions
from ..options.shared import GateOptions, PrintOptions
from .gated import Gated, say_own_audit
from .options import gated, printing
from .printing import shown_progress
from .replay import say_replay


@click.command("flower")
@click.argument("app", metavar="FILE.py|MODULE|FOLDER[:NAME]")
@click.option("-o", "--save", "output", type=click.Path(path_type=Path), help="A results folder for `audit report`.")
@takes_options("options", FlowerOptions, unset=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value of the app's run config.")
@gated
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@printing
def command(
    app: str,
    output: Path | None,
    options: dict[str, Any],
    settings: tuple[str, ...],
    gates: GateOptions,
    force: bool,
    printing: PrintOptions,
) -> int:
    """A lower bound on the ε of a Flower app: its own client function, mods and strategy, in one round, with a canary
    and without. The app is imported and run: its server until it sends something, a client's training once. APP is
    where its ClientApp is, or its folder with pyproject.toml.

    \b
    Example:  audit flower my_app.py --claim 8 --delta 1e-5 -o results
              audit flower my_app.py --data load_data --adjacency replace_one --claim 8
              audit flower my_app.py --replay
    """
    progress = shown_progress(printing.quiet)
    from ..worlds.flower.request import FlowerRequest

    judge = Gated.of(gates)
    request = FlowerRequest.of(app, {**options, "settings": settings})
    if request.only_replays:
        if judge.gates:
            raise BadInput("--replay gives no results that a gate could read; a violation ends with 1 by itself")
        from ..replay.outcome import FILE

        found = request.replayed(output, progress)
        progress.close()
        return say_replay(found, None if output is None else output / FILE, printing.as_json, printing.quiet)
    request.check(judge.gates, output, force)
    made = request.audit(progress)
    progress.close()
    if output is not None:
        made.save(output, force=force)
    return say_own_audit(made, output, judge, printing)
