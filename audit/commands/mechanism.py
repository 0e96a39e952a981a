"""`audit mechanism`: a function of the user's own, with a canary and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .gated import Gated, say_own_audit
from .options import SEEDS, OneOf, common, gates_too
from .printing import shown_progress


@click.command("mechanism")
@click.argument("what", metavar="FILE.py:FUNCTION|CONFIG.toml")
@click.option("--claim", type=click.FloatRange(0), help="The ε that is claimed.")
@click.option("--delta", type=click.FloatRange(0, 1, max_open=True), help="Its δ; 0 for pure DP.")
@click.option("-o", "--save", "output", type=click.Path(path_type=Path), help="A results folder for `audit report`.")
@click.option("--unit", type=OneOf(["client", "record"]), help="What the canary is. Default: client.")
@click.option("--adjacency", type=OneOf(["zero_out", "replace_one"]), help="How the worlds differ. Default: zero_out.")
@click.option("--observer", help="Who gets what the function returns. Default: server.")
@click.option(
    "--candidates", metavar="FILE.py:NAME", help="Canaries to choose from: a list, a dict, or what makes one."
)
@click.option("--noiseless", metavar="FILE.py:FUNCTION", help="The same without noise, if you know it: world → vector.")
@click.option(
    "--draws", type=click.IntRange(10), help="Tested calls a world at most. Default: 1,000, or what the claim takes."
)
@click.option(
    "--calibration", type=click.IntRange(10), help="Calls a world to learn from. Default: a quarter of them, 50 to 100."
)
@click.option("--sizes", type=click.IntRange(1), multiple=True, help="Numbers in each tensor of the vector, in order.")
@click.option("--rounds", type=click.IntRange(1), help="Messages in a vector, of equal length. Default: 1.")
@click.option("--rate", type=click.FloatRange(0, 1, min_open=True), help="The secret chance that each has the canary.")
@click.option(
    "--gaussian",
    is_flag=True,
    default=None,
    help="The noise is known to be Gaussian and added last, and nothing sampled.",
)
@click.option("--confidence", type=click.FloatRange(0.5, 1, min_open=True, max_open=True), help="Default: 0.95.")
@click.option(
    "--stop/--all-draws",
    default=None,
    help="Whether calls end once the claim is refuted or cannot be. Default: they do.",
)
@click.option(
    "--same-steps/--any-steps",
    default=None,
    help="Whether worlds that always take unequal numbers of optimiser steps are refused. Default: they are.",
)
@click.option("--seed", type=SEEDS, help="Of all draws. Default: 0.")
@gates_too
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@common
def command(
    what: str,
    output: Path | None,
    gates: tuple[str, ...],
    junit: Path | None,
    trackers: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """A lower bound on the ε of a function of your own: (world, seed) → the vector that an observer gets, world True
    with your canary and False without, all noise from seed. It is called thousands of times, in either world. WHAT is
    the function, which is run, or a config with a [mechanism] table.

    \b
    Example:  audit mechanism my.py:update --claim 8 --delta 1e-5 -o results
              audit mechanism my.py:update --claim 8 --delta 1e-5 --fail-if 'demonstrated > 8'
    """
    progress = shown_progress(quiet)
    from ..worlds.request import MechanismRequest

    gated = Gated.of(gates, trackers, junit)
    request = MechanismRequest.of(what, {**given, "sizes": given["sizes"] or None})
    request.check(gated.gates, output, force)
    made = request.audit(progress, output, force=force)
    progress.close()
    if output is not None:
        made.save(output, force=force)
    return say_own_audit(made, output, gated, quiet, as_json)
