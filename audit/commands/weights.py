"""`audit weights`: the networks that LPIPS looks through, fetched."""

from __future__ import annotations

from typing import Any, cast

import click

from ..options.choices import NETS
from .options import OneOf, common
from .printing import json_document, shown_progress


@click.command("weights")
@click.argument("net", type=OneOf(NETS), default=NETS[0])
@common
def command(net: str, as_json: bool, quiet: bool) -> None:
    """Fetch torchvision's own weights for LPIPS into torch's cache: squeeze (SqueezeNet, 5 MB) or alex (AlexNet, 233
    MB, which most papers report). SHA-256 is checked; results without LPIPS get it by `audit run --force`.

    \b
    Example:  audit weights
    """
    progress = shown_progress(quiet)
    from ..weights import fetch

    path = fetch(cast(Any, net), progress)
    progress.close()
    if as_json:
        click.echo(json_document({"net": net, "weights": str(path)}))
    elif not quiet:
        click.echo(str(path))
