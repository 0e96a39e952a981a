"""`audit mechanism`: a function of the user's own, with a canary and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..options.option import takes_options
from ..options.own_code import MechanismOptions
from ..options.shared import GateOptions, PrintOptions
from .gated import Gated, say_own_audit
from .options import gated, printing
from .printing import shown_progress


@click.command("mechanism")
@click.argument("what", metavar="FILE.py:FUNCTION|CONFIG.toml")
@click.option("-o", "--save", "output", type=click.Path(path_type=Path), help="A results folder for `audit report`.")
@takes_options("options", MechanismOptions, unset=True)
@gated
@click.option("--force", is_flag=True, help="Replace different results in the output folder.")
@printing
def command(
    what: str, output: Path | None, options: dict[str, Any], gates: GateOptions, force: bool, printing: PrintOptions
) -> int:
    """A lower bound on the ε of a function of your own: (world, seed) → the vector that an observer gets, world True
    with your canary and False without, all noise from seed. It is called thousands of times, in either world. WHAT is
    the function, which is run, or a config with a [mechanism] table.

    \b
    Example:  audit mechanism my.py:update --claim 8 --delta 1e-5 -o results
              audit mechanism my.py:update --claim 8 --delta 1e-5 --fail-if 'demonstrated > 8'
    """
    progress = shown_progress(printing.quiet)
    from ..worlds.request import MechanismRequest

    judge = Gated.of(gates)
    request = MechanismRequest.of(what, options)
    request.check(judge.gates, output, force)
    made = request.audit(progress, output, force=force)
    progress.close()
    if output is not None:
        made.save(output, force=force)
    return say_own_audit(made, output, judge, printing)
