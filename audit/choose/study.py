"""A study that is done: what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

from ..say import study as say
from .again import Again
from .case import PARTS, StudyCase
from .decide import Neighbour, Obstacle, front, steps
from .price import SearchPrice, terms_of
from .space import said
from .trial import Trial


@dataclass(frozen=True, eq=False)
class Study:
    """A study that is done. chosen: the recommended trial, None where nothing keeps the goals; then `obstacle` says
    why. tried: what was attacked again, in order, the recommended one last. beside: settings one step from it, looked
    at like those of the search.
    """

    case: StudyCase
    folder: Path
    trials: tuple[Trial, ...]
    tried: tuple[Again, ...]
    beside: tuple[Trial, ...]
    chosen: Trial | None
    obstacle: Obstacle | None
    price: SearchPrice

    @cached_property
    def front(self) -> list[Trial]:
        return front(self.trials, self.case.goals)

    @cached_property
    def steps(self) -> list[Neighbour]:
        if self.chosen is None:
            return []
        return steps(self.case, (*self.trials, *self.beside), self.chosen)

    @property
    def again(self) -> Again | None:
        """The recommended setting attacked again."""
        if self.chosen is not None:
            return self.tried[-1]
        return None

    @property
    def sentence(self) -> str:
        """The answer."""
        if self.chosen is None or self.again is None:
            if self.obstacle is None:
                return ""
            return self.obstacle.sentence
        kept = [f"{k.goal}: {k.said}" for k in self.again.judged(self.case, self.chosen)]
        outcome, goals = self.again.outcome, self.case.goals
        if outcome is not None and goals.accuracy_at_least is None and goals.auc_at_least is None:
            kept += filter(None, [outcome.accuracy_said(outcome.beside_accuracy)])
        return say.take_setting(self.headline, len(self.again.seeds), kept)

    @property
    def figure(self) -> str:
        """What settings are compared by."""
        measured = (trial.outcome for trial in self.trials if trial.outcome is not None)
        return self.case.goals.figure(next(measured, None))

    @property
    def tied(self) -> str:
        """That other settings within the limits are not shown to be less accurate, "" where all are."""
        chosen, goals = self.chosen, self.case.goals
        if chosen is None or chosen.outcome is None or self.case.selects:
            return ""
        equal = [
            trial
            for trial in self.trials
            if trial.number != chosen.number
            and trial.outcome is not None
            and all(kept.kept for kept in goals.judged(trial.outcome, trial.epsilon))
            and goals.alike(chosen.outcome, trial.outcome)
        ]
        proven = [trial.epsilon for trial in equal if trial.epsilon is not None]
        if not proven:
            return ""
        return say.not_told_apart(self.figure, len(equal), min(proven), max(proven))

    @property
    def headline(self) -> str:
        """The recommended setting, and that its model only guesses or that no proof protects it, where either is so;
        "" where nothing is recommended.
        """
        if self.chosen is None:
            return ""
        return say.setting_taken(said(self.chosen.point), self.chosen.epsilon, learned=not self.useless)

    @property
    def useless(self) -> str:
        """That the model of the recommended setting, or of the nearest one, is no better than none; "" where it is."""
        outcome = None if self.again is None else self.again.outcome
        if self.obstacle is not None and (nearest := self.obstacle.nearest) is not None:
            outcome = next((a.outcome for a in self.tried if a.trial == nearest.number), nearest.outcome)
        if outcome is None or not outcome.useless or self.case.goals.auc_at_least is not None:  # that is asked instead
            return ""
        return say.too_weak(outcome.useless, self.spare)

    @property
    def ranks(self) -> str:
        """That the recommended model answers no better than a constant but ranks, "" where that is not so."""
        if self.again is None or self.again.outcome is None:
            return ""
        return self.again.outcome.only_ranks

    @property
    def spare(self) -> tuple[float, float] | None:
        """The proven ε and the allowed one, where less than half of that is used; None where more is, or it is not
        limited.
        """
        most = self.case.goals.epsilon_at_most
        if self.chosen is None or self.chosen.epsilon is None or most is None or self.chosen.epsilon > most / 2:
            return None
        return self.chosen.epsilon, most

    @property
    def above(self) -> str:
        """That the search and the recommended training together are above the ε that was asked, "" where not."""
        most, spent, before = self.case.goals.epsilon_at_most, self.price.epsilon, self.case.config.audit.spent_before
        if self.chosen is None or self.chosen.epsilon is None or most is None or not (spent or before):
            return ""
        total = self.chosen.epsilon + (spent or 0.0) + before
        if total <= most:
            return ""
        asked = self.case.config.audit
        delta = asked.delta + asked.delta_before  # each part has its own
        if spent:
            delta += asked.delta
        terms = terms_of(asked.model_copy(update={"delta": delta}))
        return say.above_with_search(total, most, terms, before)

    @property
    def weaker(self) -> str:
        """That `audit run` would attack the recommended setting harder, "" where it would not."""
        if self.again is None or not self.again.weaker:
            return ""
        return say.attacks_shortened(self.case.minutes, ceil(PARTS * self.again.minutes))
