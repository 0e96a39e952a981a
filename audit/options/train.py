"""What `audit train` and `dpfl_audit.train` can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click

from .choices import EngineName
from .option import Option
from .shared import MODEL_NAME, SEEDS, Overrides


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How a config is trained."""

    overrides: Overrides = ()
    seed: Annotated[int | None, Option("Override the config's seed.", check=SEEDS)] = None
    noise_key: Annotated[
        str | Path | None,
        Option(
            "Draw noise with this key (64 hex digits; `published` for one that is no secret). Default: a fresh one,"
            " kept in SETUP/auditor/noise-key.",
            check=click.STRING,
            metavar="FILE",
        ),
    ] = None
    engine: Annotated[
        EngineName | None,
        Option(
            "batched: all clients of a round as one; looped: one by one; sliced: 100 by 100, for large cohorts."
            " Default: batched; with --ray sliced, whose slices go to the workers."
        ),
    ] = None
    allow_model: Annotated[
        str | None,
        Option(
            "Import this model of yours, from here or installed, by repeating the config's [model] name. It is called"
            " as `FUNCTION(input_shape, classes, **options)` and returns a torch.nn.Module.",
            metavar=MODEL_NAME,
        ),
    ] = None
    force: Annotated[bool, Option("Replace a different setup in the output folder.")] = False
