"""What `audit epsilon` can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from .option import Option


@dataclass(frozen=True, kw_only=True)
class NumberOptions:
    """A mechanism by its numbers, without a config; None for what was not typed."""

    clip: Annotated[float | None, Option("Without SOURCE: C, the L2 norm that bounds an update.")] = None
    noise_std: Annotated[
        float | None, Option("Without SOURCE: the noise's standard deviation, in the clip's units.")
    ] = None
    noise_on: Annotated[Literal["update", "sum"] | None, Option("Noise on each update (default) or on their sum.")] = (
        None
    )
    rounds: Annotated[
        int | None, Option("Without SOURCE: how many rounds, of all trainings at most 100,000. Default: 1.")
    ] = None
    clients: Annotated[int | None, Option("Without SOURCE: how many clients there are. Default: 1.")] = None
    cohort: Annotated[int | None, Option("Without SOURCE: how many are drawn for a round. Default: all.")] = None
    sampling: Annotated[Literal["fixed", "poisson"] | None, Option("How. Default: fixed, exactly so many.")] = None
    records: Annotated[
        int | None, Option("Without SOURCE: DP-SGD on so many records; --clip is of a gradient, --rounds are steps.")
    ] = None
    batch: Annotated[int | None, Option("Of DP-SGD: the expected number of records in a batch. Default: all.")] = None
    trainings: Annotated[
        int | None, Option("Without SOURCE: how many such trainings the same people are in. Default: 1.")
    ] = None
    claimed: Annotated[float | None, Option("Without SOURCE: an ε that somebody states of these numbers.")] = None

    @property
    def typed(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What only a config or a setup can answer."""

    results: Annotated[Path | None, Option("A results folder whose demonstrated ε to show beside.")] = None
    observers: Annotated[
        Sequence[str], Option("Default: server, downlink, model, and the config's.", flags="--observer")
    ] = ()
    colluding: Annotated[int, Option("How many clients tell the observers all they know.", check=click.IntRange(0))] = 0
    overrides: Annotated[
        Sequence[str],
        Option("Override a config value (SOURCE a config file).", flags="--set", metavar="TABLE.KEY=VALUE"),
    ] = ()
    noise_key: Annotated[
        str | None,
        Option(
            "Price the training with this key (SOURCE a config file). Default: any key, the worst it can draw.",
            metavar="FILE",
        ),
    ] = None

    @property
    def typed(self) -> list[str]:
        """Flags that bare numbers cannot answer; their observer is the server."""
        others = [name for name in self.observers if name != "server"]
        flags: dict[str, object] = {"--results": self.results, "--observer": others, "--colluding": self.colluding}
        flags |= {"--noise-key": self.noise_key, "--set": self.overrides}
        return [flag for flag, value in flags.items() if value]


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which ε."""

    delta: Annotated[float | None, Option("δ; default: the config's.")] = None
    unit: Annotated[Literal["client", "record", "both"], Option(show_default=True)] = "both"
    adjacency: Annotated[Literal["zero_out", "replace_one", "both"], Option(show_default=True)] = "both"
    target_epsilon: Annotated[
        float | None, Option("Also say which noise proves this ε. Without --noise-std, that noise is priced.")
    ] = None
