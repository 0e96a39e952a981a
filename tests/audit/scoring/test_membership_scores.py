"""Scores beside the truth: known Gaussians give the analytic figures, and what cannot be scored is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
from dpfl_audit.attacks.base import MembershipScores
from dpfl_audit.audit.files import json_text
from dpfl_audit.audit.judge.judgement import AuditEvidence, judge
from dpfl_audit.audit.results.checks import checks
from dpfl_audit.audit.results.format import AttackResult, ClassRow, parse
from dpfl_audit.audit.results.membership import score_membership
from dpfl_audit.metrics.intervals import clopper_pearson_interval
from dpfl_audit.metrics.membership import auc_p_value, tpr_at_fpr
from scipy.stats import norm
from torch import Tensor


def scores_of(scores: Tensor, ids: Tensor | None = None) -> MembershipScores:
    return MembershipScores(
        "membership-loss", "server", "final-model", "", torch.arange(len(scores)) if ids is None else ids, scores, ()
    )


def gaussians(n_in: int, n_out: int, shift: float) -> tuple[Tensor, Tensor]:
    """The quantiles of N(shift, 1) for members and N(0, 1) for others: no sampling error."""

    def quantiles(n: int) -> Tensor:
        return torch.from_numpy(norm.ppf((torch.arange(n).numpy() + 0.5) / n))

    return torch.cat([quantiles(n_in) + shift, quantiles(n_out)]), torch.arange(n_in + n_out) < n_in


def test_known_gaussians_give_the_analytic_figures() -> None:
    scores, member = gaussians(4000, 10_000, 1.5)
    result = score_membership(scores_of(scores), member, None, seed=0)
    metrics = result.numbers
    assert metrics["auc"] == pytest.approx(norm.cdf(1.5 / math.sqrt(2)), abs=1e-4)
    assert metrics["balanced_accuracy"] == pytest.approx(norm.cdf(0.75), abs=1e-3)
    assert (metrics["n_members"], metrics["n_nonmembers"], result.n) == (4000, 10_000, 14_000)
    for point, level in zip(result.metrics.tpr_at_fpr, (0.1, 0.01, 0.001, 0.0001)):
        assert point.fpr == level and point.realised_fpr == level
        # The (n·level + 1)-th greatest of the others' quantiles, not to be exceeded.
        threshold = norm.isf(level + 0.5 / 10_000)
        assert point.tpr == pytest.approx(norm.sf(threshold - 1.5), abs=2 / 4000)
        assert point.interval == (clopper_pearson_interval(round(point.tpr * 4000), 4000))
    nobody = result.metrics.tpr_at_fpr[4]
    assert nobody.fpr == nobody.realised_fpr == 0


def test_rates_the_non_members_cannot_resolve_are_none() -> None:
    scores, member = gaussians(50, 150, 1.0)
    points = score_membership(scores_of(scores), member, None, seed=0).metrics.tpr_at_fpr
    assert [point is None for point in points] == [False, False, True, True, False]


def test_the_shuffled_control_has_nothing_to_find() -> None:
    scores, member = gaussians(100, 100, 2.0)
    result = score_membership(scores_of(scores), member, None, seed=0)
    control = result.controls["shuffled"]
    assert control["auc"] == pytest.approx(0.5, abs=0.01)
    # AUC of shuffled labels has standard deviation √((n + 1)/(12 n_in n_out)) = .041 (Mann-Whitney)
    assert control["auc_low"] == pytest.approx(0.5 - 1.96 * 0.041, abs=0.02)
    assert control["auc_high"] == pytest.approx(0.5 + 1.96 * 0.041, abs=0.02)
    assert 0.5 < control["balanced_accuracy"] < 0.6 < result.value("balanced_accuracy")
    assert score_membership(scores_of(scores), member, None, seed=0) == result
    assert score_membership(scores_of(scores), member, None, seed=1).controls != result.controls


def test_the_p_value_is_that_of_the_harder_null() -> None:
    """Neither against a guess (½) nor against the attack's own shuffled scores is there less evidence than it says."""
    scores, member = gaussians(40, 40, 0.4)
    controls = []
    for seed in range(8):
        result = score_membership(scores_of(scores), member, None, seed=seed)
        controls.append(result.controls["shuffled"]["auc"])
        nulls = [auc_p_value(result.value("auc"), 40, 40, null) for null in (0.5, controls[-1])]
        assert result.p_values["auc"] == pytest.approx(max(nulls)) and min(nulls) < max(nulls)
    assert min(controls) < 0.5 < max(controls)


@pytest.mark.parametrize(("members", "outsiders", "tells"), [(1, 128, False), (50, 200, True), (2, 3, False)])
def test_perfect_scores_have_the_least_p_values_there_are(members: int, outsiders: int, tells: bool) -> None:
    """One member before 128 outsiders is as good as can be, and might be luck among a few checks (a review's mem1)."""
    member = torch.arange(members + outsiders) < members
    for scores in (member.double(), member + torch.rand(len(member), generator=torch.Generator().manual_seed(0)) / 2):
        entry = score_membership(scores_of(scores), member, None, 0)
        assert entry.p_values.keys() == entry.least_p_values.keys()
        for name, p_value in entry.p_values.items():
            assert p_value == pytest.approx(entry.least_p_values[name], rel=0.35)
        two = [entry, entry]
        assert any(check.beats for own in checks(two, []) for check in own) is tells
        assert judge(AuditEvidence(tuple(two), ())).measured is tells


@pytest.mark.parametrize("kind", ["gaussian", "ties", "constant", "heavy"])
def test_the_result_is_an_entry_of_results_json(kind: str) -> None:
    scores, member = gaussians(3000, 3000, 1.0)
    scores = {
        "gaussian": scores,
        "ties": scores.round(),
        "constant": torch.zeros(6000),
        "heavy": scores.sign() * (5 * scores).exp(),
    }[kind]
    result = score_membership(scores_of(scores), member, torch.arange(6000) % 10, seed=0)
    entry = parse(AttackResult, json.loads(json_text(result.model_dump(by_alias=True))), "test")
    assert entry.kind == "membership" and entry.scored and entry.low("auc") <= entry.value("auc")
    assert entry.p_values == {
        "auc": pytest.approx(
            auc_p_value(result.value("auc"), 3000, 3000, max(0.5, result.controls["shuffled"]["auc"]))
        ),
        "tpr": tpr_at_fpr(scores[member], scores[~member], (0.01,))[0.01].p_value,
    }
    assert entry.roc is not None and entry.histogram is not None
    assert len(entry.roc.fpr) <= 400
    assert (entry.roc.fpr[0], entry.roc.tpr[0]) == (0, 0) and (entry.roc.fpr[-1], entry.roc.tpr[-1]) == (1, 1)
    assert list(entry.roc.fpr) == sorted(entry.roc.fpr) and list(entry.roc.tpr) == sorted(entry.roc.tpr)
    assert sum(entry.histogram.members) == sum(entry.histogram.nonmembers) == 3000
    width = torch.tensor(entry.histogram.edges).diff()
    assert (width > 0).all()


def test_the_thinned_roc_keeps_the_low_rates() -> None:
    scores, member = gaussians(5000, 5000, 2.0)
    roc = score_membership(scores_of(scores), member, None, seed=0).roc
    assert roc.fpr[1] == 0 or roc.fpr[1] == 1 / 5000
    assert sum(f < 0.01 for f in roc.fpr) > 30


def test_per_class_and_most_exposed() -> None:
    """Class 0 leaks, class 1 does not; the most exposed are the members with the highest scores."""
    scores = torch.tensor([9.0, 8.0, 1.0, 2.0, 5.0, 4.0, 5.0, 4.0])
    member = torch.tensor([True, True, False, False, True, True, False, False])
    result = score_membership(
        scores_of(scores, ids=torch.arange(8) + 70), member, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), seed=0
    )
    assert [(row.label, row.auc, row.n_members) for row in result.per_class] == [(0, 1.0, 2), (1, 0.5, 2)]
    assert [row.id for row in result.most_exposed] == [70, 71, 74, 75]
    assert [row.nonmembers_above for row in result.most_exposed] == [0.0, 0.0, 0.25, 0.5]


def test_a_class_without_members_has_no_auc() -> None:
    scores, member = gaussians(4, 4, 1.0)
    classes = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    rows = score_membership(scores_of(scores), member, classes, seed=0).per_class
    assert rows[1] == ClassRow.model_validate(
        {"class": 1, "n_members": 0, "n_nonmembers": 2, "auc": None, "interval": None}
    )


def test_bad_input() -> None:
    scores, member = gaussians(50, 50, 1.0)
    everybody, nobody = torch.ones(100, dtype=torch.bool), torch.zeros(100, dtype=torch.bool)
    with pytest.raises(
        ValueError, match="all 100 candidates are members; membership can only be scored with non-members beside them"
    ):
        score_membership(scores_of(scores), everybody, None, 0)
    with pytest.raises(ValueError, match="none of the 100 candidates is a member"):
        score_membership(scores_of(scores), nobody, None, 0)
    ids = torch.arange(100)
    ids[50:53] = ids[:3]
    with pytest.raises(ValueError, match=r"3 records are both members and non-members \(first: id 0\)"):
        score_membership(scores_of(scores, ids), member, None, 0)
    ids = torch.arange(100)
    ids[10:12] = 9
    with pytest.raises(ValueError, match=r"1 records are among the candidates more than once \(first: id 9\)"):
        score_membership(scores_of(scores, ids), member, None, 0)
    with pytest.raises(ValueError, match="100 record ids, 100 scores and 99 membership flags"):
        score_membership(scores_of(scores), member[1:], None, 0)
    scores[3] = float("nan")
    with pytest.raises(ValueError, match="1 are not finite"):
        score_membership(scores_of(scores), member, None, 0)
