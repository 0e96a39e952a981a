"""A range cut to what can keep the ε that is asked for. ε is known before anything is trained, so no setting that it
rules out costs a trial, and the end of the range, where noise is least and accuracy best, is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import BadInput
from ..say.words import number
from .case import StudyCase
from .space import Setting, Space, Span

STEPS = 12  # halvings: a range of a factor of 1,000 to three digits


def narrowed(case: StudyCase) -> tuple[Space, tuple[str, ...]]:
    """The space, and what was cut off, a sentence each. A value goes where ε is too large by it in every combination
    with the ends of the other ranges and all values of the lists; where both ends of a range can keep ε, or none, it
    stays.
    """
    if (limit := case.goals.epsilon_at_most) is None:
        return case.space, ()
    space, cuts = case.space, []
    for varied in case.space.varied:
        if not isinstance(varied, Span):
            continue
        others = Space(tuple(other for other in case.space.varied if other is not varied))
        points = list(others.grid(2)) if others.varied else [{}]

        def keeps(value: float, key: str = varied.key, points: list[Setting] = points) -> bool:
            return any(_epsilon(case, {**point, key: value}) <= limit for point in points)

        cut = _cut(varied, keeps)
        if cut is not varied:
            space = Space(tuple(cut if other is varied else other for other in space.varied))
            cuts.append(
                f"--vary {varied.key}={varied.low:g}..{varied.high:g}: only {cut.low:g} to {cut.high:g} can keep a"
                f" proven ε of {number(limit)}, so these are looked at"
            )
    return space, tuple(cuts)


def _cut(span: Span, keeps: Callable[[float], bool]) -> Span:
    low, high = keeps(span.low), keeps(span.high)
    if low == high:
        return span
    inside, outside = (1.0, 0.0) if high else (0.0, 1.0)  # shares of the way up
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if keeps(span.at(middle)):
            inside = middle
        else:
            outside = middle
    end = span.at(inside)
    if high:
        cut = replace(span, low=end, factors=span.log)
    else:
        cut = replace(span, high=end, factors=span.log)
    if span.low < end < span.high:
        return cut
    return span


def _epsilon(case: StudyCase, point: Setting) -> float:
    try:
        return case.proven(case.space.ordered(point))
    except BadInput:  # no setting: nothing is ruled out by it
        return 0.0
