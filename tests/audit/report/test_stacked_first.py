"""On the first screen stands the attack that combines all tests of membership, and not the luckiest of many; but never
in the place of one that shows a graver leak.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.base import MembershipScores
from dpfl_audit.audit.report.decision.leak import strongest
from dpfl_audit.audit.report.facts import ReportedSetting
from dpfl_audit.audit.report.membership import membership
from dpfl_audit.audit.results.format import SCORING, AuditedSetup
from dpfl_audit.audit.results.membership import score_membership
from dpfl_audit.audit.say.verdict import judged

MEMBER = torch.arange(400) < 200


def entry(attack, shift):
    """Scores of members that lie so far above those of others."""
    scores = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + shift * MEMBER
    made = MembershipScores(attack, "server", "all-rounds", "", torch.arange(400), scores, ())
    return score_membership(made, MEMBER, None, 0)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("stacked", "first"), [(2.0, "membership-stacked"), (2.4, "membership-stacked"), (0.0, "membership-cosine")]
)
def test_which_number_is_the_first(stacked, first):
    attacks = (entry("membership-cosine", 2.2), entry("membership-loss", 0.5), entry("membership-stacked", stacked))
    made = judged(scoring=SCORING, setup=AuditedSetup(digest="", scheme="fedavg"), epsilon=(), attacks=attacks)
    setting = ReportedSetting(Path(), made, "", ((Path(), made),), None)
    leak = strongest([setting])
    assert leak is not None and leak.attack is not None and leak.attack.attack == first
    rows = membership(setting)["observers"][0]["rows"]
    assert [row["name"] for row in rows] == ["membership-stacked", "membership-cosine", "membership-loss"]
