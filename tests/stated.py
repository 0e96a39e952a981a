"""Releases and proofs for tests: facts as a recording would state them, and rows with the numbers that a test needs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from dpfl_audit.audit.results.format import Epsilon, Metrics, Results, TprPoint
from dpfl_audit.audit.results.seal import seal
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.releases import GaussianLaw, LaplaceLaw, NoiseFact, Release, _restated, declare
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.scheme import Context
from dpfl_audit.defenses.strategies import NoiseStrategy

_ids = itertools.count()
changed = _restated


def stated(law: NoiseFact | float = 1.0, bound: float | None = 1.0, **facts: Any) -> Release:
    """About client 0, behind a bound of 1. law: a number is the standard deviation of Gaussian noise."""
    law = GaussianLaw(law) if isinstance(law, float | int) else law
    order = 1 if isinstance(law, LaplaceLaw) else 2
    known = {"id": f"r{next(_ids)}", "round": 0, "subjects": frozenset({0}), "bound_order": order, **facts}
    return declare(law=law, bound_norm=bound, **known)


def in_round(layout: Layout, **changes: Any) -> Context:
    """Where a step is: with client 0, who has 50 records, in round 0 of a scheme without state."""
    first = Context(0, 0, 0, RoundPlan(), layout, 50, frozenset({0}), torch.zeros(layout.dim))
    return replace(first, **changes)


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """A row of ε in JSON with the mark of a proof, whatever it had."""
    row = {"premises": ["nothing_else_published", "secret_key"], "ledger": "0" * 32, **row}
    return {**row, "proof": seal(row)}


def of_setup(row: dict[str, Any], setup: dict[str, Any]) -> dict[str, Any]:
    """The row as `prove` has it of a setup: with a published key, or recorded and declared."""
    premises = set(marked(row)["premises"]) | ({"declared"} if setup.get("recorded") else set())
    if setup.get("noise_key") == "published":
        premises = premises - {"secret_key"} | {"published_key"}
    return marked({**row, "premises": sorted(premises)})


def published(results: Results) -> Results:
    """The same results of a training with the published key."""
    rows = tuple(Epsilon.model_validate(of_setup(r.model_dump(), {"noise_key": "published"})) for r in results.epsilon)
    return results.having(setup=results.setup.having(noise_key="published"), epsilon=rows)


def bounded_point(rate: float, reached: float, ceiling: float) -> dict[str, Any]:
    """Metrics in JSON, with their mark, of a membership attack whose true positive rate a proof bounds."""
    width = {"interval": (reached - 0.1, reached + 0.05), "realised_fpr": rate}
    return Metrics.of({}, (TprPoint(fpr=rate, tpr=reached, ceiling=ceiling, **width),)).model_dump()


def proven_row(**numbers: Any) -> Epsilon:
    """A row of ε as `prove` makes it, per client towards the server unless said otherwise."""
    place = {"observer": "server", "unit": "client", "adjacency": "zero_out", "delta": 1e-5}
    return Epsilon.model_validate(marked({**place, **numbers}))


def proven_otherwise(row: Epsilon, **numbers: Any) -> Epsilon:
    """The same row as if `prove` had made it with other numbers."""
    return Epsilon.model_validate(marked({**row.model_dump(), **numbers}))


def strategy_of(strategy: NoiseStrategy) -> np.ndarray:
    """C of correlated noise, (rows, n), with the rows that are not 0 alone, in order."""
    columns = [strategy.column(t) for t in range(strategy.rounds)]
    place = {row: i for i, row in enumerate(sorted({row for column in columns for row, _ in column}))}
    dense = np.zeros((len(place), len(columns)))
    for t, column in enumerate(columns):
        for row, value in column:
            dense[place[row], t] = value
    return dense
