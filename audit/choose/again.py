"""The recommendation attacked again: fresh seeds, stronger attacks, every one that applies, limits of intervals.

What a search finds best was partly lucky, and its attacks were short. So nothing is recommended by the search's own
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...attacks.inversion.make import QUICKER
from ...defenses.progress import Progress, part_of
from ...defenses.workers import HERE, Workers
from .. import run as runner
from ..errors import BadInput
from ..files import write_json
from ..results.format import Results
from ..run import RunOptions
from ..setup.capture import Training
from ..setup.folder import open_setup
from ..setup.reading import plain_json, present, read_text
from .attacks import AttackPlan, not_tried, plan_attacks
from .case import Drawn, StudyCase
from .goals import Kept
from .outcome import Performance, outcome_of, trained_together
from .trial import Trial, clear_setups, train_whole, trained_outcome

FILE, MORE_FILE = "again.json", "more.json"
DIVERGED = "training diverged with a fresh seed"
INACCURATE = "every attack on a setting that was trained again, as its model keeps no limit on accuracy or AUC"
ALONE = 16  # messages that an inversion reads each alone at most: those with the least noise
MOST_TIMES = 4  # as many trainings as were asked for, where only wide intervals stand in the way


class Again(BaseModel):
    """A trial, trained and attacked anew.

    outcome: of all seeds; None: why there is none. baselines: how many trainings there were without clip and noise;
    without_noise, areas_without_noise: their accuracies and AUC. attacks: what ran. not_tried: what did not, with why.
    weaker: what `audit run` would do of its own accord and this did not, or not for as long; minutes: of a study that
    would. counted: minutes of attacks that a seed takes. looks: how often its intervals were judged, with more seeds
    each time.
    """

    model_config = ConfigDict(frozen=True)

    trial: int
    seeds: tuple[int, ...]
    outcome: Performance | None
    why: str = ""
    baselines: int = 0
    without_noise: tuple[float, ...] = ()
    areas_without_noise: tuple[float, ...] = ()
    attacks: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    minutes: float = 0.0
    counted: float = 0.0
    looks: int = 1

    def unsure(self, case: StudyCase, trial: Trial) -> bool:
        """Whether it keeps every goal by its estimates, and only wide intervals stand in the way."""
        if self.outcome is None or self.outcome.contradicted:
            return False
        return all(kept.kept for kept in self.judged(case, trial)) and not self.keeps(case, trial)

    def judged(self, case: StudyCase, trial: Trial) -> list[Kept]:
        return case.goals.judged(self.outcome, trial.epsilon)

    def missed(self, case: StudyCase, trial: Trial) -> list[Kept]:
        """Goals that are not shown; of trainings that were not attacked, without those of attacks."""
        return [k for k in self.judged(case, trial) if not k.shown and (self.attacks or k.value is not None)]

    def keeps(self, case: StudyCase, trial: Trial) -> bool:
        """Whether every goal is shown to be kept, and no attack got more than the proof allows."""
        if self.outcome is None or self.outcome.contradicted:
            return False
        return all(kept.shown for kept in self.judged(case, trial))


def again_folder(study: Path, trial: int, seed: int) -> Path:
    return study / "again" / f"{trial:04d}" / f"seed-{seed}"


def attack_again(
    case: StudyCase, study: Path, trial: Trial, progress: Progress | None, workers: Workers = HERE
) -> Again:
    """Train `case.seeds` times with seeds that the search never had, and attack as hard as `case.again_minutes` allow;
    not where it is less accurate than is asked.

    Args:
        case: the study. study: its folder. trial: what seemed best.
        progress: called with work done and in all. workers: who trains and attacks.
    """
    path = study / "again" / f"{trial.number:04d}" / FILE
    if present(path):
        return Again.model_validate(plain_json(read_text(path)))
    folders, drawn, trainings = _trainings(case, study, trial, range(case.seeds))
    plain = [
        Training(experiment, folder / "plain", case.key_of("plain", trial.number, i))
        for i, (d, folder) in enumerate(zip(drawn, folders))
        if case.baseline and (experiment := case.without_noise(trial.point, d.seed)) is not None
    ]
    _ = list(workers.map(train_whole, [[*trainings, *plain]], lambda _: progress))
    trained = trained_together([trained_outcome(training.folder) for training in trainings])
    if trained is not None and case.goals.out_of_reach(trained):
        found: dict[str, Any] = {"outcome": trained, "not_tried": (INACCURATE,)}
    else:
        found = _attacked(case, folders, frozenset(trial.attacks), progress, workers)
    unprotected = [outcome for t in plain if (outcome := trained_outcome(t.folder)) is not None]
    made = Again(
        trial=trial.number,
        seeds=tuple(d.seed for d in drawn),
        baselines=len(plain),
        without_noise=tuple(outcome.accuracy for outcome in unprotected if outcome.accuracy is not None),
        areas_without_noise=tuple(outcome.area for outcome in unprotected if outcome.area is not None),
        **found,
    )
    write_json(path, made.model_dump(mode="json"))
    for training in (*trainings, *plain):
        clear_setups(training.folder.parent, training.folder.name)
    return Again.model_validate(plain_json(read_text(path)))


def attack_more(
    case: StudyCase, study: Path, trial: Trial, again: Again, progress: Progress | None, workers: Workers = HERE
) -> Again:
    """A trial that was attacked again, with further seeds: as many as another `case.again_minutes` of attacks hold, up
    to `MOST_TIMES` those of before.

    Args:
        case: the study. study: its folder. trial: the setting. again: what came of the first seeds, which count too.
        progress: called with work done and in all. workers: who trains and attacks.
    """
    path = study / "again" / f"{trial.number:04d}" / MORE_FILE
    if present(path):
        return Again.model_validate(plain_json(read_text(path)))
    fit = int(case.again_minutes / max(again.counted, 1e-9))
    further = min(max(fit, case.seeds), MOST_TIMES * case.seeds)
    folders, drawn, trainings = _trainings(case, study, trial, range(case.seeds, case.seeds + further))
    _ = list(workers.map(train_whole, [trainings], lambda _: progress))
    before = [again_folder(study, trial.number, i) / "results" for i in range(case.seeds)]
    known = [Results.read(folder) for folder in before if present(folder)]
    found = _attacked(case, folders, frozenset(trial.attacks), progress, workers, known)
    made = again.model_copy(
        update={**found, "seeds": (*again.seeds, *(d.seed for d in drawn)), "looks": again.looks + 1}
    )
    write_json(path, made.model_dump(mode="json"))
    for training in trainings:
        clear_setups(training.folder.parent, training.folder.name)
    return Again.model_validate(plain_json(read_text(path)))


def _trainings(
    case: StudyCase, study: Path, trial: Trial, numbers: range
) -> tuple[list[Path], list[Drawn], list[Training]]:
    """With fresh seeds of these numbers: their folders, how they were drawn, and what is to be trained."""
    folders = [again_folder(study, trial.number, i) for i in numbers]
    drawn = [case.training(trial.point, case.fresh_of(i), ("again", trial.number, i)) for i in numbers]
    return folders, drawn, [Training(d.experiment, at / "setup", d.key) for d, at in zip(drawn, folders)]


def _attacked(
    case: StudyCase,
    folders: Sequence[Path],
    searched: frozenset[str],
    progress: Progress | None,
    workers: Workers,
    known: Sequence[Results] = (),
) -> dict[str, Any]:
    """What came of attacking every seed, as `Again` has it. A training of which nothing can be attacked, as no audited
    client was drawn, is left out. searched: what the search attacked it with. known: results of other seeds, a canary's
    among them.
    """
    if any(open_setup(folder / "setup").manifest.status == "diverged" for folder in folders):
        return {"outcome": None, "why": DIVERGED}
    plans: list[AttackPlan] = []
    results: list[Results] = []
    refused: list[BadInput] = []
    for i, folder in enumerate(folders):
        try:
            plan = _plan(case, folder / "setup", searched, with_canary=i == 0 and not known)
        except BadInput as why:
            refused.append(why)
            continue
        job = plan.job(_options(case))
        plans.append(plan)
        part = part_of(progress, i / len(folders), (i + 1) / len(folders))
        results.append(runner.carry_out(job, folder / "results", force=True, progress=part, workers=workers))
    if not results:
        return {"outcome": None, "why": f"nothing could be attacked with any fresh seed: {refused[0]}"}
    if refused:
        lost = [f"{len(refused)} of {len(folders)} trainings ({refused[0]})"]
    else:
        lost = []
    return {
        "outcome": outcome_of([*known, *results]),
        "attacks": tuple(dict.fromkeys(entry.attack for r in results for entry in r.attacks)),
        "not_tried": (*not_tried(results[0], plans[0]), *lost),
        "weaker": tuple(dict.fromkeys(what for plan in plans for what in plan.weaker)),
        "minutes": max(plan.minutes for plan in plans) * case.seeds,
        "counted": max(plan.counted for plan in plans),
    }


def _options(case: StudyCase) -> RunOptions:
    """Shares and their limits decide; tests cost more than all attacks together, and one goal alone asks for them."""
    return RunOptions(
        seed=case.config.seed + 1,
        pixels_only=True,
        shares_only=not case.goals.none_above_control,
        device=case.device,
        allow_model=case.allow_model,
    )


def _plan(case: StudyCase, setup: Path, searched: frozenset[str], with_canary: bool) -> AttackPlan:
    """As many attacks as this seed's share of the minutes holds. An inversion reads the `ALONE` messages with the least
    noise alone and joins all that `audit run` joins, but where it would then have fewer iterations than a quick run's.
    A canary audits one of the seeds.
    """
    share = case.again_minutes / case.seeds
    options = replace(_options(case), canaries=with_canary)
    return plan_attacks(
        setup, options, share, inversion_minutes=share, messages=ALONE, shortest=QUICKER, searched=searched
    )
