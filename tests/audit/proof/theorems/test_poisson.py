"""The grid that is computed at once is dp_accounting's own, which asks for one loss after the other."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dpfl_audit.audit.proof.theorems.poisson import WORLDS, sampled_gaussian_pld


@pytest.mark.few(8)
@pytest.mark.parametrize("neighbours", WORLDS, ids=lambda relation: relation.name)
@pytest.mark.parametrize("rate", [1e-6, 0.001, 0.1, 0.5, 0.999, 1.0])
@pytest.mark.parametrize(("mu", "interval"), [(0.05, 1e-3), (1.0, 2e-3), (20.0, 0.05)])
def test_it_is_the_library_s_distribution(
    neighbours: NeighboringRelation, rate: float, mu: float, interval: float
) -> None:
    given = {"sampling_prob": rate, "value_discretization_interval": interval, "neighboring_relation": neighbours}
    theirs, ours = pld.from_gaussian_mechanism(1 / mu, **given), sampled_gaussian_pld(rate, mu, neighbours, interval)
    losses = np.linspace(-3.0, 40.0, 50)
    assert ours.get_delta_for_epsilon(losses) == pytest.approx(theirs.get_delta_for_epsilon(losses), abs=1e-14)
    for delta in (0.1, 1e-5):
        epsilons = [each.self_compose(10).get_epsilon_for_delta(delta) for each in (theirs, ours)]
        assert epsilons[1] == pytest.approx(epsilons[0], rel=1e-9, abs=1e-12)
