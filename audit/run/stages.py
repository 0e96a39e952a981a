"""From a job to its results: plan, attack, score, price, judge, write. A killed run goes on with the cell it was in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ...defenses.process import ready
from ...defenses.progress import Progress, part_of
from ...defenses.workers import HERE, Workers
from ...metrics import perceptual
from .. import scoring
from ..errors import BadInput, bad_input
from ..files import write_bytes
from ..lock import writing
from ..results.format import FILE, Results
from ..setup.config import CANARY
from . import evidence
from .evidence import Plan
from .job import Job
from .judging import judged_results
from .opening import opened
from .options import RunOptions
from .planning import planned_cells
from .pricing import priced
from .times import run_times

Announce = Callable[[float], None]


def run(
    folder: Path, output: Path, options: RunOptions, *, force: bool = False, progress: Progress | None = None
) -> Results:
    """`carry_out` what `opened` gives.

    Args:
        folder: the setup. output: the results folder.
        options: what to attack with.
        force, progress: as of `carry_out`.

    Raises:
        BadInput: as theirs; before anything is written, but for an attack that fails.
    """
    return carry_out(opened(folder, options, progress), output, force=force, progress=progress)


def carry_out(
    job: Job,
    output: Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    announce: Announce | None = None,
    workers: Workers = HERE,
) -> Results:
    """Attack, score, write `output`. A killed run goes on with the cell it was in.

    Args:
        job: of `opened`. output: the results folder.
        force: replace other results.
        progress: called with the share of time that is over. announce: called with the minutes that two cores take,
            before the first attack.
        workers: who attacks; whoever it is, the bytes are the same.

    Raises:
        BadInput: `output` holds something else, or an attack asked for by name fails.
    """
    return carry_out_together([job], [output], force=force, progress=progress, announce=announce, workers=workers)[0]


def carry_out_together(
    jobs: Sequence[Job],
    outputs: Sequence[Path],
    *,
    force: bool = False,
    progress: Progress | None = None,
    announce: Announce | None = None,
    workers: Workers = HERE,
) -> list[Results]:
    """`carry_out` of several jobs, whose messages at equal weights are attacked as one (`evidence.collect_together`).

    Args:
        jobs: with the same seed and network for LPIPS, and all of them with or without attacks chosen by name.
        outputs: a results folder for each.
        force, progress, announce, workers: as for `carry_out`.

    Raises:
        BadInput: as `carry_out`, of any of them.
    """
    ready()
    with ExitStack() as locks:
        for output in outputs:
            locks.enter_context(writing(output))
        done = [evidence.finished(output, job.digest, force) for job, output in zip(jobs, outputs)]
        results = [r for r in done if r is not None]
        if len(results) < len(jobs):
            results = _run(jobs, outputs, done, force, progress, announce, workers)
        for output in outputs:
            shutil.rmtree(output / ".work", ignore_errors=True)  # last, and again where a command was killed at it
        return results


def _run(
    jobs: Sequence[Job],
    outputs: Sequence[Path],
    done: Sequence[Results | None],
    force: bool,
    progress: Progress | None,
    announce: Announce | None,
    workers: Workers,
) -> list[Results]:
    """done: what is there already. Its evidence is planned all the same: what goes together always runs whole."""
    first = jobs[0]
    with bad_input("--lpips-weights"):
        found = first.lpips
        lpips = found if isinstance(found, perceptual.NotMeasured) else perceptual.load(*found)
    plans = [planned_cells(job, workers) for job in jobs]
    for job, output, there in zip(jobs, outputs, done):
        if there is None:
            evidence.start(output, job.digest, force)
    times = run_times(jobs, plans, progress)
    if announce is not None:
        announce(times.minutes)
    errands = [evidence.Errand(plan, output) for plan, output in zip(plans, outputs)]
    brought = evidence.collect_together(
        errands, first.options.seed, times.attacks, asked=first.choice is None, workers=workers
    )
    times.attacks.end()
    results = []
    for job, output, plan, collected, there, stage in zip(jobs, outputs, plans, brought, done, times.scores):
        if there is None:
            there = _scored(job, output, plan, collected, lpips, stage, workers)
        stage.end()
        results.append(there)
    return results


def _scored(
    job: Job,
    output: Path,
    plan: Plan,
    collected: evidence.Collected,
    lpips: perceptual.Perceptual | perceptual.NotMeasured,
    progress: Progress | None,
    workers: Workers,
) -> Results:
    if collected.failed and not collected.evidence and job.canaries is None:
        name, why = next(iter(collected.failed.items()))
        raise BadInput(f"attack {name}: {why}")
    # Scored by themselves: a p-value depends on how many attacks are judged beside it.
    ablated = tuple(item for item in collected.evidence if "without" in item.cell.settings)
    tried = tuple(item for item in collected.evidence if "without" not in item.cell.settings)
    score = partial(scoring.score, job.setup, job.auditor)
    last = (job.depth(lpips), output)
    halves = (0.0, 0.5, 1.0) if ablated else (0.0, 1.0, 1.0)
    scores = score(tried, *last, part_of(progress, *halves[:2]))
    if ablated:
        weaker = score(ablated, *last, part_of(progress, *halves[1:])).attacks
    else:
        weaker = ()
    prices = priced(job, progress, workers)
    if job.attacks == () and job.choice is None and not prices.tested:
        raise BadInput(f"attack {CANARY}: nothing was measured; {' '.join(prices.warnings)}".rstrip("."))
    results = judged_results(job, plan, collected, scores, prices, weaker)
    write_bytes(output / FILE, results.text().encode())
    return results
