"""`audit flower`: a Flower app's own code, with a canary and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .gated import Gated, say_own_audit
from .options import SEEDS, OneOf, common, gates_too
from .printing import shown_progress


@click.command("flower")
@click.argument("app", metavar="FILE.py|MODULE|FOLDER[:NAME]")
@click.option("--claim", type=click.FloatRange(0), help="The ε that is claimed. Default: the app's LocalDpMod's.")
@click.option("--delta", type=click.FloatRange(0, 1, max_open=True), help="Its δ. Default: the app's LocalDpMod's.")
@click.option("-o", "--save", "output", type=click.Path(path_type=Path), help="A results folder for `audit report`.")
@click.option(
    "--canary",
    metavar="auto|NAME",
    default="auto",
    show_default=True,
    help="auto: what moves most of, for a client, trained, long, scalars; for a record existing, mislabelled, blank,"
    " crafted.",
)
@click.option(
    "--data",
    metavar="NAME|FILE.py:NAME",
    help="The function that loads a client's records: the canary is then one of them, and not the client's reply.",
)
@click.option("--unit", type=OneOf(["client", "record"]), help="Default: record with --data, else client.")
@click.option("--adjacency", type=OneOf(["zero_out", "replace_one"]), help="How the worlds differ. Default: zero_out.")
@click.option(
    "--observer", help="server (gets replies) or downlink (gets models). Default: whom the app's noise is for."
)
@click.option("--server", metavar="FILE.py|MODULE[:NAME]", help="The ServerApp, which is asked what it sends.")
@click.option("--model", metavar="FILE.py:NAME", help="Without a ServerApp: the network whose weights are sent.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value of the app's run config.")
@click.option("--client", type=click.IntRange(0), help="The partition audited. Default: 0.")
@click.option("--clients", type=click.IntRange(1), help="How many clients there are. Default: 10.")
@click.option("--draws", type=click.IntRange(10), help="Tested draws a world. Default: 1,000, or what the claim takes.")
@click.option("--calibration", type=click.IntRange(10), help="Draws a world to learn from. Default: a quarter of them.")
@click.option(
    "--anew/--once",
    default=None,
    help="Train in every draw, or once. Default: once, where noise is known to come after training.",
)
@click.option(
    "--gaussian/--any-noise", default=None, help="Whether noise is known to be Gaussian. Default: as it says."
)
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), help="Default: 0.95.")
@click.option("--seed", type=SEEDS, help="Of all draws. Default: 0.")
@gates_too
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@common
def command(
    app: str,
    output: Path | None,
    gates: tuple[str, ...],
    junit: Path | None,
    trackers: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """A lower bound on the ε of a Flower app: its own client function, mods and strategy, in one round, with a canary
    and without. The app is imported and run: its server until it sends something, a client's training once. APP is
    where its ClientApp is, or its folder with pyproject.toml.

    \b
    Example:  audit flower my_app.py --claim 8 --delta 1e-5 -o results
              audit flower my_app.py --data load_data --adjacency replace_one --claim 8
    """
    progress = shown_progress(quiet)
    from ..worlds.flower.request import FlowerRequest

    gated = Gated.of(gates, trackers, junit)
    request = FlowerRequest.of(app, given)
    request.check(gated.gates, output, force)
    made = request.audit(progress)
    progress.close()
    if output is not None:
        made.save(output, force=force)
    return say_own_audit(made, output, gated, quiet, as_json)
