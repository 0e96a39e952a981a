"""A release has two makers, and what it costs follows from its facts alone."""

from __future__ import annotations

import json
from dataclasses import replace
from math import hypot, inf, sqrt

import pytest
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.audit.setup.ledger import release_of, release_row
from dpfl_audit.defenses.releases import (
    CorrelatedLaw,
    DiscreteLaw,
    GaussianLaw,
    LaplaceLaw,
    NoiseFact,
    Release,
    ResponseLaw,
    Silent,
)
from stated import stated

CHAIN = ((0, 3.0), (1, 4.0))


@pytest.mark.parametrize(
    ("law", "ratio"),
    [
        (Silent(), inf),
        (GaussianLaw(0.0), inf),
        (GaussianLaw(4.0), 0.5),
        (GaussianLaw(3.0, earlier=4.0), 0.4),
        (GaussianLaw(0.0, terms=((1.0, 3), (2.0, 3))), 2 / sqrt(15)),
        (GaussianLaw(1.0, terms=((1.0, 3),)), 1.0),
        (GaussianLaw(4.0, also=(3.0, 6.0)), hypot(0.5, 0.5)),
        (LaplaceLaw(sqrt(2)), 2.0),
        (LaplaceLaw(0.0, ((sqrt(2), 5), (4 * sqrt(2), 1))), 0.5),
        (DiscreteLaw(4.0, 0.1, 7), 0.5),
        (DiscreteLaw(0.0, 0.1, 7, ((1.0, 16),)), 0.5),
        (ResponseLaw(9.0, 1.5), 1.5),
        (CorrelatedLaw(2.0, "z", CHAIN), 5.0),
    ],
    ids=str,
)
def test_what_a_bound_of_2_costs(law: NoiseFact, ratio: float) -> None:
    """By hand; a line of the file has no ratio, and comes back as the same facts."""
    made = stated(law, 2.0)
    assert made.ratio == pytest.approx(ratio)
    row = json.loads(json.dumps(release_row(made)))
    assert "ratio" not in row and vars(release_of(row)) == vars(made)


def test_nobody_else_makes_or_rewrites_one() -> None:
    made = stated(2.0)
    with pytest.raises(ValueError, match="maker"):
        replace(made, law=GaussianLaw(200.0))
    with pytest.raises(TypeError, match="ratio"):
        stated(2.0, ratio=0.1)
    with pytest.raises(AttributeError):
        made.ratio = 0.1  # type: ignore[misc]
    facts = {"id": "a", "round": 0, "law": GaussianLaw(9.0), "bound_norm": 1.0, "bound_order": 2, "bound_of": "client"}
    with pytest.raises(TypeError, match="is made by"):
        Release(**facts, records=1, subjects=frozenset({0}), maker="me")  # type: ignore[arg-type]


def test_loud_words_beside_little_noise_prove_nothing() -> None:
    """The review's release: noise of 0.001 behind a bound of 1, said to have ratio 0.1, was ε = 0.34."""
    row = {**release_row(stated(0.001)), "id": "b"}
    with pytest.raises(TypeError):
        release_of({**row, "ratio": 0.1})
    price = proven([release_of(row)], subject=0, unit="client", adjacency="zero_out", delta=1e-5)
    assert price.epsilon == pytest.approx(gaussian_epsilon(0.001, 1e-5))
