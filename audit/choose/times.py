"""How long a study takes: what there is to do of each kind of work, and one time left for all of it."""

from __future__ import annotations

from ...defenses.progress import Progress
from ..timetable import PlannedStage, Timetable, WorkKind
from . import trial
from .again import ALONE
from .case import StudyCase

# Seconds of two cores before anything was measured.
A_TRAINING = 1.0
A_RECORD_SCORED = 0.005  # of one message


class StudyTimes:
    """The stages of a study. What a setting's training, its short attacks and the scoring of a message take is measured
    on the first settings; what is attacked again has as long as it may take.

    Args:
        case: of the study, with its data loaded. progress: told of the whole.
    """

    def __init__(self, case: StudyCase, progress: Progress | None) -> None:
        self.case = case
        records = max(len(own) for parts in case.parts.values() for own in parts.clients)
        scoring = ("scoring", "pricing rows")
        self.table = Timetable(
            progress,
            {
                "training": WorkKind(A_TRAINING, ("pricing settings", "training")),
                "attacks": WorkKind(60 * case.screen_minutes / trial.BATCH, ("attacking",)),
                "attacks again": WorkKind(60.0, ("attacking",)),
                "scoring": WorkKind(A_RECORD_SCORED * records, scoring),
            },
        )
        self.batches = {n: self._batch(n) for n in range(0, case.count, trial.BATCH)}
        self.first: PlannedStage | None = self._again()
        self.beside = self._looked_at(2 * len(case.space.keys), "one step away")

    def search(self, number: int) -> PlannedStage:
        """The batch that begins with this setting."""
        return self.batches[number]

    def again(self, point: str) -> PlannedStage:
        """A setting that is attacked again. One is counted on; each further one takes as much more."""
        stage, self.first = self.first or self._again(), None
        stage.name = f"again, {point}"
        return stage

    def more(self, point: str) -> PlannedStage:
        """The same setting with further seeds."""
        return self._again(f"more seeds, {point}")

    def _batch(self, first: int) -> PlannedStage:
        end = min(first + trial.BATCH, self.case.count)
        return self._looked_at(end - first, f"settings {first + 1} to {end} of {self.case.count}")

    def _looked_at(self, settings: int, name: str) -> PlannedStage:
        messages = settings * len(self.case.config.capture.clients) * trial.SCREEN_ROUNDS
        return self.table.plan({"training": settings, "attacks": settings, "scoring": messages}, name)

    def _again(self, name: str = "again") -> PlannedStage:
        seeds = self.case.seeds
        messages = seeds * len(self.case.config.capture.clients) * (ALONE + 1)  # the last: all rounds together
        trainings = (2 if self.case.baseline else 1) * seeds
        return self.table.plan(
            {"training": trainings, "attacks again": self.case.again_minutes, "scoring": messages}, name
        )
