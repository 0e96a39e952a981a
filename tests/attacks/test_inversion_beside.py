"""The inversion beside those whose prior grows with the noise: where it runs."""

from __future__ import annotations

from typing import Any

import pytest
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import FixedPrior, SpectrumPrior, make_inversions

RAW: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "photos", "clients": 2, "samples_per_client": 8},
    "model": {"name": "mlp", "options": {"widths": [256, 256]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4},
    "capture": {"clients": [0, 1]},
}


@pytest.mark.parametrize(
    ("table", "fixed"),
    [
        ({}, 1),
        ({"objective": "cosine"}, 1),
        ({"preset": "noise-aware", "objective": ["cosine", "euclidean"]}, 1),
        ({"objective": "euclidean"}, 0),
        ({"preset": "noise-aware"}, 0),
        ({"tv": "noise-aware"}, 0),
        ({"tv": 0.01}, 0),
        ({"preset": "default"}, 0),
    ],
)
def test_it_runs_where_the_prior_grows_and_the_table_does_not_name_it(table: dict[str, Any], fixed: int) -> None:
    made = make_inversions({**table, "iterations": 9}, True, "cpu")
    found = [attack for attack in made if isinstance(attack, FixedPrior)]
    assert len(found) == fixed
    both = "objective" not in table or isinstance(table["objective"], list)
    assert sum(isinstance(attack, SpectrumPrior) for attack in made) == (fixed and both)
    for attack in made:
        assert isinstance(attack, Inversion) and attack.iterations == 3
    assert all((attack.objective, attack.tv, attack.prior) == ("cosine", 0.01, "fixed") for attack in found)


def test_the_spectrum_begins_as_often_as_the_others_and_searches_by_itself() -> None:
    made = make_inversions({"restarts": 3, "lr": 0.05, "optimiser": "adam", "iterations": 500}, False, "cpu")
    (own,) = (attack for attack in made if isinstance(attack, SpectrumPrior))
    assert (own.restarts, own.lr, own.optimiser, own.iterations) == (3, 0.2, "signed-adam", 60)
