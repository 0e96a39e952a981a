"""What `audit mechanism`, `audit flower` and the functions beside them can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import click

from ...defenses.terms import Adjacency, Unit
from .option import Option
from .shared import SEEDS

CLAIM = click.FloatRange(0)
DELTA = click.FloatRange(0, 1, max_open=True)
CONFIDENCE = click.FloatRange(0.5, 1, min_open=True, max_open=True)
DRAWS = click.IntRange(10)

Seed = Annotated[int, Option("Of all draws. Default: 0.", check=SEEDS)]
Confidence = Annotated[float, Option("Default: 0.95.", check=CONFIDENCE)]
Differ = Annotated[Adjacency, Option("How the worlds differ. Default: zero_out.")]


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """What is asked of a function: `dpfl_audit.audit_mechanism` says more of each."""

    claim: Annotated[float | None, Option("The ε that is claimed.", check=CLAIM)] = None
    delta: Annotated[float, Option("Its δ; 0 for pure DP.", check=DELTA)]
    candidates: Annotated[
        Sequence[Any] | Mapping[str, Any] | None,
        Option(
            "Canaries to choose from: a list, a dict, or what makes one.", check=click.STRING, metavar="FILE.py:NAME"
        ),
    ] = None
    noiseless: Annotated[
        Callable[[Any], Any] | None,
        Option(
            "The same without noise, if you know it: world → vector.", check=click.STRING, metavar="FILE.py:FUNCTION"
        ),
    ] = None
    draws: Annotated[
        int | None, Option("Tested calls a world at most. Default: 1,000, or what the claim takes.", check=DRAWS)
    ] = None
    calibration: Annotated[
        int | None, Option("Calls a world to learn from. Default: a quarter of them, 50 to 100.", check=DRAWS)
    ] = None
    sizes: Annotated[
        Sequence[int] | None, Option("Numbers in each tensor of the vector, in order.", check=click.IntRange(1))
    ] = None
    rounds: Annotated[int, Option("Messages in a vector, of equal length. Default: 1.", check=click.IntRange(1))] = 1
    rate: Annotated[
        float,
        Option("The secret chance that each has the canary. Default: 1.", check=click.FloatRange(0, 1, min_open=True)),
    ] = 1.0
    gaussian: Annotated[bool, Option("The noise is known to be Gaussian and added last, and nothing sampled.")] = False
    confidence: Confidence = 0.95
    stop: Annotated[
        bool,
        Option(
            "Whether calls end once the claim is refuted or cannot be. Default: they do.", flags="--stop/--all-draws"
        ),
    ] = True
    unit: Annotated[Unit, Option("What the canary is. Default: client.")] = "client"
    adjacency: Differ = "zero_out"
    observer: Annotated[str, Option("Who gets what the function returns. Default: server.")] = "server"
    same_steps: Annotated[
        bool,
        Option(
            "Whether worlds that always take unequal numbers of optimiser steps are refused. Default: they are.",
            flags="--same-steps/--any-steps",
        ),
    ] = True
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class FlowerOptions:
    """What is asked of a Flower app: `dpfl_audit.audit_flower` says more of each."""

    claim: Annotated[float | None, Option("The ε that is claimed. Default: the app's LocalDpMod's.", check=CLAIM)] = (
        None
    )
    delta: Annotated[float | None, Option("Its δ. Default: the app's LocalDpMod's.", check=DELTA)] = None
    canary: Annotated[
        str,
        Option(
            "auto: what moves most of, for a client, trained, long, scalars; for a record existing, mislabelled, blank,"
            " crafted. Default: auto.",
            metavar="auto|NAME",
        ),
    ] = "auto"
    data: Annotated[
        Any,
        Option(
            "The function that loads a client's records: the canary is then one of them, and not the client's reply.",
            check=click.STRING,
            metavar="NAME|FILE.py:NAME",
        ),
    ] = None
    unit: Annotated[Unit | None, Option("Default: record with --data, else client.")] = None
    adjacency: Differ = "zero_out"
    observer: Annotated[
        str | None, Option("server (gets replies) or downlink (gets models). Default: whom the app's noise is for.")
    ] = None
    server: Annotated[
        Any, Option("The ServerApp, which is asked what it sends.", check=click.STRING, metavar="FILE.py|MODULE[:NAME]")
    ] = None
    model: Annotated[
        Any,
        Option("Without a ServerApp: the network whose weights are sent.", check=click.STRING, metavar="FILE.py:NAME"),
    ] = None
    client: Annotated[int, Option("The partition audited. Default: 0.", check=click.IntRange(0))] = 0
    clients: Annotated[int | None, Option("How many clients there are. Default: 10.", check=click.IntRange(1))] = None
    draws: Annotated[
        int | None, Option("Tested draws a world. Default: 1,000, or what the claim takes.", check=DRAWS)
    ] = None
    calibration: Annotated[
        int | None, Option("Draws a world to learn from. Default: a quarter of them.", check=DRAWS)
    ] = None
    anew: Annotated[
        bool | None,
        Option(
            "Train in every draw, or once. Default: once, where noise is known to come after training.",
            flags="--anew/--once",
        ),
    ] = None
    gaussian: Annotated[
        bool | None,
        Option("Whether noise is known to be Gaussian. Default: as it says.", flags="--gaussian/--any-noise"),
    ] = None
    replay: Annotated[
        bool,
        Option(
            "First, without draws: does what Flower adds noise to move by its bound at most, and all else not at all?"
            " Where nothing else is asked, that is all, in seconds, and a violation ends with 1.",
            flags="--replay",
        ),
    ] = False
    confidence: Confidence = 0.95
    seed: Seed = 0
