"""LiRA, RMIA and one attack model a class, out of shadows' answers: against slow references and known answers."""

from __future__ import annotations

import math

import pytest
import torch
from dpfl_audit.attacks.membership.lira import lira
from dpfl_audit.attacks.membership.rmia import rmia, tune_a
from dpfl_audit.attacks.membership.shadows import keep_matrix
from dpfl_audit.attacks.membership.shokri import shokri
from dpfl_audit.metrics.membership import auc
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from torch import Tensor


def game(shadows: int, n: int, shift: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A record has a hardness N(0, 3²); φ is N(hardness, 1) without it in training, N(hardness + shift, 1) with it."""
    rng = torch.Generator().manual_seed(seed)
    hardness = 3 * torch.randn(n, generator=rng, dtype=torch.float64)
    keep, member = keep_matrix(shadows, n, seed), torch.rand(n, generator=rng) < 0.5
    phi = hardness + torch.randn(shadows, n, generator=rng, dtype=torch.float64) + shift * keep
    return hardness + torch.randn(n, generator=rng, dtype=torch.float64) + shift * member, phi, keep, member


def slow(target: Tensor, shadows: Tensor, keep: Tensor, online: bool, per_record: bool) -> list[float]:
    """One record at a time, with scipy's distributions."""

    def spread(chosen: Tensor, i: int) -> float:
        residuals, freedom = 0.0, 0
        for j in [i] if per_record else range(len(target)):
            values = shadows[chosen[:, j], j]
            residuals += float((values - values.mean()).square().sum())
            freedom += len(values) - 1
        return math.sqrt(residuals / freedom)

    scores = []
    for i, value in enumerate(target.tolist()):
        out = norm(shadows[~keep[:, i], i].mean().item(), spread(~keep, i))
        if online:
            inside = norm(shadows[keep[:, i], i].mean().item(), spread(keep, i))
            scores.append(inside.logpdf(value) - out.logpdf(value))
        else:
            scores.append(-out.logsf(value))
    return scores


@pytest.mark.parametrize("per_record", [False, True])
@pytest.mark.parametrize("online", [False, True])
def test_equals_the_slow_reference(online: bool, per_record: bool) -> None:
    target, phi, keep, _ = game(8, 30, 1.0)
    fast = lira(target, phi, keep, online=online, per_record=per_record)
    assert fast.tolist() == pytest.approx(slow(target, phi, keep, online, per_record), rel=1e-9, abs=1e-9)


def test_own_variances_from_64_shadows_on() -> None:
    for shadows, own in ((62, False), (64, True)):
        target, phi, keep, _ = game(shadows, 10, 1.0)
        assert torch.equal(lira(target, phi, keep), lira(target, phi, keep, per_record=own))


def test_reaches_the_auc_of_known_gaussians() -> None:
    """Without the hardness members and others are N(shift, 1), N(0, 1): AUC Φ(shift/√2), where φ gives Φ(shift/√20)."""
    target, phi, keep, member = game(64, 6000, 2.0)
    for online in (True, False):
        scores = lira(target, phi, keep, online=online, per_record=False)
        assert auc(scores[member], scores[~member])[0] == pytest.approx(norm.cdf(2 / math.sqrt(2)), abs=0.02)
    assert auc(target[member], target[~member])[0] == pytest.approx(norm.cdf(2 / math.sqrt(20)), abs=0.02)


def test_finds_nothing_where_there_is_nothing() -> None:
    target, phi, keep, member = game(16, 2000, 0.0)
    scores = lira(target, phi, keep)
    low, high = auc(scores[member], scores[~member], confidence=0.999)[1]
    assert low < 0.5 < high


def test_offline_orders_like_the_papers_test_and_is_one_sided() -> None:
    phi = torch.tensor([-1.0, 1.0, 0.0, 0.0], dtype=torch.float64)[:, None].expand(4, 5)
    keep = torch.tensor([False, False, True, True])[:, None].expand(4, 5)
    scores = lira(torch.tensor([-90.0, -1.0, 0.0, 1.0, 90.0]), phi, keep, online=False)
    assert (scores.diff() > 0).all()
    assert torch.isfinite(scores).all()


def test_shadows_that_agree_exactly_give_finite_scores() -> None:
    keep = keep_matrix(4, 3, 0)
    assert torch.isfinite(lira(torch.ones(3), torch.zeros(4, 3), keep)).all()


def test_records_without_enough_shadows_are_refused() -> None:
    keep = torch.zeros(4, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="2 records have fewer than two shadow models trained with them"):
        lira(torch.zeros(2), torch.zeros(4, 2), keep)
    with pytest.raises(ValueError, match="2 records have fewer than two shadow models trained without them"):
        lira(torch.zeros(2), torch.zeros(4, 2), ~keep)
    with pytest.raises(ValueError, match=r"must have shapes \(n,\), \(S, n\) and \(S, n\)"):
        lira(torch.zeros(3), torch.zeros(4, 2), keep)


def confidences(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sigmoid()


def by_matrix(target, shadows, keep, population, population_shadows, population_keep, a: float) -> list[float]:
    """Straight from the definition: every pair, and every P(x) by itself."""

    def ratio(p: Tensor, q: Tensor, chosen: Tensor, i: int) -> float:
        outside = q[~chosen[:, i], i]
        return float(p[i]) / (0.5 * ((1 + a) * float(outside.mean()) + (1 - a)))

    z = [ratio(population, population_shadows, population_keep, j) for j in range(len(population))]
    x = [ratio(target, shadows, keep, i) for i in range(len(target))]
    return [sum(one / other > 1 for other in z) / len(z) for one in x]


@pytest.mark.parametrize("a", [0.0, 0.3, 0.5, 1.0])
def test_equals_the_matrix(a: float) -> None:
    parts = (
        confidences(40, seed=1),
        confidences(6, 40, seed=2),
        keep_matrix(6, 40, 3),
        confidences(33, seed=4),
        confidences(6, 33, seed=5),
        keep_matrix(6, 33, 6),
    )
    assert rmia(*parts, a=a).tolist() == by_matrix(*parts, a)


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


def test_what_a_ratio_cannot_be_made_of_is_refused() -> None:
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


def predictions(member: Tensor, targets: Tensor, seed: int) -> Tensor:
    """Prediction vectors (…, n, 3): members of class 0 are more confident, members of class 1 and 2 less."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(*member.shape, 3, generator=rng, dtype=torch.float64)
    push = torch.where(targets == 0, 2.0, -2.0) * member
    return (logits + push[..., None] * torch.nn.functional.one_hot(targets, 3)).softmax(-1)


@pytest.fixture
def by_class() -> tuple[Tensor, ...]:
    targets = torch.arange(300) % 3
    keep, member = keep_matrix(6, 300, 0), torch.rand(300, generator=torch.Generator().manual_seed(1)) < 0.5
    return predictions(member, targets, 2), targets, predictions(keep, targets, 3), keep, member


def test_each_class_has_its_own_attack_model(by_class: tuple[Tensor, ...]) -> None:
    """Classes leak in opposite directions, so that no one model over the confidence could find both."""
    asked, targets, shadows, keep, member = by_class
    scores = shokri(asked, targets, shadows, targets, keep)
    for label in range(3):
        rows = targets == label
        assert auc(scores[rows & member], scores[rows & ~member])[0] > 0.75


def test_other_classes_do_not_matter(by_class: tuple[Tensor, ...]) -> None:
    asked, targets, shadows, keep, _ = by_class
    before = shokri(asked, targets, shadows, targets, keep)
    shadows = torch.where((targets == 2)[:, None], shadows.flip(-1), shadows)
    after = shokri(asked, targets, shadows, targets, keep)
    assert torch.equal(before[targets < 2], after[targets < 2])
    assert not torch.equal(before[targets == 2], after[targets == 2])


def test_orders_records_like_a_plain_logistic_regression_fitted_by_hand(by_class: tuple[Tensor, ...]) -> None:
    asked, targets, shadows, keep, _ = by_class
    features, labels = [], []
    for s in range(len(shadows)):
        for i in range(len(targets)):
            if targets[i] == 1:
                features.append(shadows[s, i].tolist())
                labels.append(bool(keep[s, i]))
    model = LogisticRegression(C=1e6, max_iter=1000).fit(features, labels)
    rows = targets == 1
    expected = torch.from_numpy(model.decision_function(asked[rows].numpy()))
    found = shokri(asked, targets, shadows, targets, keep)[rows]
    assert torch.corrcoef(torch.stack([expected, found]))[0, 1] > 0.999


def test_a_missing_class_is_named(by_class: tuple[Tensor, ...]) -> None:
    asked, targets, shadows, keep, _ = by_class
    with pytest.raises(ValueError, match="class 2 has no members among the shadow models' records"):
        shokri(asked, targets, shadows[:, targets < 2], targets[targets < 2], keep[:, targets < 2])
    with pytest.raises(ValueError, match="class 0 has no non-members"):
        shokri(asked, targets, shadows, targets, torch.ones_like(keep))
