"""One attack model a class."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.membership.shadows import keep_matrix
from dpfl_audit.attacks.membership.shokri import shokri
from dpfl_audit.metrics.membership import auc
from sklearn.linear_model import LogisticRegression
from torch import Tensor


def predictions(member: Tensor, targets: Tensor, seed: int) -> Tensor:
    """Prediction vectors (…, n, 3): members of class 0 are more confident, members of class 1 and 2 less."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(*member.shape, 3, generator=rng, dtype=torch.float64)
    push = torch.where(targets == 0, 2.0, -2.0) * member
    return (logits + push[..., None] * torch.nn.functional.one_hot(targets, 3)).softmax(-1)


@pytest.fixture
def world() -> tuple[Tensor, ...]:
    targets = torch.arange(300) % 3
    keep, member = keep_matrix(6, 300, 0), torch.rand(300, generator=torch.Generator().manual_seed(1)) < 0.5
    return predictions(member, targets, 2), targets, predictions(keep, targets, 3), keep, member


@pytest.mark.parametrize("classifier", ["logistic", "boosting"])
def test_each_class_has_its_own_attack_model(world: tuple[Tensor, ...], classifier) -> None:
    """Classes leak in opposite directions, so that no one model over the confidence could find both."""
    asked, targets, shadows, keep, member = world
    scores = shokri(asked, targets, shadows, targets, keep, classifier=classifier)
    for label in range(3):
        rows = targets == label
        assert auc(scores[rows & member], scores[rows & ~member])[0] > 0.75
    again = shokri(asked, targets, shadows, targets, keep, classifier=classifier)
    assert torch.equal(scores, again)


def test_other_classes_do_not_matter(world: tuple[Tensor, ...]) -> None:
    asked, targets, shadows, keep, _ = world
    before = shokri(asked, targets, shadows, targets, keep)
    shadows = torch.where((targets == 2)[:, None], shadows.flip(-1), shadows)
    after = shokri(asked, targets, shadows, targets, keep)
    assert torch.equal(before[targets < 2], after[targets < 2])
    assert not torch.equal(before[targets == 2], after[targets == 2])


def test_orders_records_like_a_plain_logistic_regression_fitted_by_hand(world: tuple[Tensor, ...]) -> None:
    asked, targets, shadows, keep, _ = world
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


def test_a_missing_class_is_named(world: tuple[Tensor, ...]) -> None:
    asked, targets, shadows, keep, _ = world
    with pytest.raises(ValueError, match="class 2 has no members among the shadow models' records"):
        shokri(asked, targets, shadows[:, targets < 2], targets[targets < 2], keep[:, targets < 2])
    with pytest.raises(ValueError, match="class 0 has no non-members"):
        shokri(asked, targets, shadows, targets, torch.ones_like(keep))
    with pytest.raises(ValueError, match="classifier is 'forest'"):
        shokri(asked, targets, shadows, targets, keep, classifier="forest")
