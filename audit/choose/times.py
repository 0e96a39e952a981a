"""How long a study takes: what there is to do of each kind of work, and one time left for all of it."""

from __future__ import annotations

from ...defenses.progress import Progress
from ..run.times import OF_RUNS
from ..timetable import PlannedStage, Timetable, WorkKind
from . import trial
from .case import StudyCase
from .costs import A_PRICE, SCORES, SettingCosts

A_TRAINING = 1.0  # seconds of two cores, before anything was measured
MORE_SCORES = 10.0  # of scoring a seed attacked again


LOOKED_AT = ("attacks", "pricing", "training")  # of every setting of a batch


class StudyTimes:
    """The stages of a study. What a setting's training and its short attacks take is measured on the first settings;
    what is attacked again has as long as it may take.

    Args:
        case: of the study, with its data loaded. progress: told of the whole. costs: of a setting.
    """

    def __init__(self, case: StudyCase, progress: Progress | None, costs: SettingCosts) -> None:
        self.case = case
        again = max(case.again_minutes, case.seeds * costs.attacks)
        self.table = Timetable(
            progress,
            {
                "attacks": WorkKind(60 * max(case.screen_minutes, costs.attacks) + SCORES, OF_RUNS),
                "attacks again": WorkKind(60 * again + MORE_SCORES * case.seeds, OF_RUNS),
                "pricing": WorkKind(A_PRICE, ("pricing settings",)),
                "training": WorkKind(max(A_TRAINING, 60 * costs.training, costs.measured), ("training",)),
            },
        )
        self.batches = {n: self._batch(n) for n in range(0, case.count, trial.BATCH)}
        self.first: PlannedStage | None = self._again()
        self.beside = self._looked_at(_beside(case), "one step away")

    def search(self, number: int) -> PlannedStage:
        """The batch that begins with this setting."""
        return self.batches[number]

    def again(self, point: str) -> PlannedStage:
        """A setting that is attacked again. One is counted on; each further one takes as much more."""
        stage, self.first = self.first or self._again(), None
        stage.name = f"again, {point}"
        return stage

    def one_step_away(self, settings: int) -> PlannedStage:
        """So many settings beside the chosen one."""
        for kind in LOOKED_AT:
            self.beside.has(kind, settings)
        return self.beside

    def more(self, point: str) -> PlannedStage:
        """The same setting with further seeds."""
        return self._again(f"more seeds, {point}")

    def _batch(self, first: int) -> PlannedStage:
        end = min(first + trial.BATCH, self.case.count)
        return self._looked_at(end - first, f"settings {first + 1} to {end} of {self.case.count}")

    def _looked_at(self, settings: int, name: str) -> PlannedStage:
        return self.table.plan(dict.fromkeys(LOOKED_AT, settings), name)

    def _again(self, name: str = "again") -> PlannedStage:
        seeds = self.case.seeds
        trainings = (2 if self.case.baseline else 1) * seeds
        return self.table.plan({"attacks again": 1, "training": trainings}, name)


def _beside(case: StudyCase) -> int:
    """How many settings one step away there are at most that the search does not look at anyway."""
    known = case.space.design(case.trials)[: case.trials]
    points = known or [case.first]
    return max(sum(point not in known for point in case.space.beside(each)) for each in points)
