"""What a preset is: a paper's scheme by its own letters, how it is built, and what it claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..layout import Layout
from ..local import LocalTraining
from ..participation import Dropout
from ..scheme import Budget, Scheme
from ..update import Add, Optimise, Replace, Update
from ..wire import Kind


class Parameters(BaseModel):
    """A scheme's parameters as they stand in the [scheme] table. Unknown keys are refused.

    dropout: the chance that a chosen client fails to answer. budget: a client stops before its claimed ε (at
    budget_delta, by the scheme's own formula) would pass it; the run ends when too few clients are left.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(default=15, ge=1)
    share: Kind = "update"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    budget: float | None = Field(default=None, gt=0)
    budget_delta: float = Field(default=1e-5, gt=0, lt=1)


@dataclass(frozen=True)
class Population:
    """The public facts of a federation a scheme may depend on: the number of clients, their sample counts, the model's
    layout.
    """

    samples: tuple[int, ...]
    layout: Layout

    @property
    def clients(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class Preset:
    """One paper's scheme. `build(parameters, local, population)` gives the Scheme; it raises ValueError in one sentence
    where the parameters do not fit the federation. `provable` says in one line what can be proven of it and why;
    `example` gives `audit init` values for parameters without a default.
    """

    name: str
    title: str
    source: str
    parameters: type[Parameters]
    build: Callable[[Any, LocalTraining, Population], Scheme]
    needs: str
    claimed_unit: str
    provable: str
    example: Mapping[str, Any] = field(default_factory=dict)

    def scheme(self, parameters: Any, local: LocalTraining, population: Population) -> Scheme:
        """The scheme, with dropouts and personal budgets, which any scheme may have."""
        made = self.build(parameters, local, population)
        if parameters.dropout > 0:
            made = replace(made, participation=Dropout(made.participation, parameters.dropout))
        if parameters.budget is not None:
            if made.claim is None:
                raise ValueError(
                    f"budget = {parameters.budget:g}: {self.name!r} claims no ε here, so nothing can be spent"
                )
            made = replace(made, budget=Budget(parameters.budget, parameters.budget_delta))
        return made


def update_rule(share: Kind, local: LocalTraining) -> Update:
    """What FedAvg does with a merged value of each kind."""
    match share:
        case "update":
            return Add()
        case "weights":
            return Replace()
    return Optimise(local.optimiser, local.lr, local.momentum)


def check_share(scheme: str, share: Kind, allowed: Sequence[Kind]) -> None:
    if share not in allowed:
        raise ValueError(f"[scheme] share = {share!r} does not fit {scheme!r}: use {' or '.join(map(repr, allowed))}")
