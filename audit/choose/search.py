"""Which points a study looks at: Optuna asks, a batch at a time, and is told what came of each.

Optuna's sqlite file is written by this process alone. The sampler of trial n is seeded with the config's seed and n,
and sees what was told before, so a killed study asks for the same points again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .case import StudyCase
from .space import Setting, Span, Values
from .trial import BATCH, Asked, Trial

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages import RDBStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

FILE = "study.sqlite3"  # opens in optuna-dashboard
LARGEST = 1e9  # what an infinite ε is to the sampler, which has no other use for it
STARTUP = 6  # points at random before the sampler has something to go by, where there is no grid to begin with
CONSTRAINTS = "constraints"

LookAt = Callable[[Sequence[Asked], Sequence[Trial]], Iterator[list[Trial]]]


def searched(case: StudyCase, folder: Path, look_at: LookAt, told: Callable[[Sequence[Asked]], None]) -> list[Trial]:
    """All trials of a study, in order.

    Args:
        case: the study. folder: its folder.
        look_at: what comes of points, batch by batch, given the trials before them.
        told: called with a batch that Optuna knows of.
    """
    from optuna.storages import RDBStorage

    storage = RDBStorage(f"sqlite:///{folder / FILE}")
    try:
        return _searched(case, _opened(case, storage), look_at, told)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _searched(case: StudyCase, study: Study, look_at: LookAt, told: Callable[[Sequence[Asked]], None]) -> list[Trial]:
    trials: list[Trial] = []
    while len(trials) < case.count:
        end = max(_known(case, case.count), min(len(trials) + BATCH, case.count))
        points = {n: _asked(case, study, n) for n in range(len(trials), end)}
        for found in look_at(list(points.values()), tuple(trials)):
            for trial in found:
                _tell(case, study, trial)
            told([points[trial.number] for trial in found])
            trials += found
    return trials


def _known(case: StudyCase, count: int) -> int:
    """Of how many trials the points are known from the beginning: whole batches that hang on no result."""
    if case.search == "random":
        return count
    designed = len(case.space.design(case.trials)[: case.trials])
    if designed >= count:
        return count
    return designed // BATCH * BATCH


def _opened(case: StudyCase, storage: RDBStorage) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(
            study_name="dpfl-audit",
            storage=storage,
            directions=["maximize", "minimize", "minimize"],
            load_if_exists=True,
        )
        study.set_metric_names(["accuracy" if case.classifies else "minus the test loss", "leakage", "proven epsilon"])
    if case.search == "auto":
        for point in case.space.design(case.trials)[: case.trials]:
            study.enqueue_trial(_written(case, point), skip_if_exists=True)
    return study


def _asked(case: StudyCase, study: Study, number: int) -> Asked:
    """Trial `number`: as it was asked for by a command before this one, else a new one."""
    from optuna.trial import Trial as Suggesting
    from optuna.trial import TrialState

    there = study.get_trials(deepcopy=False)
    study.sampler = _sampler(case, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if number < len(there) and there[number].state.is_finished():
            return Asked(number, _read(case, there[number].params))
        if number < len(there) and there[number].state == TrialState.RUNNING:
            trial = Suggesting(study, there[number]._trial_id)  # killed in the middle of asking, maybe
        else:
            trial = study.ask()
        assert trial.number == number, "somebody else asks in this study"
        return Asked(number, _read(case, {varied.key: _suggested(trial, varied) for varied in case.space.varied}))


def _suggested(trial: OptunaTrial, varied: Values | Span) -> Any:
    if isinstance(varied, Values):
        return trial.suggest_categorical(varied.key, [_choice(value) for value in varied.values])
    if varied.whole:
        return trial.suggest_int(varied.key, int(varied.low), int(varied.high), log=varied.log)
    return trial.suggest_float(varied.key, varied.low, varied.high, log=varied.log)


def _tell(case: StudyCase, study: Study, trial: Trial) -> None:
    """What came of it; of what was dropped no values, but by how much it missed its goals."""
    from optuna.trial import TrialState

    there = study.get_trials(deepcopy=False)[trial.number]
    if there.state.is_finished():
        return
    excess = [_bounded(kept.excess) for kept in case.goals.judged(trial.outcome, trial.epsilon)]
    study._storage.set_trial_user_attr(there._trial_id, CONSTRAINTS, excess)
    study._storage.set_trial_user_attr(there._trial_id, "why", trial.why)
    outcome = trial.outcome
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worth = None if outcome is None else case.goals.worth(outcome)
        if trial.state == "dropped" or outcome is None or worth is None or outcome.leakage is None:
            study.tell(trial.number, state=TrialState.PRUNED)
            return
        study.tell(trial.number, [worth, outcome.leakage, _bounded(trial.epsilon)])


def _bounded(value: float | None) -> float:
    if value is None:
        return LARGEST
    return min(value, LARGEST)


def _sampler(case: StudyCase, number: int) -> BaseSampler:
    from optuna.samplers import RandomSampler, TPESampler

    secret = f" {case.key}" if case.selects else ""  # candidates are drawn alike, and nobody knows which
    digest = hashlib.sha256(f"dpfl-audit study {case.config.seed} {number}{secret}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    if case.search == "random":
        return RandomSampler(seed)

    def constraints(trial: FrozenTrial) -> Sequence[float]:
        return tuple(trial.user_attrs.get(CONSTRAINTS, [0.0] * len(case.goals.judged(None, None))))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both are marked as experimental
        return TPESampler(
            seed=seed,
            n_startup_trials=STARTUP,
            multivariate=True,
            constant_liar=True,
            constraints_func=constraints if case.goals.judged(None, None) else None,
        )


def _choice(value: Any) -> Any:
    """What Optuna can store: a list as its JSON."""
    if isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value)


def _written(case: StudyCase, point: Setting) -> dict[str, Any]:
    return {v.key: _choice(point[v.key]) if isinstance(v, Values) else point[v.key] for v in case.space.varied}


def _read(case: StudyCase, params: dict[str, Any]) -> Setting:
    point: Setting = {}
    for varied in case.space.varied:
        value = params[varied.key]
        if isinstance(varied, Span):
            point[varied.key] = varied.rounded(value)
        else:
            point[varied.key] = next(known for known in varied.values if _choice(known) == value)
    return point
