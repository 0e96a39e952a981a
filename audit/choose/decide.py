"""Which settings could be recommended, in which order; and what stands in the way where none can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from ..say import study as say
from .again import Again
from .case import StudyCase
from .goals import Goals, Kept
from .outcome import Performance
from .space import said
from .trial import Trial

MOST_AGAIN = 6  # settings attacked again before a study gives up


def candidates(case: StudyCase, trials: Sequence[Trial]) -> list[Trial]:
    """The measured trials that keep every goal by their estimates, the best first."""
    own = [t for t in trials if t.state == "measured" and t.outcome is not None]
    kept = [t for t in own if all(k.kept for k in case.goals.judged(t.outcome, t.epsilon))]
    return sorted(kept, key=lambda t: (*_order(case, t), t.number))


def first_that_keeps(
    case: StudyCase, trials: Sequence[Trial], attacked: Callable[[Trial], Again]
) -> tuple[Trial | None, list[Again]]:
    """The first candidate that keeps its goals when attacked again, None where none of `MOST_AGAIN` does; and all that
    were, in order.
    """
    tried: list[tuple[Trial, Again]] = []
    for trial in candidates(case, trials):
        if sum(bool(again.attacks) for _, again in tried) == MOST_AGAIN:
            break
        if not worth_trying(case, trial, tried):
            continue
        tried.append((trial, attacked(trial)))
        if tried[-1][1].keeps(case, trial):
            return trial, [again for _, again in tried]
    return None, [again for _, again in tried]


def worth_trying(case: StudyCase, trial: Trial, failed: Sequence[tuple[Trial, Again]]) -> bool:
    """Whether it may be better, in what they failed by, than each that failed: what the search saw no more accurate
    with no less noise, or leak no less and be proven no better, would fail too.
    """
    for other, again in failed:
        if again.outcome is None:  # which says nothing of its goals
            continue
        missed = again.missed(case, other)
        by_model = [k for k in missed if k.by == "measurement"]
        if by_model and _worth(case, trial) <= _worth(case, other) and not _less_noise(trial, other):
            return False
        if len(by_model) < len(missed) and not _protects_more(trial, other):
            return False
    return True


def _worth(case: StudyCase, trial: Trial) -> float:
    return case.goals.worth(trial.outcome or Performance()) or 0.0


def _less_noise(trial: Trial, other: Trial) -> bool:
    """By what is proven: of the accuracies of two single trainings the larger one may have had luck."""
    return (trial.epsilon or inf) > (other.epsilon or inf)


def _protects_more(trial: Trial, other: Trial) -> bool:
    own, its = trial.leakage, other.leakage
    return own is None or its is None or own < its or (trial.epsilon or inf) < (other.epsilon or inf)


def front(trials: Sequence[Trial], goals: Goals) -> list[Trial]:
    """The measured trials than which no other is as good in accuracy, leakage and proven ε and better in one."""
    own = [t for t in trials if t.state == "measured" and t.outcome is not None]

    def values(trial: Trial) -> tuple[float, float, float]:
        assert trial.outcome is not None
        worth, leakage = goals.worth(trial.outcome), trial.leakage
        return (
            inf if worth is None else -worth,
            inf if leakage is None else leakage,
            inf if trial.epsilon is None else trial.epsilon,
        )

    def beaten(trial: Trial) -> bool:
        mine = values(trial)
        return any(all(a <= b for a, b in zip(values(t), mine)) and values(t) != mine for t in own)

    return [trial for trial in own if not beaten(trial)]


@dataclass(frozen=True, eq=False)
class Obstacle:
    """Why nothing is recommended. goal: the one that stands in the way, in words. nearest: the trial that comes closest
    to all goals; None where nothing was measured. unsure: goals that the nearest keeps by its estimates, and whose
    intervals are too wide to show it.
    """

    goal: str
    nearest: Trial | None
    sentence: str
    unsure: tuple[str, ...] = ()


def obstacle(case: StudyCase, trials: Sequence[Trial], tried: Sequence[Again]) -> Obstacle:
    """What stands in the way: the one goal that the nearest setting misses, or that without which most would do."""
    again = {a.trial: a for a in tried}

    def judged(trial: Trial) -> list[Kept]:
        outcome: Performance | None = trial.outcome
        if trial.number in again:
            fresh = again[trial.number]
            outcome = fresh.outcome
            if not fresh.attacks and outcome is not None and trial.outcome is not None:
                # What the search's attacks got; a new one, as a copy would keep what was computed of no leaks.
                outcome = Performance(**{**dict(outcome), "leaks": trial.outcome.leaks})
        return case.goals.judged(outcome, trial.epsilon)

    goals = case.goals.words

    def missed(trial: Trial, kept: Kept) -> bool:
        """Where it was to be measured: a setting that was dropped for one goal says nothing of the others."""
        if trial.number in again:
            return kept.goal in [k.goal for k in again[trial.number].missed(case, trial)]
        return (kept.value is not None or trial.state == "measured") and not kept.kept

    misses = [[missed(t, k) for k in judged(t)] for t in trials]
    alone = [sum(miss[i] and sum(miss) == 1 for miss in misses) for i in range(len(goals))]
    often = [sum(miss[i] for miss in misses) for i in range(len(goals))]
    binding = max(range(len(goals)), key=lambda i: (alone[i], often[i]))
    # What keeps all by the search's estimates and was not trained again is no better than what was, and failed.
    no_better = {t.number for t in trials if tried and t.number not in again and all(k.kept for k in judged(t))}
    looked = [t for t in trials if (t.outcome is not None or t.epsilon is not None) and t.number not in no_better]
    nearest = min(looked, key=lambda t: (_excess(judged(t)), t.number not in again, t.number), default=None)
    if nearest is None:
        return Obstacle(goals[binding], None, say.none_keeps(goals[binding]))
    missing = [i for i, kept in enumerate(judged(nearest)) if missed(nearest, kept)]
    if len(missing) == 1:  # what the nearest misses is what is said beside it
        binding = missing[0]
    return _of_nearest(case, nearest, goals[binding], judged(nearest), again.get(nearest.number))


def _of_nearest(case: StudyCase, nearest: Trial, goal: str, judged: Sequence[Kept], again: Again | None) -> Obstacle:
    """goal: what the nearest setting misses. judged: all its goals. again: what came of it when attacked again."""
    values = [f"{kept.goal}: {kept.said}" for kept in judged]
    unsure = tuple(kept.goal for kept in judged if not kept.shown)
    if not all(kept.kept for kept in judged):
        unsure = ()
    if case.selects:
        sentence = say.selected_misses(goal, said(nearest.point), values)
    else:
        sentence = say.nearest_setting(goal, said(nearest.point), values, alone=len(judged) == 1)
        sentence += say.goals_unsure(unsure)
    if again is not None and case.goals.beyond_training(again.without_noise, again.areas_without_noise):
        sentence += say.MISSED_WITHOUT_NOISE
    return Obstacle(goal, nearest, sentence, unsure)


def _excess(judged: Sequence[Kept]) -> tuple[float, float]:
    """The largest miss of what was measured, then their sum."""
    missed = [min(k.excess, 1e9) for k in judged if k.value is not None]
    return max(missed, default=0.0), sum(missed)


def _order(case: StudyCase, trial: Trial) -> tuple[float, ...]:
    assert trial.outcome is not None
    return case.goals.order(trial.outcome, trial.epsilon)


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A neighbour of the recommended setting: one key a step up or down."""

    key: str
    up: bool
    trial: Trial


def steps(case: StudyCase, trials: Sequence[Trial], chosen: Trial) -> list[Neighbour]:
    """For every key the trained trial next to the chosen one on either side, all else equal."""
    found = []
    for key in case.space.keys:
        mine = chosen.point[key]
        others = [
            t
            for t in trials
            if t.outcome is not None
            and all(t.point[k] == chosen.point[k] for k in case.space.keys if k != key)
            and t.point[key] != mine
        ]
        if isinstance(mine, int | float) and not isinstance(mine, bool):
            numbers = [t for t in others if isinstance(t.point[key], int | float)]
            above = min((t for t in numbers if t.point[key] > mine), key=lambda t: t.point[key], default=None)
            below = max((t for t in numbers if t.point[key] < mine), key=lambda t: t.point[key], default=None)
            found += [Neighbour(key, up, t) for up, t in ((False, below), (True, above)) if t is not None]
        else:
            found += [Neighbour(key, True, t) for t in others]
    return found
