"""A batch of points: priced, then those that can still be chosen trained as one, then those left attacked as one.

Nothing that cannot be chosen costs more than it must: what no noise key can keep at the asked ε is never trained, what
is not accurate enough or is beaten already whatever an attack finds is never attacked. It is told why.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, computed_field

from ...defenses.progress import Progress
from ...defenses.workers import Workers
from .. import run as runner
from ..errors import BadInput
from ..files import appears, write_json
from ..results.format import Epsilon, Number
from ..run import RunOptions
from ..say.words import number, percent
from ..setup.auditor import check_setup
from ..setup.capture import Training, check_space, train_together
from ..setup.reading import plain_json, present, read_text
from ..timetable import PlannedStage
from .attacks import AttackPlan, not_tried, plan_attacks
from .case import Drawn, StudyCase
from .outcome import Performance, outcome_of
from .space import Setting

BATCH = 8  # points that are trained and attacked as one
SCREEN_MESSAGES = 4  # that an inversion of a screening reads at most: those with the least noise
UNTOUCHED = "nothing could be attacked"
FILE = "trial.json"


class Trial(BaseModel):
    """A point of the space and what came of it.

    why: it was dropped, "" for none. proof: the row of its proven ε, None where it was not priced. attacks: what it was
    attacked with.
    not_tried: attacks that did not run, or not for long, each with the reason.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    point: Setting
    state: Literal["measured", "dropped"]
    why: str = ""
    proof: Epsilon | None = None
    outcome: Performance | None = None
    attacks: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def epsilon(self) -> Number | None:
        if self.proof is None:
            return None
        return self.proof.proven

    @property
    def accuracy(self) -> float | None:
        if self.outcome is None:
            return None
        return self.outcome.accuracy

    @property
    def leakage(self) -> float | None:
        return None if self.outcome is None else self.outcome.leakage


@dataclass(frozen=True, eq=False)
class Asked:
    """A point to be looked at, by its number."""

    number: int
    point: Setting


def trial_folder(study: Path, number: int) -> Path:
    return study / "trials" / f"{number:04d}"


def read_trial(case: StudyCase, study: Path, number: int) -> Trial | None:
    """What is known of a trial, None where it is not done."""
    path = trial_folder(study, number) / FILE
    if not present(path):
        return None
    try:
        trial = Trial.model_validate(plain_json(read_text(path)))
        return trial.model_copy(update={"point": case.space.ordered(trial.point)})
    except (ValueError, KeyError) as error:
        raise BadInput(
            f"{path} is damaged ({str(error).splitlines()[0]}); use --force to begin the study anew"
        ) from None


@dataclass(frozen=True, eq=False)
class Batch:
    """Points that are trained and attacked as one. like: the trials that looked at the same point before, by number."""

    asked: tuple[Asked, ...]
    like: Mapping[int, int]


def in_batches(points: Sequence[Asked], before: Sequence[Asked]) -> list[Batch]:
    """Points as batches, in order. before: those that were asked for before them."""
    first: dict[str, int] = {}
    like: dict[int, int] = {}
    for one in (*before, *points):
        if (number := first.setdefault(repr(sorted(one.point.items())), one.number)) != one.number:
            like[one.number] = number
    return [Batch(tuple(points[i : i + BATCH]), like) for i in range(0, len(points), BATCH)]


def prepared(case: StudyCase, study: Path, batch: Batch, progress: Progress | None) -> list[Trial]:
    """A batch priced, and what can still be chosen trained into the trials' folders. What comes of other batches does
    not matter here, so several can be prepared at once.

    Args:
        case: the study. study: its folder. batch: of points.
        progress: called with work done and in all.

    Returns:
        A trial for each point, with why it was dropped if it was.
    """
    if (done := _done(case, study, batch)) is not None:
        return done
    trials = []
    for i, one in enumerate(batch.asked):
        if progress is not None:
            progress(i, len(batch.asked), "pricing settings")
        # Of a private selection each candidate is drawn and trained by itself.
        trials.append(_priced(case, one, None if case.selects else batch.like.get(one.number)))
    left = [one for one, trial in zip(batch.asked, trials) if not trial.why]
    if isinstance(progress, PlannedStage):  # not where another process does this
        progress.has("training", len(left))
        progress.has("attacks", len(left))
    _train(case, study, left, progress)
    return trials


def look_at(
    case: StudyCase,
    study: Path,
    batch: Batch,
    priced: Sequence[Trial],
    before: Sequence[Trial],
    progress: PlannedStage,
    workers: Workers,
) -> list[Trial]:
    """What comes of a batch; the same, byte for byte, however often it was killed in the middle.

    Args:
        case: the study. study: its folder.
        batch: of points. priced: as it was `prepared`. before: the trials of the batches before it.
        progress: of the batch, with "attacks". workers: who attacks.

    Raises:
        BadInput: what a worker trained is not seen here.
    """
    if (done := _done(case, study, batch)) is not None:
        return done
    trials = {trial.number: trial for trial in priced}
    left = [trial.number for trial in priced if not trial.why]
    for n in list(left):
        setup = trial_folder(study, n) / "setup"
        if not appears(setup):
            raise BadInput(
                f"{setup} was trained and is not seen here; with --ray all machines must share {study} (NFS)"
            )
        trained = trained_outcome(setup)
        if case.selects and trained is not None:
            trials[n] = trials[n].model_copy(update={"state": "measured", "outcome": trained})
            left.remove(n)
        elif (why := _hopeless(case, trials[n], trained, before)) is not None:
            trials[n] = trials[n].model_copy(update={"why": why, "outcome": trained})
            left.remove(n)
    progress.has("attacks", len(left))
    for n, measured in _attack(case, study, left, progress, workers).items():
        trials[n] = trials[n].model_copy(update={"state": "measured", **measured})
    for n, trial in trials.items():
        write_json(trial_folder(study, n) / FILE, trial.model_dump(mode="json"))
    return _done(case, study, batch) or []  # as written, where ∞ is a word


def _done(case: StudyCase, study: Path, batch: Batch) -> list[Trial] | None:
    found = [trial for one in batch.asked if (trial := read_trial(case, study, one.number)) is not None]
    if len(found) == len(batch.asked):
        return found
    return None


def clear(study: Path, asked: Sequence[Asked]) -> None:
    """Once they are told: the setups, whose results stay, and which their key makes again."""
    for one in asked:
        clear_setups(trial_folder(study, one.number), "setup")


def clear_setups(folder: Path, name: str) -> None:
    """A setup that `train_whole` made, and what was left of attempts at it."""
    for path in (folder / name, *folder.glob(f"{name}-*")):
        shutil.rmtree(path, ignore_errors=True)


def _priced(case: StudyCase, one: Asked, like: int | None) -> Trial:
    """A trial that says why it is dropped already, if it is. like: the trial that looked at the same point."""
    trial = Trial(number=one.number, point=one.point, state="dropped")
    if like is not None:
        return trial.model_copy(update={"why": f"the same as trial {like}"})
    try:
        proof = case.priced(one.point)
        check_space(_drawn(case, one).experiment)
    except BadInput as error:
        return trial.model_copy(update={"why": f"no such setting: {error}"})
    limit, epsilon = case.goals.epsilon_at_most, inf if proof.proven is None else proof.proven
    if limit is None or epsilon <= limit:
        why = ""
    else:
        why = f"never trained: proven ε {number(epsilon)} > {number(limit)}"
    return trial.model_copy(update={"proof": proof, "why": why})


def _train(case: StudyCase, study: Path, asked: Sequence[Asked], progress: Progress | None) -> None:
    drawn = [(_drawn(case, one), trial_folder(study, one.number) / "setup") for one in asked]
    train_whole([Training(d.experiment, folder, d.key) for d, folder in drawn], progress)


def _drawn(case: StudyCase, one: Asked) -> Drawn:
    return case.training(one.point, case.search_seed, ("trial", one.number))


def train_whole(trainings: Sequence[Training], progress: Progress | None) -> None:
    """All of them in lock-step, or none: in other company, as after a kill, their last bits would differ.

    Each attempt has folders of its own, which take their places at its end: a worker that was given up may still be at
    it when the next one begins.
    """
    if all(_whole(training.folder) for training in trainings):
        return
    attempt = uuid4().hex
    own = [replace(t, folder=t.folder.with_name(f"{t.folder.name}-{attempt}")) for t in trainings]
    train_together(own, progress=progress)
    for training, made in zip(trainings, own):
        if not _whole(training.folder):
            shutil.rmtree(training.folder, ignore_errors=True)
            made.folder.rename(training.folder)
        shutil.rmtree(made.folder, ignore_errors=True)


def _whole(setup: Path) -> bool:
    """Whether training into it has ended, and nothing of a killed command is left."""
    try:
        status = plain_json(read_text(setup / "setup.json")).get("status")
    except (BadInput, ValueError, AttributeError, OSError):
        return False
    return status in ("complete", "diverged") and not (setup / ".work").exists()


def trained_outcome(setup: Path) -> Performance | None:
    """What the training in a setup's folder tells by itself, None where it diverged."""
    found, auditor = check_setup(setup)
    if found.manifest.status == "diverged":
        return None
    last = auditor.rounds[-1] if auditor.rounds else {}
    accuracy, area, loss = (last.get(name) for name in ("test_accuracy", "test_auc", "test_loss"))
    sizes = found.manifest.data.description.get("sizes", {})
    return Performance(
        accuracies=() if accuracy is None else (accuracy,),
        test_records=sizes.get("test"),
        guessing=last.get("majority_accuracy"),
        areas=() if area is None else (area,),
        losses=() if loss is None else (loss,),
    )


def _hopeless(case: StudyCase, trial: Trial, trained: Performance | None, before: Sequence[Trial]) -> str | None:
    """Why an attack on it could change nothing, None where it could."""
    if trained is None:
        return "training diverged"
    goals = case.goals
    least, limits = goals.accuracy_at_least, trained.accuracy_limits
    if least is not None and limits is not None and limits[1] < least:
        return f"not attacked: accuracy {percent(trained.accuracy, 3)}, too far below {percent(least, 3)}"
    least, limits = goals.auc_at_least, trained.area_limits
    if least is not None and limits is not None and limits[1] < least:
        return f"not attacked: AUC {number(trained.area, 3)}, too far below {number(least, 3)}"
    worth, epsilon = goals.worth(trained), inf if trial.epsilon is None else trial.epsilon
    for other in before:
        its = None if other.outcome is None else goals.worth(other.outcome)
        if its is None or other.leakage is None or worth is None:
            continue
        own = inf if other.epsilon is None else other.epsilon
        better = its > worth or own < epsilon
        if other.leakage <= 0 and its >= worth and own <= epsilon and better:
            return f"not attacked: trial {other.number} is as good in everything, whatever an attack finds here"
    return None


def screening(case: StudyCase) -> RunOptions:
    """How settings of the search are attacked."""
    return RunOptions(
        canaries=False,
        quick=True,
        pixels_only=True,
        shares_only=True,
        seed=case.config.seed,
        device=case.device,
        allow_model=case.allow_model,
    )


def _attack(
    case: StudyCase, study: Path, numbers: Sequence[int], progress: Progress | None, workers: Workers
) -> dict[int, dict[str, Any]]:
    """By trial: what was measured, by which attacks, and what was not tried; of one of which nothing can be attacked,
    as no audited client was drawn, why.
    """
    options = screening(case)
    setups = {n: trial_folder(study, n) / "setup" for n in numbers}
    plans: dict[int, AttackPlan] = {}
    refused: dict[int, BadInput] = {}
    for n, setup in setups.items():
        try:
            plans[n] = plan_attacks(setup, options, case.screen_minutes, messages=SCREEN_MESSAGES)
        except BadInput as why:
            refused[n] = why
    found: dict[int, dict[str, Any]] = {
        n: {"state": "dropped", "why": f"{UNTOUCHED}: {why}", "outcome": trained_outcome(setups[n])}
        for n, why in refused.items()
    }
    if plans:
        jobs = [plan.job(options) for plan in plans.values()]
        outputs = [trial_folder(study, n) / "results" for n in plans]
        results = runner.carry_out_together(jobs, outputs, force=True, progress=progress, workers=workers)
        for (n, plan), r in zip(plans.items(), results):
            found[n] = {"outcome": outcome_of([r]), "attacks": plan.names, "not_tried": not_tried(r, plan)}
    return found
