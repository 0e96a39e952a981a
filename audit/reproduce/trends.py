"""What a publication found, as questions that are answered by what was measured: yes, no, or cannot be told.

A question is a number of each trial (a difference, a rank correlation), so that cells are compared within a trial,
which shares data, weights and starts; the interval is over trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev
from typing import TypeVar

from scipy.special import stdtrit
from scipy.stats import rankdata

from ..say.words import times

LEAST_ALIKE = 6  # a sign test of six that agree: 2 / 2⁶ = .03
CellFigures = Mapping[str, float]  # of a cell, by metric
TrialFigures = Mapping[str, CellFigures]  # of a trial, by the cell's name
Contrast = Callable[[TrialFigures], float]
_Choice = TypeVar("_Choice")


@dataclass(frozen=True)
class Trend:
    """A finding as a question.

    question: ends in a question mark. published: what the publication answers, "ours" where the question is ours.
    contrast: of a trial's figures; above `least` is a yes. what: the contrast in words, with its unit.
    chosen: where it is of a best one, makes the contrast out of half of the trials, to be measured in the others
    (`best_on`): in one and the same trial the best of many is above the best of few by luck alone.
    least: the smallest contrast that counts as one, in that unit. within: what the contrast can be, and so its limits.
    """

    question: str
    published: str
    what: str
    contrast: Contrast
    chosen: Callable[[Sequence[TrialFigures]], Contrast] | None = None
    least: float = 0.0
    within: tuple[float, float] = (-inf, inf)


@dataclass(frozen=True)
class TrendAnswer:
    """A trend beside what was measured: mean contrast over `trials`, and its 95 % limits (None of a single trial, or of
    few that are all alike).
    """

    question: str
    published: str
    what: str
    least: float
    answer: str
    contrast: float
    low: float | None
    high: float | None
    trials: int

    @property
    def sentence(self) -> str:
        alike = "one trial has no interval"
        if self.trials > 1:
            alike = "all trials alike: no interval"
        if self.low is None:
            limits = alike
        else:
            limits = f"95 %: {self.low:.3g} to {self.high:.3g}"
        count = times(self.trials, "trial")
        more = ""
        if self.least:
            more = f", counted from {self.least:g} on"
        return (
            f"{self.question} **{self.answer}** (published: {self.published}): {self.what} {self.contrast:.3g}"
            f" ({limits}; {count}{more})"
        )


def answer_of(trend: Trend, trials: Sequence[TrialFigures]) -> TrendAnswer:
    """Yes where the whole interval lies above `least`, no where it lies at or below it. Trials that all give the same
    number, whose spread is not known, tell from `LEAST_ALIKE` on.
    """
    contrast, half = trend.contrast, 0
    if trend.chosen is not None and len(trials) > 1:
        half = len(trials) // 2
        contrast = trend.chosen(trials[:half])
    values = [round(contrast(trial), 12) for trial in trials[half:]]
    middle, low, high = student(values)
    if low is not None and high is not None:
        low, high = max(low, trend.within[0]), min(high, trend.within[1])
    answer = "cannot be told"
    if low == high and len(values) < LEAST_ALIKE:
        low = high = None
    if low is not None and high is not None and low > trend.least:
        answer = "yes"
    elif high is not None and high <= trend.least:
        answer = "no"
    return TrendAnswer(trend.question, trend.published, trend.what, trend.least, answer, middle, low, high, len(values))


def best_on(
    trials: Sequence[TrialFigures], choices: Sequence[_Choice], value: Callable[[TrialFigures, _Choice], float]
) -> _Choice:
    """The choice with the highest mean value."""
    return max(choices, key=lambda choice: fmean(value(trial, choice) for trial in trials))


def student(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None, float | None]:
    """Mean and Student's t limits; one value has none.

    >>> [round(x, 2) for x in student([1.0, 2.0, 3.0])]      # t with two degrees of freedom: 4.303 · 1/√3
    [2.0, -0.48, 4.48]
    """
    if len(values) < 2:
        return values[0], None, None
    half = float(stdtrit(len(values) - 1, 0.5 + confidence / 2)) * stdev(values) / sqrt(len(values))
    return fmean(values), fmean(values) - half, fmean(values) + half


CORRELATION = (-1.0, 1.0)


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's, ties by their mean rank; 0 where all of either are equal.

    >>> rank_correlation([1, 2, 3], [5, 7, 70]), rank_correlation([1, 2], [3, 3])
    (1.0, 0.0)
    """
    a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (xs, ys))
    size = sqrt(float(a @ a) * float(b @ b))
    if size:
        return round(float(a @ b) / size, 12)
    return 0.0
