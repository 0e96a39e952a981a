"""A whole study: search, decide, attack again, write; and what it came to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from typing import Any

import torch

from ...defenses.progress import Progress
from ...defenses.workers import HERE, Workers
from ..devices import device_named
from ..errors import BadInput
from ..files import remove_all, write_bytes, write_json
from ..lock import empty, writing
from ..options import Rows, Search
from ..setup.config import parse_config, read_toml, with_overrides
from ..setup.experiment import TooManyRecords
from ..setup.key import read_key
from ..setup.reading import present, read_text
from .again import Again, attack_again
from .case import StudyCase
from .decide import Neighbour, Obstacle, first_that_keeps, front, obstacle, steps
from .goals import Goals, with_defaults
from .narrowed import narrowed
from .possible import check_clients, check_goals, rehearse
from .price import SearchPrice, search_price
from .search import searched
from .space import Setting, parse_space, said
from .times import StudyTimes
from .trial import UNTOUCHED, Asked, Batch, Trial, clear, in_batches, look_at, prepared

FILE = "study.json"
KEY_FILE = "auditor/noise-key"
MARK = ".work/digest"
LEAST_SEEDS = 3


@dataclass(frozen=True)
class StudyOptions:
    """What is asked of a study, beside its config.

    vary: each as after `--vary`. goals: what is to be kept. trials: how many points are looked at.
    rows: whose records are trained on; None for auxiliary ones where there are enough, which cost nobody anything.
    search: auto (a grid to begin with, then Optuna's TPE) or random. seeds: how often a recommended setting is trained
    again. minutes: for the attacks on all of these, counted from shapes. baseline: also train it without clip and
    noise; None: on auxiliary records, as it reveals whatever it is trained on. key: of all noise, None for a fresh one.
    device: where inversions compute, one of `options.DEVICES`.
    """

    vary: tuple[str, ...]
    goals: Goals = Goals()
    trials: int = 24
    rows: Rows | None = None
    search: Search = "auto"
    seeds: int = LEAST_SEEDS
    minutes: float = 6.0
    baseline: bool | None = None
    overrides: tuple[str, ...] = ()
    key: str | None = None
    allow_model: str | None = None
    device: str = "auto"


@dataclass(frozen=True, eq=False)
class Study:
    """A study that is done. chosen: the recommended trial, None where nothing keeps the goals; then `obstacle` says
    why. tried: what was attacked again, in order, the recommended one last. beside: settings one step from it, looked
    at like those of the search.
    """

    case: StudyCase
    folder: Path
    trials: tuple[Trial, ...]
    tried: tuple[Again, ...]
    beside: tuple[Trial, ...]
    chosen: Trial | None
    obstacle: Obstacle | None
    price: SearchPrice

    @cached_property
    def front(self) -> list[Trial]:
        return front(self.trials)

    @cached_property
    def steps(self) -> list[Neighbour]:
        return [] if self.chosen is None else steps(self.case, (*self.trials, *self.beside), self.chosen)

    @property
    def again(self) -> Again | None:
        """The recommended setting attacked again."""
        return self.tried[-1] if self.chosen is not None else None

    @property
    def sentence(self) -> str:
        """The answer."""
        if self.chosen is None or self.again is None:
            return "" if self.obstacle is None else self.obstacle.sentence
        kept = "; ".join(f"{k.goal}: {k.said}" for k in self.again.judged(self.case, self.chosen))
        return f"Take {said(self.chosen.point)}. With {len(self.again.seeds)} fresh seeds: {kept}."

    @property
    def useless(self) -> str:
        """That the model of the recommended setting, or of the nearest one, is no better than none; "" where it is."""
        outcome = None if self.again is None else self.again.outcome
        if self.obstacle is not None and (nearest := self.obstacle.nearest) is not None:
            outcome = next((a.outcome for a in self.tried if a.trial == nearest.number), nearest.outcome)
        if outcome is None or not outcome.useless:
            return ""
        return f"{outcome.useless} Train longer, or ask for a larger --accuracy-at-least or --epsilon-at-most."

    @property
    def weaker(self) -> str:
        """That `audit run` would attack the recommended setting harder, "" where it would not."""
        if self.again is None or not self.again.weaker:
            return ""
        return (
            f"`audit run` on this setting attacks longer than --minutes {self.case.minutes:g} allowed here, and may"
            f" find more than is stated; --minutes {ceil(self.again.minutes)} gives all of it (now left out or"
            f" shortened: {'; '.join(self.again.weaker)})."
        )


def opened_case(
    config: Path | dict[str, Any], options: StudyOptions, key: str, base: Path, fewer: str = ""
) -> StudyCase:
    """A study asked for, checked.

    Args:
        config: a TOML file, or its tables. options: what is asked. key: of all noise. base: where relative paths start.
        fewer: why the clients have fewer records than the config asks for.

    Raises:
        BadInput: the config, the space or a goal is wrong; or no point of the space is a setting.
    """
    raw = (
        config
        if isinstance(config, dict)
        else read_toml(config, "config file", "; `audit init > config.toml` writes one")
    )
    source = "" if isinstance(config, dict) else config.read_text(encoding="utf-8")
    raw = with_overrides(raw, options.overrides)
    space = parse_space(options.vary)
    if options.trials < 2:
        raise BadInput(f"--trials {options.trials}: two at least, to choose between")
    if options.seeds < 2:
        raise BadInput(f"--seeds {options.seeds}: two at least, or there is no interval; the default is {LEAST_SEEDS}")
    if not options.minutes > 0:
        raise BadInput(f"--minutes {options.minutes:g}: expected more than 0")
    goals = with_defaults(options.goals)
    case = StudyCase(
        raw=raw,
        base=base,
        space=space,
        goals=goals,
        rows=options.rows or "auxiliary",
        trials=options.trials,
        search=options.search,
        seeds=options.seeds,
        minutes=options.minutes,
        baseline=options.baseline if options.baseline is not None else options.rows != "training",
        key=key,
        allow_model=options.allow_model,
        device=device_named(options.device),
        source=source,
        overrides=options.overrides,
        fewer=fewer,
    )
    try:
        first = _first_setting(case)
    except TooManyRecords as why:
        if fewer or any(key.startswith("data.") for key in space.keys):
            raise
        fitting = (*options.overrides, f"data.samples_per_client={why.fit}")
        return opened_case(config, replace(options, overrides=fitting), key, base, str(why))
    if options.rows is None:
        try:
            case.to_train(first, case.config_of(first).seed)
        except BadInput as why:
            case = replace(
                case, rows="training", baseline=bool(options.baseline), parts={}, no_auxiliary=str(why).rstrip(".")
            )
    case.to_train(first, case.config_of(first).seed)
    check_goals(case)
    check_clients(case, first)
    space, cut_off = narrowed(case)
    return replace(case, first=first, space=space, cut_off=cut_off)


def _first_setting(case: StudyCase) -> Setting:
    """A point that is a setting. Raises BadInput, of the config or of the first one, where none is."""
    why: BadInput | None = None
    for point in case.space.design(max(case.trials, 16)) or case.space.grid(2):
        try:
            case.to_price(point)
        except BadInput as error:
            why = why or error
        else:
            return point
    assert why is not None
    if isinstance(why, TooManyRecords):
        raise why
    try:
        parse_config(case.raw)
    except BadInput as own:
        if str(own) == str(why):  # what varies has nothing to do with it
            raise
    raise BadInput(f"--vary: no point of the space is a setting; of the first, {why}")


def carry_out_study(
    config: Path | dict[str, Any],
    folder: Path,
    options: StudyOptions,
    *,
    base: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    workers: Workers = HERE,
    remark: Callable[[str], None] | None = None,
) -> Study:
    """Carry out a study in `folder`; given again, a killed one goes on, and a finished one is read.

    Args:
        config: a TOML file, or its tables. folder: of the study. options: what is asked.
        base: where relative paths of the config start; None for the file's folder.
        force: replace another study in the folder.
        progress: called with work done and in all.
        workers: who prices, trains and attacks; this process alone asks for points and writes what came of them.
        remark: told before anything is trained what the search is about to spend, and on how many records.

    Raises:
        BadInput: the request is wrong, the folder holds something else, or nothing of the space can be trained or
            attacked.
    """
    torch.set_flush_denormal(True)  # before the first parallel region: threads started earlier would not inherit it
    start = base if base is not None else config.parent if isinstance(config, Path) else Path()
    case = opened_case(config, options, options.key or _kept_key(folder) or secrets.token_hex(32), start)
    with writing(folder):
        if remark is not None:
            for sentence in case.remarks:
                remark(sentence)
        if not present(folder / MARK):
            rehearse(case)
        _prepare(case, folder, force)
        times = StudyTimes(case, progress)
        trials = searched(
            case,
            folder,
            lambda points, before: looked_at(case, folder, points, before, times, workers),
            lambda asked: clear(folder, asked),
        )
        _check_measured(trials)
        if case.selects:
            chosen, tried, trials = _select(case, folder, trials, times, workers)
        else:
            chosen, tried = _attack_the_best(case, folder, trials, times, workers)
        none = None if chosen is not None else obstacle(case, trials, tried)
        beside = [] if chosen is None or case.selects else _beside(case, folder, trials, chosen, times, workers)
        price = search_price(case, [*trials, *beside], tried)
        study = Study(case, folder, tuple(trials), tuple(tried), tuple(beside), chosen, none, price)
        _write(study)
    return study


def _kept_key(folder: Path) -> str | None:
    return read_key(folder / KEY_FILE, folder) if present(folder / KEY_FILE) else None


def _prepare(case: StudyCase, folder: Path, force: bool) -> None:
    """The folder is this study's, with its key. Raises BadInput where it holds something else."""
    mark = folder / MARK
    if present(mark):
        same = read_text(mark) == case.digest and _kept_key(folder) == case.key
        if same and not force:
            return
        if not force:
            raise BadInput(
                f"{folder} holds another study (other config, space, goals or noise key); choose another folder for -o,"
                " or use --force to replace it"
            )
    elif not empty(folder) and not force:
        raise BadInput(f"{folder} is not empty and holds no study; choose another folder for -o")
    elif not empty(folder):
        raise BadInput(f"{folder} holds something that is no study, which --force does not remove; choose another one")
    remove_all(folder)
    write_bytes(folder / KEY_FILE, f"{case.key}\n".encode())
    (folder / KEY_FILE).chmod(0o600)
    write_bytes(mark, case.digest.encode())


def looked_at(
    case: StudyCase,
    folder: Path,
    points: Sequence[Asked],
    before: Sequence[Trial],
    times: StudyTimes,
    workers: Workers,
) -> Iterator[list[Trial]]:
    """What comes of points, batch by batch; workers who have nothing to attack prepare the next ones.

    Args:
        case: the study. folder: its folder. points: to look at. before: the trials before them.
        times: told of how far it is. workers: who prices, trains and attacks.
    """
    parts, known = in_batches(points, [Asked(trial.number, trial.point) for trial in before]), [*before]
    reports = [times.search(batch.asked[0].number) for batch in parts]
    ready = workers.map(partial(prepared, case, folder), parts, lambda n: reports[n])
    for batch, priced, report in zip(parts, ready, reports):
        found = look_at(case, folder, batch, priced, tuple(known), report, workers)
        report.end()
        yield found
        known += found


def _check_measured(trials: Sequence[Trial]) -> None:
    """Raises BadInput where every training diverged, or nothing could be attacked, or none was a setting: then there is
    nothing to say.
    """
    if any(trial.state == "measured" for trial in trials):
        return
    whys = [trial.why for trial in trials]
    if untouched := [why for why in whys if why.startswith(UNTOUCHED)]:
        raise BadInput(f"{untouched[0]} (in {len(untouched)} of {len(trials)} settings)")
    if any(trial.outcome is not None for trial in trials):
        return
    if all(why.startswith("never trained") for why in whys):
        return
    diverged = [trial for trial in trials if trial.why == "training diverged"]
    if diverged:
        raise BadInput(
            f"training diverged in {len(diverged)} of {len(trials)} settings, the first {said(diverged[0].point)}, and"
            " the others were never trained; lower [local] lr or the noise"
        )
    raise BadInput(f"none of {len(trials)} points is a setting that can be trained; of the first: {whys[0]}")


def _attack_the_best(
    case: StudyCase, folder: Path, trials: Sequence[Trial], times: StudyTimes, workers: Workers
) -> tuple[Trial | None, list[Again]]:
    """The first candidate that keeps its goals when attacked again, and all that were."""

    def attacked(trial: Trial) -> Again:
        report = times.again(said(trial.point))
        again = attack_again(case, folder, trial, report, workers)
        report.end()
        return again

    return first_that_keeps(case, trials, attacked)


def _select(
    case: StudyCase, folder: Path, trials: Sequence[Trial], times: StudyTimes, workers: Workers
) -> tuple[Trial | None, list[Again], list[Trial]]:
    """The most accurate trial where it keeps its goals when attacked again, how it did, and all that may be shown of
    the search: this trial, without its number, of which nobody is to know how many there were.
    """
    measured = [trial for trial in trials if trial.accuracy is not None]
    if not measured:
        return None, [], []
    best = max(measured, key=lambda trial: (trial.accuracy or 0.0, -trial.number))
    again = attack_again(case, folder, best, times.again(said(best.point)), workers)
    shown, its = best.model_copy(update={"number": 0}), again.model_copy(update={"trial": 0})
    return (shown if its.keeps(case, shown) else None), [its], [shown]


def _beside(
    case: StudyCase,
    folder: Path,
    trials: Sequence[Trial],
    chosen: Trial,
    times: StudyTimes,
    workers: Workers,
) -> list[Trial]:
    """The settings one step from the chosen one that the search did not look at."""
    known = [trial.point for trial in trials]
    points = [point for point in case.space.beside(chosen.point) if point not in known]
    asked = [Asked(len(trials) + i, point) for i, point in enumerate(points)]
    if not asked:
        return []
    batch, report = Batch(tuple(asked), {}), times.beside
    (priced,) = workers.map(partial(prepared, case, folder), [batch], lambda _: report)
    found = look_at(case, folder, batch, priced, (), report, workers)
    clear(folder, asked)
    return found


def _write(study: Study) -> None:
    from .outputs import document, recommended_toml, trials_csv
    from .page import study_page

    folder = study.folder
    write_bytes(folder / "trials.csv", trials_csv(study).encode())
    write_bytes(folder / "study.html", study_page(study).encode())
    if study.chosen is None:
        (folder / "recommended.toml").unlink(missing_ok=True)
    else:
        write_bytes(folder / "recommended.toml", recommended_toml(study).encode())
    write_json(folder / FILE, document(study))
