"""Which attacks a setting of a study gets, and how long ones.

Attacks are taken by what they cost, counted from shapes. But an inversion always runs, shortened where it must be, and
so does a membership attack: of what is never tried, a limit on leakage would say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import run as runner
from ..results.format import Results
from ..run import RunOptions
from ..run.choice import DEFAULT_MINUTES, IN_PARTS
from ..run.job import Job
from ..run.options import INVERSION
from ..run.shortened import LEAST_ITERATIONS, fewer_iterations, iterations_set
from ..say.words import times
from ..setup.config import CANARY
from .outcome import outcome_of

MEMBERSHIP = "membership"
PLENTY = 1e6  # minutes, for which everything that applies is chosen, and so priced
TOGETHER = "all-rounds"  # the manner of an inversion that joins a sender's messages
STRONGER = ((4.0, 2, 2), (2.0, 1, 2))  # from so many times its minutes: iterations ×, restarts ×


@dataclass(frozen=True, eq=False)
class AttackPlan:
    """names: of the attacks. overrides: of their settings. not_run: what is left out or shortened, with why.

    weaker: what `audit run` would do of its own accord and this does not, or not for as
    long. minutes: for all that it would do. counted: minutes for what is planned. priced: what it was counted by.
    """

    names: tuple[str, ...]
    overrides: tuple[str, ...]
    not_run: tuple[str, ...]
    priced: Job
    weaker: tuple[str, ...] = ()
    minutes: float = 0.0
    counted: float = 0.0

    def options(self, options: RunOptions) -> RunOptions:
        return replace(options, minutes=None, attacks=self.names, overrides=self.overrides)

    def job(self, options: RunOptions) -> Job:
        """To be carried out; the setup is not read again."""
        return runner.asked_of(self.priced.setup, self.priced.auditor, self.options(options))


def plan_attacks(
    setup: Path,
    options: RunOptions,
    minutes: float,
    *,
    inversion_minutes: float | None = None,
    messages: int = 0,
    shortest: float = 1.0,
    searched: frozenset[str] = frozenset(),
) -> AttackPlan:
    """The attacks on a setup: an inversion, a membership attack, those of `searched`, and as many others as fit, the
    cheapest first; where an inversion leaves minutes over, it gets more iterations and restarts.

    An inversion joins the messages of the same rounds as `audit run` does, and is shortened for that; it joins none
    where it would be shorter than one part in `shortest`, and reads fewer messages where the fewest iterations on all
    of them are too long.

    Args:
        setup: a folder. options: of the run, without its attacks. minutes: for all, counted from shapes.
        inversion_minutes: what an inversion may take of its own; None for half of them, or all where nothing else
            applies.
        messages: how many an inversion reads each alone at most, those with the least noise; 0 for all.
        shortest: see above. searched: attacks that must run.

    Raises:
        BadInput: no attack applies.
    """
    job = runner.opened(setup, replace(options, minutes=PLENTY))
    assert job.choice is not None
    costs = {ran.attack: float(ran.minutes) for ran in job.choice.ran if options.canaries or ran.attack != CANARY}
    audited = _by_default(costs)
    whole = sum(costs[name] for name in audited)
    limit = inversion_minutes
    if limit is None:
        limit = minutes if set(costs) == {INVERSION} else minutes / 2
    reading = None
    names, late, spent = [], [], 0.0
    if costs.pop(INVERSION, None) is not None:
        reading = _messages_read(job, messages, limit, shortest)
        names, late, spent = [INVERSION], [*reading.left_out], min(reading.cost, limit)
    for name, cost in sorted(costs.items(), key=lambda one: (one[0] not in searched, one[1])):
        first = name.startswith(MEMBERSHIP) and not any(known.startswith(MEMBERSHIP) for known in names)
        if name in searched or first or spent + cost <= minutes:
            names.append(name)
            spent += cost
        else:
            left = max(0.0, minutes - spent)
            late.append(f"{name} ({_about(cost)}, when {left:.2g} of {minutes:.2g} minutes were left)")
    overrides: tuple[str, ...] = ()
    weaker = [name for name in audited if name not in names]
    counted = spent
    if reading is not None:
        lasting, short = _lasting(reading.settings, reading.cost, limit, max(0.0, minutes - spent), options.quick)
        counted += max(0.0, reading.least - limit)
        overrides, late = (*reading.overrides, *lasting), [*late, *short]
        if INVERSION in audited:
            weaker = [*reading.left_out, *short, *weaker]
    refused = [f"{lack.attack} ({lack.reason})" for lack in job.choice.not_run]
    return AttackPlan(tuple(names), overrides, (*refused, *late), job, tuple(weaker), whole, counted)


@dataclass(frozen=True, eq=False)
class _Reading:
    """The messages that an inversion reads. cost: in minutes, with all iterations of its `settings`; least: with as
    few as it may have. left_out: what it does not read, in words.
    """

    settings: Mapping[str, Any]
    cost: float
    least: float
    overrides: tuple[str, ...]
    left_out: tuple[str, ...]


def _messages_read(job: Job, messages: int, limit: float, shortest: float) -> _Reading:
    """As many as fit `limit` minutes, and one at least. job: with all attacks; else as `plan_attacks` has it."""

    def asked(name: str, value: object) -> tuple[str, ...]:
        return (f"{INVERSION}.{name}={json.dumps(value)}",)

    first = asked("messages", messages) if messages else ()
    apart: tuple[str, ...] = ()
    costs, settings = runner.costs_of_inversion(job.half.with_options(replace(job.options, overrides=first)))
    joined = sum(cost for (_, part), cost in costs.items() if part.startswith(TOGETHER))
    alone = sorted((cost for (_, part), cost in costs.items() if not part.startswith(TOGETHER)), reverse=True)
    left_out: list[str] = []
    cost, manners = joined + sum(alone), settings["manners"]
    if cost > shortest * limit and joined and alone:
        left_out.append(f"{INVERSION} of all rounds together ({_about(cost)})")
        manners = [manner for manner in manners if manner != TOGETHER]
        apart, cost = asked("manners", manners), sum(alone)
    whole = settings["iterations"] * settings["restarts"]
    if cost > limit and TOGETHER not in manners:
        iterations, restarts = fewer_iterations(settings, cost, limit)
        fitting = max(1, int(limit / (alone[0] * iterations * restarts / whole)))
        if fitting < len(alone):
            left_out.append(f"{INVERSION} of more than {fitting} messages")
            first, cost = asked("messages", fitting), sum(alone[:fitting])
    least = cost * min(settings["iterations"], LEAST_ITERATIONS) / whole
    return _Reading(settings, cost, least, (*first, *apart), tuple(left_out))


def _by_default(costs: Mapping[str, float]) -> list[str]:
    """The attacks that `audit run` makes of its own accord, some of them in part."""
    names, spent = [], 0.0
    for name, cost in sorted(costs.items(), key=lambda one: one[1]):
        if name == CANARY:
            continue
        spent += cost
        if spent <= DEFAULT_MINUTES or name in IN_PARTS:
            names.append(name)
    return names


def _lasting(
    settings: Mapping[str, object], cost: float, limit: float, left: float, quick: bool
) -> tuple[tuple[str, ...], list[str]]:
    """The inversion's iterations and restarts for `limit` minutes, or more of them where `left` are over; and in words
    where it is shortened. quick: whether the run divides its iterations.
    """
    iterations, restarts = settings["iterations"], settings["restarts"]
    assert isinstance(iterations, int) and isinstance(restarts, int)
    if cost <= limit:
        more = next(((i, r) for from_, i, r in STRONGER if left >= (from_ - 1) * cost), None)
        return (() if more is None else iterations_set(iterations * more[0], restarts * more[1], quick)), []
    short, few = fewer_iterations(settings, cost, limit)
    if (short, few) == (iterations, restarts):
        return (), []
    whole = f"{INVERSION} with {times(iterations, 'iteration')} and {times(restarts, 'restart')} ({_about(cost)})"
    return iterations_set(short, few, quick), [f"{whole} ran with {short} and {few}"]


def _about(minutes: float) -> str:
    """Of trainings that differ by luck alone one number: half minutes, and whole ones from two on.

    >>> _about(7.44), _about(1.2), _about(0.1)
    ('about 7 minutes', 'about 1.0 minutes', 'under half a minute')
    """
    if minutes >= 2:
        return f"about {minutes:.0f} minutes"
    if minutes < 0.5:
        return "under half a minute"
    return f"about {round(2 * minutes) / 2} minutes"


def not_tried(results: Results, plan: AttackPlan) -> tuple[str, ...]:
    """Each attack that did not run, or not for long, or in vain, with why."""
    ran = {leak.attack for leak in outcome_of([results]).leaks} | {CANARY}
    return (*plan.not_run, *(f"{name} (it ran; nothing of it can be scored)" for name in plan.names if name not in ran))
