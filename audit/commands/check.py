"""`audit check`: is a setup folder whole?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import common
from .printing import json_document

if TYPE_CHECKING:
    from ..setup.auditor import Auditor
    from ..setup.folder import Setup


@click.command("check")
@click.argument("setup", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Also every detail of the format, for tools that write it.")
@common
def command(setup: Path, strict: bool, as_json: bool, quiet: bool) -> None:
    """Check every file of a setup folder; exit code 2 and one sentence where something is wrong.

    \b
    Example:  audit check setup
    """
    from ..errors import BadInput
    from ..setup.auditor import check_setup
    from ..setup.strict import faults

    found, auditor = check_setup(setup)
    if strict and (wrong := faults(found, auditor)):
        for fault in wrong if not quiet else ():
            click.echo(fault, err=True)
        raise BadInput(f"{setup}: {len(wrong)} things are not as docs/setup-format.md says")
    if as_json:
        there: dict[str, Any] = {
            "truth": auditor.truth is not None,
            "auditor": auditor.ledger is not None,
            "noise_key": auditor.knows_key,
            "edited": auditor.edited,
            "key_is_published": not auditor.key_is_secret,
        }
        if found.manifest.recorded is not None:
            there["declared"] = [declaration.model_dump() for declaration in auditor.declared]
        click.echo(json_document({"setup": str(setup), **found.summary, **there}))
    elif not quiet:
        click.echo(f"{setup} is whole: {_said(found, auditor)}")
        for declaration in auditor.declared:
            click.echo(f"{declaration.status}: {declaration.what}: {declaration.said} ({declaration.why})")


def _said(found: Setup, auditor: Auditor) -> str:
    m, key, published = found.manifest, auditor.ledger is not None, not auditor.key_is_secret
    kept = auditor.knows_key or m.recorded is not None  # nobody here drew a recording's noise
    return (
        f"{m.scheme.name}, {m.rounds} rounds, {len(found.messages)} messages of {m.model.parameters:,} numbers, truth"
        f" {'present' if auditor.truth is not None else 'absent'}, auditor's key"
        f" {'present' if key and kept else 'absent'}"
        + ("; its key is published, so whoever has the config can draw the noise again" if published else "")
        + ("; auditor/noise-key is gone, and cannot be made again" if key and not kept else "")
        + (f"; recorded by {m.recorded.by}" if m.recorded is not None else "")
        + (f"; changed after training: {', '.join(auditor.edited)}" if auditor.edited else "")
        + ("; training diverged in round 0: nothing to attack" if found.diverged_at_once else "")
    )
