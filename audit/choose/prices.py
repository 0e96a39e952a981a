"""What a setting of a study takes, counted before anything is trained, and how many of them the minutes hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..files import write_json
from ..setup.reading import plain_json, present, read_text
from .case import StudyCase

FILE = ".work/prices.json"
LEAST = 4  # settings: fewer are no search
SHORT = 1.0  # minutes: a search that takes no more is whole
SEARCH = 0.85  # of the minutes, for the settings of the search: many of them need no attack


@dataclass(frozen=True)
class Prices:
    """Minutes of two cores for one setting of the search. training: of its training. attacks: of the shortest attacks
    on it that are ever made. 0 where nobody knows.
    """

    training: float = 0.0
    attacks: float = 0.0

    def keep(self, folder: Path) -> None:
        write_json(folder / FILE, asdict(self))

    def fitting(self, case: StudyCase) -> StudyCase:
        """The study with as many settings as its minutes hold; it says where these are fewer than were asked for."""
        each = self.training + self.attacks
        fit = max(LEAST, int(max(SHORT, case.minutes * SEARCH) / each)) if each else case.trials
        if fit >= case.count or case.selects:
            return case
        words = (
            f"--minutes {case.minutes:g} holds {fit} of {case.count} settings, as one takes about"
            f" {each:.1f} minutes; --minutes {case.count * each / SEARCH:.0f} holds all"
        )
        return replace(case, trials=fit, cut_off=(*case.cut_off, words))


def read_prices(folder: Path) -> Prices | None:
    """As they were kept, None where they were not."""
    return Prices(**plain_json(read_text(folder / FILE))) if present(folder / FILE) else None
