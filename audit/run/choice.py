"""What `audit run` does without --attack: every attack that applies to the setup, from the cheapest on, as far as the
minutes go; of one that is too long as a whole as many messages as fit.

Costs are counted from shapes and no clock is asked, so the same command chooses the same attacks on every machine and
after every kill. What does not run is recorded with the reason: not measured is never safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ...attacks.base import Knowledge, View
from ...attacks.cells import Cell, ChosenAttack
from ...attacks.cost import NOISE, minutes
from ...defenses.terms import ADJACENCIES, UNITS
from ..errors import BadInput
from ..results.format import Choice, NotRun, Ran
from ..setup.config import CANARY
from ..worlds.federation.plan import CanarySettings
from . import evidence
from .evidence import Plan

DEFAULT_MINUTES = 10.0  # where --minutes does not say; then canaries are not among what is chosen from
IN_PARTS = ("inversion", "inversion-text")  # attacks each part of which says something without the others
NOT_BY_DEFAULT = f"it runs by --attack {CANARY} and may by --minutes"


@dataclass(frozen=True)
class Applying:
    """Which attacks a setup and its observers allow.

    work: by name, the operations of its parts and of scoring them, each with what it shares. refused: by name, why no
    observer can try it. first: operations of what is scored with, where anything of `IN_PARTS` runs.
    cells: that were planned, with what was read for them.
    """

    work: Mapping[str, Sequence[tuple[int, str]]]
    refused: Mapping[str, str]
    first: int = 0
    cells: tuple[Cell, ...] = ()


def applying(
    views: Sequence[View],
    attacks: Mapping[str, Sequence[ChosenAttack]],
    knowledge: Knowledge,
    scoring: Callable[[int], int] = lambda _: 0,
) -> Applying:
    """Plans every attack (by name, in all its variants) on every view, and runs none.

    scoring: operations of scoring so many records.
    """
    work: dict[str, list[tuple[int, str]]] = {}
    refused: dict[str, str] = {}
    planned: list[Cell] = []
    for name, variants in attacks.items():
        try:
            cells = evidence.plan(views, variants, knowledge).cells
        except ValueError as error:
            refused[name] = str(error)
        else:
            parts = [cell.part for cell in in_turn(cells)]
            work[name] = [(part.work + scoring(part.records), part.shared) for part in parts]
            planned += cells
    return Applying(work, refused, cells=tuple(planned))


def in_turn(cells: Sequence[Cell]) -> list[Cell]:
    """Message by message, each in all variants of the attack before the next one: what is read is read in full."""
    places: dict[tuple[str, str], int] = {}
    for cell in cells:
        places.setdefault((cell.view.observer, cell.part.key), len(places))
    return sorted(cells, key=lambda cell: places[cell.view.observer, cell.part.key])


def as_chosen(plan: Plan, made: Choice | None) -> Plan:
    """The plan without the parts that were too long."""
    cells = plan.cells
    for ran in () if made is None else made.ran:
        if ran.parts is not None:
            late = in_turn([cell for cell in cells if cell.attack.name == ran.attack])[ran.parts :]
            cells = tuple(cell for cell in cells if cell not in late)
    return replace(plan, cells=cells)


def check_minutes(limit: float) -> None:
    """Raises BadInput."""
    if not limit > 0:
        raise BadInput(f"--minutes {limit:g}: expected more than 0")


def choose(there: Applying, limit: float) -> Choice:
    """The cheapest attack, then the cheapest of the others, until the next one is too long; equals as they are listed.
    Then the first parts of what can be done in parts, for the first of which minutes are kept.

    Work that one has done is not counted for the next (`Part.shared`). What fits may be nothing.

    >>> made = choose(Applying({"a": [(9 * 10**11, "s")], "b": [(18 * 10**11, "s")], "c": [(36 * 10**11, "")]}, {}), 2)
    >>> [(ran.attack, ran.minutes) for ran in made.ran]
    [('a', 0.5), ('b', 0.0)]

    Raises:
        BadInput: `limit`, in minutes, is not above 0, or no attack applies.
    """
    check_minutes(limit)
    if not there.work:
        raise BadInput(_nothing_applies(there))
    left, shared, spent = dict(there.work), set[str](), minutes(there.first)
    ran: dict[str, float] = {}
    while left:
        costs = {name: minutes(_operations(work, shared)) for name, work in left.items()}
        cheapest = min(costs, key=lambda name: costs[name])
        firsts = [first_of(left[name]) for name in IN_PARTS if name in left and name != cheapest]
        if spent + costs[cheapest] + sum(first for first in firsts if first <= limit) > limit:
            break
        shared |= {what for _, what in left.pop(cheapest)} - {""}
        ran[cheapest] = costs[cheapest]
        spent += costs[cheapest]
    parts = {name: _fitting(left[name], limit - spent) for name in IN_PARTS if name in left}
    for name, count in parts.items():
        if count:
            ran[name] = minutes(_operations(left[name][:count], shared))
            spent += ran[name]
    late = []
    for name, work in left.items():
        count = parts.get(name, 0)
        cost = minutes(_operations(work[count:], shared))
        reason = f"about {_words(cost)} minutes; {_words(limit - spent)} of the {_words(limit)} minutes were left"
        if count:
            reason = f"{len(work) - count} of its {len(work)} parts, {reason}"
        elif name in parts:
            reason = f"{reason}, and its first part takes about {_words(first_of(work))}"
        late.append(NotRun(attack=name, reason=reason, minutes=round(cost, 3)))
    return Choice(
        minutes=limit,
        ran=tuple(
            Ran(attack=name, minutes=round(ran[name], 3), parts=parts.get(name)) for name in there.work if name in ran
        ),
        not_run=(*late, *(NotRun(attack=name, reason=why) for name, why in there.refused.items())),
    )


def first_of(work: Sequence[tuple[int, str]]) -> float:
    """The minutes of its first part."""
    return minutes(work[0][0])


def shortened_said(first: float, limit: float, iterations: int | None, without_exact: bool) -> str:
    """Why an inversion is shorter than was asked for.

    Args:
        first: minutes of its first part as it was asked for. limit: minutes that are there.
        iterations: that it had, None for all. without_exact: it had none of the methods that give exact images.
    """
    had = []
    if iterations is not None:
        had.append(f"{iterations} iterations")
    if without_exact:
        had.append("none of the methods that give exact images (exact = false)")
    longer = f"its first part takes about {_words(first)} minutes, when {_words(limit)} were there"
    return f"{longer}; it had {' and '.join(had)}"


def _operations(work: Sequence[tuple[int, str]], done: set[str]) -> int:
    """Of parts of which each shared one counts once, and not at all if it is `done`."""
    once = {what: operations for operations, what in work if what and what not in done}
    return sum(operations for operations, what in work if not what) + sum(once.values())


def _fitting(work: Sequence[tuple[int, str]], left: float) -> int:
    """How many of the first parts go into the minutes that are left."""
    ends = accumulate(minutes(operations) for operations, _ in work)
    return sum(end <= left for end in ends)


def _nothing_applies(there: Applying) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, why in there.refused.items():
        by_reason.setdefault(why, []).append(name)
    reasons = [f"{_counted(names)} ({why})" for why, names in by_reason.items()]
    return f"no attack applies to this setup and observer: {'; '.join(reasons)}"


def _counted(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {len(names) - 1} more"


def canary_operations(settings: CanarySettings, federation: int, crafting: int = 0) -> int:
    """About how many a canary audit takes, where one federation's training takes so many, and crafting its initial
    weights so many where the settings ask for that.

    >>> canary_operations(CanarySettings(numbers=1e9), 10**9) == 2 * 10**9 * NOISE
    True
    """
    s = settings.scaled()
    of = {
        "mechanism": int(s.numbers) * NOISE,
        "mechanism-redrawn": 2 * s.redrawn * federation,
        "rounds": s.coin_rounds * federation,
        "end-to-end": 2 * s.replicas * federation + (crafting if s.initial_weights == "crafted" else 0),
    }
    rows = 2  # the claim's and the config's
    if s.observers or s.units or s.adjacencies:
        rows = max(1, len(s.observers)) * len(s.units or UNITS) * len(s.adjacencies or ADJACENCIES)
    return rows * sum(of[protocol] for protocol in s.protocols)


def _words(number: float) -> str:
    """Minutes as people say them.

    >>> _words(240.3), _words(1.26), _words(float("inf"))
    ('240', '1.3', 'inf')
    """
    if number >= 10:
        return f"{number:.0f}"
    return f"{number:.1f}".removesuffix(".0")
