"""`audit import`: a setup of a training that something else did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import common
from .printing import json_document, shown_progress


@click.command("import")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The setup folder to write.")
@click.option(
    "--layout",
    metavar="rounds|files|PATTERN",
    default="rounds",
    show_default=True,
    help="Which file holds what: round-0.npz with all of a round; round-0/client-3.npz with one upload; or a pattern of"
    " yours for uploads, 'r{round}/site{client}.npz'. .safetensors goes too.",
)
@click.option("--broadcasts", metavar="PATTERN", help="With a pattern: the models sent out, 'r{round}/global.npz'.")
@click.option(
    "--declared",
    type=click.Path(path_type=Path),
    help="TOML of what you state: [mechanism] clip, noise_std, by; [claim] epsilon; [model], [data], …",
)
@click.option("--loss", help="What clients minimised, as bce_with_logits; else [local] loss of what is declared.")
@common
def command(dump: Path, output: Path | None, as_json: bool, quiet: bool, **stated: Any) -> None:
    """A setup of a training that something else did: DUMP holds its rounds as .npz or .safetensors. Without -o DUMP is
    an unfinished recording, which is closed with the whole rounds it has.

    \b
    Example:  audit import dump -o setup --layout 'r{round}/site{client}.npz' --broadcasts 'r{round}/global.npz'
              audit import setup
    """
    progress = shown_progress(quiet)
    if output is not None:
        from ..record.dump_files import files_of_dump

        files_of_dump(dump, stated["layout"], stated["broadcasts"])  # wrong names are said before torch is imported
    from ..record.dump import import_dump
    from ..record.recorder import finish
    from ..setup.folder import open_setup

    if output is None:
        made = finish(dump)
    else:
        made = import_dump(dump, output, progress=progress, **stated)
    progress.close()
    if as_json:
        click.echo(json_document({"setup": str(made), **open_setup(made).summary}))
    elif not quiet:
        click.echo(str(made))
