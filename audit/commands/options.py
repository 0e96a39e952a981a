"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..options import DEVICES

SEEDS = click.IntRange(0, 2**63 - 1)


class OneOf(click.Choice):
    """A choice that asks what was meant by a word that is none of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ...defenses.nearest import instead

        if value not in self.choices:
            self.fail(f"{value!r} cannot be chosen{instead(value, self.choices)}")
        return super().convert(value, param, ctx)


def common(command: Callable) -> Callable:
    """--json, --quiet and --debug, which every command has. `main` alone looks at --debug."""
    for option in (
        click.option("--debug", is_flag=True, expose_value=False, help="A traceback where something goes wrong."),
        click.option("--quiet", is_flag=True, help="No progress, no summary; errors only."),
        click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON document; notes and progress go to stderr."
        ),
    ):
        command = option(command)
    return command


on_ray = click.option(
    "--ray",
    metavar="auto|ADDRESS",
    help="Let a Ray cluster do the work: HOST:PORT of one that this machine is a node of; auto for the one in"
    " RAY_ADDRESS, else all cores of this machine. The bytes are the same.",
)

on_device = click.option(
    "--device",
    type=OneOf(DEVICES),
    default=DEVICES[0],
    show_default=True,
    help="Where inversions compute; all else does on the CPU. auto: on CUDA where there is one.",
)


def gates_too(command: Callable) -> Callable:
    """--fail-if, --junit and --log-to, as `Gated.of` takes them."""
    for option in (
        click.option(
            "--log-to",
            "trackers",
            multiple=True,
            metavar="mlflow|tensorboard:DIR",
            help="Also send the numbers to MLflow (its own tracking URI) or to TensorBoard event files in DIR.",
        ),
        click.option(
            "--junit",
            type=click.Path(path_type=Path),
            help="Also write the gates of --fail-if as JUnit XML to this file.",
        ),
        click.option(
            "--fail-if",
            "gates",
            multiple=True,
            metavar="'METRIC > NUMBER'",
            help="Exit with 1 if this holds for the worst value: 'reidentified > 0.2', 'level >= high',"
            " 'proof != proven', 'proven[client,server] > 10'.",
        ),
    ):
        command = option(command)
    return command
