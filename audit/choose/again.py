"""The recommendation attacked again: fresh seeds, stronger attacks, every one that applies, limits of intervals.

What a search finds best was partly lucky, and its attacks were short. So nothing is recommended by the search's own
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ...attacks.inversion.attack import Inversion
from ...defenses.progress import Progress
from ...defenses.workers import HERE, Workers
from .. import run as runner
from ..files import write_json
from ..results.format import Results
from ..run import RunOptions
from ..setup.capture import Training
from ..setup.config import CANARY
from ..setup.folder import open_setup
from ..setup.reading import plain_json, present, read_text
from .case import StudyCase
from .goals import Kept
from .outcome import MOST_MESSAGES, Performance, outcome_of
from .trial import Trial, clear_setups, train_whole, trained_outcome

STRONGER = ((4.0, 2, 2), (2.0, 1, 2), (0.0, 1, 1))  # from so many times its minutes: iterations ×, restarts ×
FILE = "again.json"


class Again(BaseModel):
    """A trial, trained and attacked anew.

    outcome: of all seeds. baselines: how many trainings there were without clip and noise, and without_noise: their
    accuracies. attacks: what ran. not_tried: what did not, with why.
    """

    model_config = ConfigDict(frozen=True)

    trial: int
    seeds: tuple[int, ...]
    outcome: Performance | None
    baselines: int = 0
    without_noise: tuple[float, ...] = ()
    attacks: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()

    def judged(self, case: StudyCase, trial: Trial) -> list[Kept]:
        return case.goals.judged(self.outcome, trial.epsilon)

    def keeps(self, case: StudyCase, trial: Trial) -> bool:
        """Whether every goal is kept by the limit of its interval, and no attack got more than the proof allows."""
        if self.outcome is None or self.outcome.contradicted:
            return False
        return all(kept.shown for kept in self.judged(case, trial))


@dataclass(frozen=True, eq=False)
class _Chosen:
    """What a setup is attacked with."""

    names: tuple[str, ...]
    overrides: tuple[str, ...]
    not_run: tuple[str, ...]


def again_folder(study: Path, trial: int, seed: int) -> Path:
    return study / "again" / f"{trial:04d}" / f"seed-{seed}"


def attack_again(
    case: StudyCase, study: Path, trial: Trial, progress: Progress | None, workers: Workers = HERE
) -> Again:
    """Train `case.seeds` times with seeds that the search never had, and attack as hard as `case.minutes` allow.

    Args:
        case: the study. study: its folder. trial: what seemed best.
        progress: called with work done and in all. workers: who trains and attacks.
    """
    path = study / "again" / f"{trial.number:04d}" / FILE
    if present(path):
        return Again.model_validate(plain_json(read_text(path)))
    folders = [again_folder(study, trial.number, i) for i in range(case.seeds)]
    seeds = tuple(case.fresh_seed(i) for i in range(case.seeds))
    trainings = [
        Training(
            case.to_train(trial.point, seed, MOST_MESSAGES), folder / "setup", case.key_of("again", trial.number, i)
        )
        for i, (seed, folder) in enumerate(zip(seeds, folders))
    ]
    plain = [
        Training(experiment, folder / "plain", case.key_of("plain", trial.number, i))
        for i, (seed, folder) in enumerate(zip(seeds, folders))
        if case.baseline and (experiment := case.without_noise(trial.point, seed)) is not None
    ]
    _ = list(workers.map(train_whole, [[*trainings, *plain]], lambda _: progress))
    unprotected = [outcome for t in plain if (outcome := trained_outcome(t.folder)) is not None]
    searched = frozenset() if trial.outcome is None else frozenset(leak.attack for leak in trial.outcome.leaks)
    results = _attacked(case, folders, searched, progress, workers)
    ran = dict.fromkeys(entry.attack for r in results or () for entry in r.attacks)
    lacks = () if results is None else _chosen(case, folders[0] / "setup", searched, with_canary=True).not_run
    made = Again(
        trial=trial.number,
        seeds=seeds,
        outcome=None if results is None else outcome_of(results),
        baselines=len(plain),
        without_noise=tuple(outcome.accuracy for outcome in unprotected if outcome.accuracy is not None),
        attacks=tuple(ran),
        not_tried=lacks,
    )
    write_json(path, made.model_dump(mode="json"))
    for training in (*trainings, *plain):
        clear_setups(training.folder.parent, training.folder.name)
    return Again.model_validate(plain_json(read_text(path)))


def _attacked(
    case: StudyCase, folders: Sequence[Path], searched: frozenset[str], progress: Progress | None, workers: Workers
) -> list[Results] | None:
    """None where one of the trainings diverged. searched: what the search attacked it with."""
    if any(open_setup(folder / "setup").manifest.status == "diverged" for folder in folders):
        return None
    results = []
    for i, folder in enumerate(folders):
        chosen = _chosen(case, folder / "setup", searched, with_canary=i == 0)
        options = replace(_options(case), minutes=None, attacks=chosen.names, overrides=chosen.overrides)
        job = runner.opened(folder / "setup", options)
        results.append(runner.carry_out(job, folder / "results", force=True, progress=progress, workers=workers))
    return results


def _options(case: StudyCase) -> RunOptions:
    return RunOptions(seed=case.config.seed + 1, pixels_only=True, allow_model=case.allow_model)


def _chosen(case: StudyCase, setup: Path, searched: frozenset[str], with_canary: bool) -> _Chosen:
    """All attacks of the search, however long they take, and every other one that applies, the cheapest first, as far
    as this seed's share of the minutes goes; what is left goes into more iterations and restarts of the inversion. A
    canary audits one of the seeds.
    """
    share = case.minutes / case.seeds
    choice = runner.opened(setup, replace(_options(case), minutes=1e6)).choice
    assert choice is not None
    names: list[str] = []
    left, late = share, []
    costs = sorted((float(ran.minutes), ran.attack) for ran in choice.ran)
    for cost, name in sorted(costs, key=lambda one: one[1] not in searched):
        if name == CANARY and not with_canary:
            continue
        if names and name not in searched and cost > left:
            late.append(f"{name} (about {cost:.2g} minutes, when {left:.2g} of {share:.2g} were left)")
            continue
        names.append(name)
        left -= cost
    overrides: tuple[str, ...] = ()
    inversion = next((cost for cost, name in costs if name == "inversion" and name in names), None)
    if inversion:
        _, iterations, restarts = next(one for one in STRONGER if left >= (one[0] - 1) * inversion or one[0] == 0)
        given = case.config.attack.get("inversion", {})
        count = given.get("iterations", Inversion.iterations)
        times = given.get("restarts", Inversion.restarts)
        if isinstance(count, int) and isinstance(times, int):
            overrides = (f"inversion.iterations={count * iterations}", f"inversion.restarts={times * restarts}")
    return _Chosen(tuple(names), overrides, (*(f"{n.attack} ({n.reason})" for n in choice.not_run), *late))
