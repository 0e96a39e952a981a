"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..options.attack import AttackOptions
from ..options.option import OneOf, options_of, takes_options
from ..options.shared import SEEDS, GateOptions, PrintOptions

__all__ = ["SEEDS", "OneOf", "common", "gated", "on_device", "on_ray", "printing"]

_debug = click.option("--debug", is_flag=True, expose_value=False, help="A traceback where something goes wrong.")


def printing(command: Callable) -> Callable:
    """--json, --quiet and --debug, as one argument."""
    return takes_options("printing", PrintOptions)(_debug(command))


def common(command: Callable) -> Callable:
    """--json, --quiet and --debug, which every command has, as `as_json` and `quiet`."""
    command = _debug(command)
    for option in reversed(list(options_of(PrintOptions))):
        command = option.decorator(unset=False)(command)
    return command


gated = takes_options("gates", GateOptions)

on_device = next(o for o in options_of(AttackOptions) if o.name == "device").decorator(unset=False)

on_ray = click.option(
    "--ray",
    metavar="auto|ADDRESS",
    help="Let a Ray cluster do the work: HOST:PORT of one that this machine is a node of; auto for the one in"
    " RAY_ADDRESS, else all cores of this machine. The bytes are the same.",
)
