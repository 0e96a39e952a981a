"""What a setting of a study takes, counted before anything is trained, and how many of them the minutes hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from ..errors import BadInput
from ..files import write_json
from ..setup.reading import plain_json, present, read_text
from .case import StudyCase

FILE = ".work/costs.json"
LEAST = 4  # settings: fewer are no search
SHORT = 1.0  # minutes: a search that takes no more is whole
A_PRICE = 0.5  # seconds of two cores, before anything was measured
SCORES = 4.0  # of opening, scoring and pricing what a short attack got
SEARCH = 0.85  # of the minutes, for the settings of the search: many of them need no attack


@dataclass(frozen=True)
class SettingCosts:
    """Minutes of two cores for one setting of the search. training: of its training. attacks: of the attacks on it.
    0 where nobody knows.

    measured: seconds of its training on this machine now, by its first rounds; what is left is told by it, and nothing
    is decided by it.
    """

    training: float = 0.0
    attacks: float = 0.0
    measured: float = 0.0

    def keep(self, folder: Path) -> None:
        write_json(folder / FILE, {"training": self.training, "attacks": self.attacks})

    def fitting(self, case: StudyCase) -> StudyCase:
        """The study with as many settings as its minutes hold; it says where these are fewer than were asked for."""
        if case.selects or not self.training + self.attacks:
            return case
        each = self.training + self.attacks + (A_PRICE + SCORES) / 60
        fit = max(LEAST, int(max(SHORT, case.minutes * SEARCH) / each))
        if fit >= case.count:
            return case
        words = (
            f"--minutes {case.minutes:g} holds {fit} of {case.count} settings, as one takes about"
            f" {each:.1f} minutes; --minutes {ceil(case.count * each / SEARCH)} holds all"
        )
        return replace(case, trials=fit, cut_off=(*case.cut_off, words))


def kept_costs(folder: Path) -> SettingCosts:
    """Of a study that was begun; nothing where they were not kept, so that it has the settings that it began with.

    Raises:
        BadInput: the file is damaged.
    """
    if not present(folder / FILE):
        return SettingCosts()
    try:
        return SettingCosts(**plain_json(read_text(folder / FILE)))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{folder / FILE} is damaged ({error}); use --force to begin the study anew") from None
