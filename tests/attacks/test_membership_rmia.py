"""RMIA by sorting against the matrix of all pairs."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.membership.rmia import rmia, tune_a
from dpfl_audit.attacks.membership.shadows import keep_matrix
from torch import Tensor


def confidences(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sigmoid()


def by_matrix(
    target, shadows, keep, population, population_shadows, population_keep, a: float, gamma: float
) -> list[float]:
    """Straight from the definition: every pair, and every P(x) by itself."""

    def ratio(p: Tensor, q: Tensor, chosen: Tensor, i: int) -> float:
        outside = q[~chosen[:, i], i]
        return float(p[i]) / (0.5 * ((1 + a) * float(outside.mean()) + (1 - a)))

    z = [ratio(population, population_shadows, population_keep, j) for j in range(len(population))]
    x = [ratio(target, shadows, keep, i) for i in range(len(target))]
    return [sum(one / other > gamma for other in z) / len(z) for one in x]


@pytest.mark.parametrize(("a", "gamma"), [(0.0, 1.0), (0.3, 1.0), (1.0, 2.0), (0.5, 0.7)])
def test_equals_the_matrix(a: float, gamma: float) -> None:
    parts = (
        confidences(40, seed=1),
        confidences(6, 40, seed=2),
        keep_matrix(6, 40, 3),
        confidences(33, seed=4),
        confidences(6, 33, seed=5),
        keep_matrix(6, 33, 6),
    )
    assert rmia(*parts, a=a, gamma=gamma).tolist() == by_matrix(*parts, a, gamma)


def test_by_hand() -> None:
    """a = 1: P is the mean of shadows without the record. Ratios .8/.4 = 2, .2/.4 = .5; the population's are 1, 3."""
    none = torch.zeros(1, 2, dtype=torch.bool)
    scores = rmia(
        torch.tensor([0.8, 0.2]),
        torch.tensor([[0.4, 0.4]]),
        none,
        torch.tensor([0.3, 0.9]),
        torch.tensor([[0.3, 0.3]]),
        none,
        a=1.0,
    )
    assert scores.tolist() == [0.5, 0.0]


def test_a_zero_confidence_is_a_value_not_a_gap() -> None:
    """The mean over shadows without a record counts those that give it probability 0."""
    keep = torch.tensor([[False], [False], [True]])
    z = (torch.tensor([1.0, 3.0, 5.0]), torch.full((3, 3), 1.0), torch.zeros(3, 3, dtype=torch.bool))
    # Ratio 1 / .25 = 4 beats 1 and 3, not 5.
    scores = rmia(torch.tensor([1.0]), torch.tensor([[0.0], [0.5], [0.9]]), keep, *z, a=1.0)
    assert scores.item() == pytest.approx(2 / 3)


def test_tuning_finds_the_a_that_tells_a_shadows_members_best() -> None:
    rng = torch.Generator().manual_seed(0)
    keep, keep_z = keep_matrix(8, 200, 0), keep_matrix(8, 150, 1)
    hardness = 3 * torch.randn(350, generator=rng)
    shadows = (hardness[:200] + 1.5 * keep + 0.3 * torch.randn(8, 200, generator=rng)).sigmoid()
    population = (hardness[200:] + 1.5 * keep_z + 0.3 * torch.randn(8, 150, generator=rng)).sigmoid()
    from dpfl_audit.metrics.membership import auc

    areas = {}
    outside = ~keep_z[0]
    for step in range(11):
        x = (~keep[1:]).any(0)
        scores = rmia(
            shadows[0, x],
            shadows[1:, x],
            keep[1:, x],
            population[0, outside],
            population[1:, outside],
            keep_z[1:, outside],
            a=step / 10,
        )
        areas[step / 10] = auc(scores[keep[0, x]], scores[~keep[0, x]])[0]
    assert areas[tune_a(shadows, keep, population, keep_z)] == max(areas.values()) > 0.8


def test_bad_input() -> None:
    keep = torch.zeros(2, 1, dtype=torch.bool)
    ok = (torch.rand(1), torch.rand(2, 1), keep)
    with pytest.raises(ValueError, match="a is 2"):
        rmia(*ok, *ok, a=2)
    with pytest.raises(ValueError, match="there are none; give the attacker auxiliary data"):
        rmia(*ok, torch.rand(0), torch.rand(2, 0), torch.zeros(2, 0, dtype=torch.bool), a=0.3)
    with pytest.raises(ValueError, match="1 records were in the training set of every shadow"):
        rmia(torch.rand(1), torch.rand(2, 1), ~keep, *ok, a=0.3)
    with pytest.raises(ValueError, match="there are 2 shadows; tuning a needs at least 4"):
        tune_a(*ok[1:], *ok[1:])
