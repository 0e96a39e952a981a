"""What a preset is: a paper's scheme by its own letters, how it is built, and what it claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..layout import Layout
from ..local import LocalTraining
from ..participation import Dropout
from ..ranges import MOST_SIZE
from ..scheme import Budget, Scheme
from ..update import Add, Optimise, Replace, Update
from ..wire import Kind

Provable = Literal["yes", "no", "depends"]
SchemeGroup = Literal["papers", "comparators", "production", "baselines"]
GROUPS: dict[SchemeGroup, str] = {  # in the order of lists
    "papers": "schemes of the audited papers",
    "comparators": "what these papers compare themselves with",
    "production": "what platforms run",
    "baselines": "plain averaging, and a paper's own baseline",
}
MOST_COUNT = 2**53  # what a float64 still counts
KINDS: tuple[Kind, ...] = get_args(Kind)
LEAST, MOST = 1e-50, 1e50  # of a parameter: float64 holds products of several, and their squares


def cohort_field(words: str) -> Any:
    """The field of a cohort's size. words: what is drawn, by the paper's letter."""
    return Field(default=None, ge=1, description=f"{words}, by lot; all where it is not given")


class Parameters(BaseModel):
    """A scheme's parameters as they stand in the [scheme] table. Unknown keys are refused. A field's description is
    what `audit init` writes beside it: the paper's letter, its formula and its unit.

    The run ends when too few clients are left within their budget. A target_epsilon is replaced by the noise that it
    takes (`audit.proven.target`) before a scheme is built.

    per_round: names of the factors by which the noise changes every round.
    """

    per_round: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(default=15, ge=1, description="T, how many rounds")
    share: Kind = Field(
        default="update", description='a client\'s message: "update", "weights", or one batch\'s "gradient"'
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="chance that a chosen client fails to answer, 0 to 1")
    budget: float | None = Field(
        default=None, gt=0, description="ε: a client stops before its own, by the scheme's formula, would pass it"
    )
    budget_delta: float = Field(default=1e-5, gt=0, lt=1, description="δ of the budget")
    target_epsilon: float | None = Field(
        default=None, gt=0, description="ε to be proven as [audit] asks; computes the noise"
    )

    @model_validator(mode="after")
    def _within_floats(self) -> Self:
        for name, value in self:
            for number in value if isinstance(value, list | tuple) else (value,):
                if isinstance(number, int) and number > MOST_COUNT:
                    raise ValueError(f"{name} is above 2^53, the most that is counted exactly")
                if isinstance(number, float) and number and not LEAST <= abs(number) <= MOST:
                    raise ValueError(
                        f"{name} = {number:g} is out of range; expected a number of {LEAST:g} to {MOST:g}, or 0"
                    )
            if name in self.per_round and self.rounds * abs(log(value)) > log(MOST_SIZE):
                raise ValueError(
                    f"{name} = {value:g} changes the noise more than {MOST_SIZE:g}-fold in {self.rounds} rounds; take"
                    " one nearer to 1, or fewer rounds"
                )
        return self


@dataclass(frozen=True)
class Population:
    """The public facts of a federation that a scheme may depend on.

    Args:
        records: how many records each client has.
        layout: the model's tensors; empty where only the noise and the claim are asked for.
    """

    records: tuple[int, ...]
    layout: Layout = Layout((), ())

    @property
    def clients(self) -> int:
        return len(self.records)


@dataclass(frozen=True)
class Preset:
    """One paper's scheme.

    Args:
        name: as typed in a config.
        title: what it does, in one line.
        source: the paper, with the equations.
        parameters: the class of its parameters.
        build: (parameters, local, population) -> Scheme. Raises ValueError in one sentence where the parameters do not
            fit the federation.
        needs: what one must choose to use it.
        claimed_unit: unit and adjacency of the claim, and what it takes for granted.
        provable: whether a finite ε can be proven: for every observer and parameter ("yes"), for none ("no"), or for
            some ("depends"). The contract suite holds it against the accountant.
        why: what can be proven and why, in one line.
        shares: what a client's message may be.
        noise: the parameters that decide the noise, each by itself; the first is proportional to it, and is what a
            target_epsilon computes. () where there is no such one.
        example: values that `audit init` writes for parameters without a default.
        group: where lists have it, a key of `GROUPS`.
    """

    name: str
    title: str
    source: str
    parameters: type[Parameters]
    build: Callable[[Any, LocalTraining, Population], Scheme]
    needs: str
    claimed_unit: str
    provable: Provable
    why: str
    shares: tuple[Kind, ...] = KINDS
    noise: tuple[str, ...] = ()
    example: Mapping[str, Any] = field(default_factory=dict)
    group: SchemeGroup = "papers"

    def paper_claims(self, parameters: Any) -> bool:
        """Whether the noise is asked for in the paper's own terms, its σ or ε, so that its formula is what is invoked.
        A noise_std in parameter units is the owner's, who claims what the config says.
        """
        return getattr(parameters, "noise_std", None) is None

    def scheme(self, parameters: Any, local: LocalTraining, population: Population) -> Scheme:
        """The scheme, with dropouts and personal budgets, which any scheme may have.

        Raises ValueError in one sentence where the parameters do not fit the scheme or the federation.
        """
        if parameters.share not in self.shares:
            allowed = " or ".join(map(repr, self.shares))
            raise ValueError(f"[scheme] share = {parameters.share!r} does not fit {self.name!r}: use {allowed}")
        scheme = self.build(parameters, local, population)
        if parameters.dropout > 0:
            scheme = replace(scheme, participation=Dropout(scheme.participation, parameters.dropout))
        if parameters.budget is not None:
            if scheme.claim is None or scheme.claim.epsilon is None:
                raise ValueError(
                    f"budget = {parameters.budget:g}: {self.name!r} has no formula for ε here, so nothing can be spent"
                )
            scheme = replace(scheme, budget=Budget(parameters.budget, parameters.budget_delta))
        formula = scheme.claim.epsilon if scheme.claim is not None else None
        if scheme.budget is not None and formula is not None and scheme.budget.stop == "before":
            spent = formula(1, scheme.budget.delta)
            if spent > scheme.budget.epsilon:
                raise ValueError(
                    f"the budget of ε = {scheme.budget.epsilon:g} (δ = {scheme.budget.delta:g}) allows no round: the"
                    f" first already costs a claimed {spent:.4g}; raise the budget or the noise"
                )
        return scheme


def update_rule(share: Kind, local: LocalTraining) -> Update:
    """What FedAvg does with a merged value of each kind."""
    match share:
        case "update":
            return Add()
        case "weights":
            return Replace()
    return Optimise(local.optimiser, local.lr, local.momentum)
