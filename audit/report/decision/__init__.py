"""What a reader decides by, before any table: may these updates be shared, what is the strongest leak, which ε holds,
and what to change first. Plain values; the page lays them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...say.accuracy import untrained, useless
from ..facts import ReportedSetting
from ..together import noiseless
from .change import Change, change_of
from .leak import Leak, strongest
from .losses import Losses, Range, losses_of
from .sharing import Sharing, gravity, share

__all__ = ["Change", "Decision", "Leak", "Losses", "Range", "Sharing", "decision_on", "share"]


@dataclass(frozen=True, eq=False)
class Decision:
    """untrained: why no accuracy can be compared, a sentence; "" where some accuracy lies above guessing."""

    share: Sharing
    worst: ReportedSetting
    leak: Leak | None
    losses: Losses | None
    change: Change
    untrained: str


def decision_on(settings: Sequence[ReportedSetting]) -> Decision:
    """Of one setting or of several; `worst` is the one that gives the decision."""
    worst = max(settings, key=gravity)
    losses, change = losses_of(settings, worst), change_of(settings, worst)
    return Decision(share(settings), worst, strongest(settings), losses, change, _untrained(settings))


def _untrained(settings: Sequence[ReportedSetting]) -> str:
    """A model that guesses in every setting says nothing of what noise costs; without noise it learned nothing."""
    results = [setting.results for setting in settings if setting.results.setup.test_accuracy is not None]
    if not results or not all(useless(each.setup) for each in results):
        return ""
    return untrained(any(map(noiseless, results)))
