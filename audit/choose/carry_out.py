"""A whole study carried out: search, decide, attack again, write."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...defenses.process import ready
from ...defenses.progress import Progress
from ...defenses.workers import HERE, Workers
from ..errors import BadInput
from ..files import remove_all, write_bytes, write_json
from ..lock import empty, writing
from ..say.words import takes_long
from ..setup.key import read_key
from ..setup.reading import present, read_text
from .again import Again, attack_again, attack_more
from .case import StudyCase
from .costs import SettingCosts, kept_costs
from .decide import first_that_keeps, obstacle
from .opening import StudyOptions, opened_case
from .outputs import document, recommended_toml, trials_csv
from .possible import rehearse
from .price import search_price
from .search import searched
from .space import said
from .study import Study
from .times import StudyTimes
from .trial import UNTOUCHED, Asked, Batch, Trial, clear, in_batches, look_at, prepared

FILE = "study.json"
KEY_FILE = "auditor/noise-key"
MARK = ".work/digest"


def carry_out_study(
    config: Path | dict[str, Any],
    folder: Path,
    options: StudyOptions,
    *,
    force: bool = False,
    progress: Progress | None = None,
    workers: Workers = HERE,
    remark: Callable[[str], None] | None = None,
) -> Study:
    """Carry out a study in `folder`; given again, a killed one goes on, and a finished one is read.

    Args:
        config: a TOML file, or its tables. folder: of the study. options: what is asked.
        force: replace another study in the folder.
        progress: called with work done and in all.
        workers: who prices, trains and attacks; this process alone asks for points and writes what came of them.
        remark: told before anything is trained what the search is about to spend, and on how many records.

    Raises:
        BadInput: the request is wrong, the folder holds something else, or nothing of the space can be trained or
            attacked.
    """
    ready()
    start = config.parent if isinstance(config, Path) else Path()
    case = opened_case(config, options, options.key or _kept_key(folder) or secrets.token_hex(32), start)
    with writing(folder):
        if remark is not None:
            for sentence in case.remarks:
                remark(sentence)
        if force or not present(folder / MARK):
            costs = rehearse(case)
        else:
            costs = kept_costs(folder)
        _prepare(case, folder, force, costs)
        before, case = len(case.cut_off), costs.fitting(case)
        if remark is not None:
            for sentence in case.cut_off[before:]:
                remark(sentence)
        times = StudyTimes(case, progress, costs)
        long = takes_long(times.table.left / 60, "fewer --trials, --seeds or --minutes make it less")
        if remark is not None and long:
            remark(long)
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
            if chosen is None:
                chosen, tried = _with_more_seeds(case, folder, trials, tried, times, workers)
        none = None if chosen is not None else obstacle(case, trials, tried)
        if chosen is None or case.selects:
            beside = []
        else:
            beside = _beside(case, folder, trials, chosen, times, workers)
        price = search_price(case, [*trials, *beside], tried)
        study = Study(case, folder, tuple(trials), tuple(tried), tuple(beside), chosen, none, price)
        _write(study)
    return study


def _kept_key(folder: Path) -> str | None:
    if present(folder / KEY_FILE):
        return read_key(folder / KEY_FILE, folder)
    return None


def _prepare(case: StudyCase, folder: Path, force: bool, costs: SettingCosts) -> None:
    """The folder is this study's, with its key and costs. Raises BadInput where it holds something else."""
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
    costs.keep(folder)
    write_bytes(mark, case.digest.encode())


def looked_at(
    case: StudyCase, folder: Path, points: Sequence[Asked], before: Sequence[Trial], times: StudyTimes, workers: Workers
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
    raise BadInput(f"none of {len(trials)} points is a setting that can be trained; {said(trials[0].point)}: {whys[0]}")


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


def _with_more_seeds(
    case: StudyCase, folder: Path, trials: Sequence[Trial], tried: list[Again], times: StudyTimes, workers: Workers
) -> tuple[Trial | None, list[Again]]:
    """Where only wide intervals stand in the way, the best of these settings with further seeds; the last of what was
    tried where it keeps its goals then.
    """
    by_number = {trial.number: trial for trial in trials}
    again = next((again for again in tried if again.unsure(case, by_number[again.trial])), None)
    if again is None:
        return None, tried
    trial = by_number[again.trial]
    report = times.more(said(trial.point))
    more = attack_more(case, folder, trial, again, report, workers)
    report.end()
    rest = [other for other in tried if other is not again]
    return (trial if more.keeps(case, trial) else None), [*rest, more]


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
    case: StudyCase, folder: Path, trials: Sequence[Trial], chosen: Trial, times: StudyTimes, workers: Workers
) -> list[Trial]:
    """The settings one step from the chosen one that the search did not look at."""
    known = [trial.point for trial in trials]
    points = [point for point in case.space.beside(chosen.point) if point not in known]
    asked = [Asked(len(trials) + i, point) for i, point in enumerate(points)]
    report = times.one_step_away(len(asked))
    if not asked:
        return []
    batch = Batch(tuple(asked), {})
    (priced,) = workers.map(partial(prepared, case, folder), [batch], lambda _: report)
    found = look_at(case, folder, batch, priced, (), report, workers)
    report.end()
    clear(folder, asked)
    return found


def _write(study: Study) -> None:
    from .page import study_page  # matplotlib: not before a study is done

    folder = study.folder
    write_bytes(folder / "trials.csv", trials_csv(study).encode())
    write_bytes(folder / "study.html", study_page(study).encode())
    if study.chosen is None:
        (folder / "recommended.toml").unlink(missing_ok=True)
    else:
        write_bytes(folder / "recommended.toml", recommended_toml(study).encode())
    write_json(folder / FILE, document(study))
