"""Options that several commands have, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click

from .choices import DeviceName
from .option import Option

SEEDS = click.IntRange(0, 2**63 - 1)
MODEL_NAME = "PACKAGE.MODULE:FUNCTION"

Force = Annotated[bool, Option("Replace different results in the output folder.")]
Quiet = Annotated[bool, Option("No progress, no summary; errors only.", "-q --quiet")]
Overrides = Annotated[
    Sequence[str], Option("Override a config value; may be repeated.", flags="--set", metavar="TABLE.KEY=VALUE")
]
Device = Annotated[
    DeviceName,
    Option("Where inversions compute; all else does on the CPU. auto: on CUDA where there is one.", show_default=True),
]


@dataclass(frozen=True, kw_only=True)
class PrintOptions:
    """How a command says what came of it. `main` alone looks at --debug."""

    as_json: Annotated[bool, Option("Print one JSON document; notes and progress go to stderr.", flags="--json")] = (
        False
    )
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What is asked of results, as typed."""

    gates: Annotated[
        Sequence[str],
        Option(
            "Exit with 1 if this holds for the worst value: 'reidentified > 0.2', 'level >= high',"
            " 'proof != proven', 'claim != holds', 'proven[client,server] > 10'.",
            flags="--fail-if",
            metavar="'METRIC > NUMBER'",
        ),
    ] = ()
    junit: Annotated[Path | None, Option("Also write the gates of --fail-if as JUnit XML to this file.")] = None
    trackers: Annotated[
        Sequence[str],
        Option(
            "Also send the numbers to MLflow (its own tracking URI) or to TensorBoard event files in DIR.",
            flags="--log-to",
            metavar="mlflow|tensorboard:DIR",
        ),
    ] = ()
