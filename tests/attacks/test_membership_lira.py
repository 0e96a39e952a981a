"""LiRA by masked sums against one record at a time, and against what Gaussians say it must reach."""

from __future__ import annotations

import math

import pytest
import torch
from dpfl_audit.attacks.membership.lira import lira
from dpfl_audit.attacks.membership.shadows import keep_matrix
from dpfl_audit.metrics.membership import auc
from scipy.stats import norm
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


def test_bad_input() -> None:
    keep = torch.zeros(4, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="2 records have fewer than two shadow models trained with them"):
        lira(torch.zeros(2), torch.zeros(4, 2), keep)
    with pytest.raises(ValueError, match="2 records have fewer than two shadow models trained without them"):
        lira(torch.zeros(2), torch.zeros(4, 2), ~keep)
    with pytest.raises(ValueError, match=r"must have shapes \(n,\), \(S, n\) and \(S, n\)"):
        lira(torch.zeros(3), torch.zeros(4, 2), keep)
