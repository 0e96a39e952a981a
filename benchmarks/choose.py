"""Whether `audit choose` can be relied on, and what doing everything together saves.

    python benchmarks/choose.py [keeps] [front] [speed] [--quick] [--work FOLDER]

keeps: ten studies, each with seeds of its own; what they recommend is trained and attacked with five seeds that neither
the search nor the re-attack had. How many keep their limits there, by the estimates?
front: the recommendation of one study against a grid of 48 settings, all with the same fresh seeds: is any of them more
accurate and leaks less, beyond the intervals? Is any that surely keeps the limits surely more accurate?
speed: 24 settings by `audit choose`, and trained and attacked one by one, on an idle machine.

Bundled digits, auxiliary records; all from seeds, so that it can be repeated. About 40 minutes in all on two cores.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import quiet  # noqa: F401 - before torch
import tomlkit
import torch
from dpfl_audit.audit import run as runner
from dpfl_audit.audit.choose.again import ALONE
from dpfl_audit.audit.choose.carry_out import carry_out_study, looked_at
from dpfl_audit.audit.choose.case import StudyCase
from dpfl_audit.audit.choose.costs import SettingCosts
from dpfl_audit.audit.choose.goals import Goals
from dpfl_audit.audit.choose.opening import StudyOptions, opened_case
from dpfl_audit.audit.choose.outcome import Performance, outcome_of
from dpfl_audit.audit.choose.search import searched
from dpfl_audit.audit.choose.space import Setting, said
from dpfl_audit.audit.choose.study import Study
from dpfl_audit.audit.choose.times import StudyTimes
from dpfl_audit.audit.choose.trial import BATCH, SCREEN_MESSAGES, clear
from dpfl_audit.audit.run import RunOptions
from dpfl_audit.audit.say.words import percent
from dpfl_audit.audit.setup.capture import Training, train_together
from dpfl_audit.defenses.workers import HERE

REPETITIONS, FRESH, LEVELS = 10, 5, (12, 4)
FIRST_FRESH = 10**9  # seeds from here on; a study's own are digests of other things
KEY = "c4" * 32
GOALS = Goals(accuracy_at_least=0.6, leakage_at_most=0.3)
CONFIG: dict[str, Any] = {
    "data": {"name": "digits", "clients": 6, "samples_per_client": 40},
    "model": {"name": "mlp", "options": {"widths": [32]}},
    "local": {"optimiser": "sgd", "lr": 0.2, "batch_size": 20, "epochs": 2},
    "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 0.1, "rounds": 8},
    "capture": {"candidates": 80},
    "audit": {"observer": "server", "unit": "client", "adjacency": "zero_out", "delta": 1e-5},
    "attack": {"inversion": {"iterations": 120}},
}
OPTIONS = StudyOptions(
    vary=("scheme.noise_multiplier=.01..3", "scheme.clip=.3..1"), goals=GOALS, minutes=1.5, baseline=False, key=KEY
)


@dataclass(frozen=True, eq=False)
class Bench:
    """How much to do, and where."""

    folder: Path
    repetitions: int
    fresh: int
    levels: tuple[int, int]
    options: StudyOptions

    def study(self, seed: int) -> Study:
        folder = self.folder / f"study-{seed}"
        return carry_out_study({**CONFIG, "seed": seed}, folder, self.options)


def measured(case: StudyCase, points: Sequence[Setting], fresh: int, attacks: tuple[str, ...], work: Path) -> list:
    """What came of every point, trained and attacked with seeds that the study never had.

    Args:
        case: of the study. points: of its space. fresh: how many seeds. attacks: their names. work: an empty folder.
    """
    outcomes: list[Performance] = []
    for first in range(0, len(points), BATCH):
        names = [(point, FIRST_FRESH + i) for point in points[first : first + BATCH] for i in range(fresh)]
        folders = [work / str(n) for n in range(len(names))]
        train_together(
            [
                Training(case.to_train(point, seed), folder / "setup", f"{n:064x}")
                for n, ((point, seed), folder) in enumerate(zip(names, folders))
            ]
        )
        few = (f"inversion.messages={ALONE}",) if "inversion" in attacks else ()
        options = RunOptions(attacks=attacks, overrides=few, seed=7, pixels_only=True)
        jobs = [runner.opened(folder / "setup", options) for folder in folders]
        results = runner.carry_out_together(jobs, [folder / "results" for folder in folders])
        outcomes += [outcome_of(results[i : i + fresh]) for i in range(0, len(results), fresh)]
        shutil.rmtree(work)
    return outcomes


def keeps(bench: Bench) -> tuple[int, int]:
    """How many recommendations kept their limits with fresh seeds, and how many there were."""
    kept = made = above = 0
    print("| study | recommended | accuracy, printed | fresh | leakage, printed | fresh | kept |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(bench.repetitions):
        study = bench.study(seed)
        if study.chosen is None or study.again is None or study.again.outcome is None:
            print(f"| {seed} | none: {study.sentence} | | | | | |", flush=True)
            continue
        there, work = study.again.outcome, bench.folder / "fresh"
        attacks = tuple(name for name in study.again.attacks if name != "canary")
        (fresh,) = measured(study.case, [study.chosen.point], bench.fresh, attacks, work)
        ok = all(k.kept for k in bench.options.goals.judged(fresh, study.chosen.epsilon))
        made, kept, above = made + 1, kept + ok, above + exceeded(there, fresh)
        limits = there.accuracy_limits or (0.0, 1.0)
        print(
            f"| {seed} | {said(study.chosen.point)} | {percent(there.accuracy)} (from {percent(limits[0])}) |"
            f" {percent(fresh.accuracy)} | {percent(there.leakage)} (to {percent(there.most_leakage)}) |"
            f" {percent(fresh.leakage)} | {'yes' if ok else 'no'} |",
            flush=True,
        )
    print(f"\nKept with fresh seeds: {kept} of {made}. More than at most what was printed: {above}.\n", flush=True)
    return kept, made


def exceeded(printed: Performance, fresh: Performance) -> bool:
    """Whether a longer measurement found more than the upper limit that was printed, of leakage or of pictures."""
    if (fresh.leakage or 0.0) > (printed.most_leakage or 0.0):
        return True
    before, now = printed.reidentified, fresh.reidentified
    most = max((leak.high for leak in printed.leaks if leak.attack.startswith("inversion")), default=1.0)
    return before is not None and now is not None and now.share > most


def dominating(chosen: Performance, others: Sequence[Performance], goals: Goals) -> tuple[list[int], list[int]]:
    """Of the others, which are better in accuracy and leakage, and which surely keep the goals and are more accurate,
    each beyond the intervals.
    """
    better, surer = [], []
    for i, other in enumerate(others):
        if chosen.accuracy_limits is None or other.accuracy_limits is None:
            continue
        more_accurate = other.accuracy_limits[0] > chosen.accuracy_limits[1]
        least = max((leak.low - max(leak.chance, leak.control) for leak in chosen.leaks), default=0.0)
        if more_accurate and (other.most_leakage or 0.0) < least:
            better.append(i)
        if more_accurate and all(kept.shown for kept in goals.judged(other, None)):
            surer.append(i)
    return better, surer


def front(bench: Bench) -> tuple[list[int], list[int]]:
    """The recommendation of the first study against a grid."""
    study = bench.study(0)
    assert study.chosen is not None and study.again is not None
    attacks = tuple(name for name in study.again.attacks if name != "canary")
    noises, clips = (v.levels(n) for v, n in zip(study.case.space.varied, bench.levels))  # type: ignore[union-attr]
    grid = [{"scheme.noise_multiplier": z, "scheme.clip": c} for z in noises for c in clips]
    chosen, *others = measured(study.case, [study.chosen.point, *grid], 3, attacks, bench.folder / "fresh")
    better, surer = dominating(chosen, others, GOALS)
    print("| noise_multiplier | clip | accuracy | leakage | at most | keeps the limits |\n|---|---|---|---|---|---|")
    for point, outcome in zip((study.chosen.point, *grid), (chosen, *others)):
        sure = all(kept.shown for kept in GOALS.judged(outcome, None))
        print(
            f"| {point['scheme.noise_multiplier']:g} | {point['scheme.clip']:g} | {percent(outcome.accuracy)} |"
            f" {percent(outcome.leakage)} | {percent(outcome.most_leakage)} | {'surely' if sure else '–'} |"
        )
    print(
        f"\nThe first row is recommended. Of {len(grid)} others {len(better)} are better in accuracy and leakage beyond"
        f" the intervals; {len(surer)} surely keep the limits and are surely more accurate.\n",
        flush=True,
    )
    return better, surer


def speed(bench: Bench) -> tuple[float, float]:
    """How many times longer the settings that a study looks at take one by one: in this process, and by the commands
    that somebody without `audit choose` gives.
    """
    options = replace(bench.options, goals=Goals(leakage_at_most=1.0))
    folder, key = bench.folder / "speed", bench.folder / "key"
    folder.mkdir(parents=True)
    key.write_text(f"{KEY}\n")
    carry_out_study({**CONFIG, "seed": 99}, folder / "warm", replace(options, trials=2))  # imports, caches
    begin = time.perf_counter()
    case = opened_case({**CONFIG, "seed": 100}, options, KEY, folder)
    (folder / "together").mkdir()
    times = StudyTimes(case, None, SettingCosts())
    trials = searched(
        case,
        folder / "together",
        lambda points, before: looked_at(case, folder / "together", points, before, times, HERE),
        lambda asked: clear(folder / "together", asked),
    )
    together = time.perf_counter() - begin
    seed = case.config.seed
    few = f"inversion.messages={SCREEN_MESSAGES}"
    minutes = case.screen_minutes
    run = RunOptions(minutes=minutes, canaries=False, quick=True, pixels_only=True, seed=seed, overrides=(few,))
    here = commands = 0.0
    for trial in trials:
        setup, results, config = folder / "setup", folder / "results", folder / "config.toml"
        begin = time.perf_counter()
        own = replace(case, parts={})  # a command of its own reads its data itself
        train_together([Training(own.to_train(trial.point, seed), setup, KEY)])
        runner.run(setup, results, run)
        here += time.perf_counter() - begin
        shutil.rmtree(setup)
        shutil.rmtree(results)
        tables = own.to_train(trial.point, seed).config.model_dump(mode="json", exclude_none=True)
        config.write_text(tomlkit.dumps(tables))
        begin = time.perf_counter()
        audit("train", config, "-o", setup, "--noise-key", key)
        audit("run", setup, "-o", results, "--quick", "--minutes", minutes, "--seed", seed, "--set", few)
        commands += time.perf_counter() - begin
        shutil.rmtree(setup)
        shutil.rmtree(results)
    attacked = sum(trial.state == "measured" for trial in trials)
    print(
        f"{len(trials)} settings, {attacked} of them attacked: {together:.1f} s together,"
        f" {here:.1f} s one by one in this process ({here / together:.1f} times), {commands:.1f} s by `audit train` and"
        f" `audit run` ({commands / together:.1f} times)."
    )
    return here / together, commands / together


def audit(*arguments: object) -> None:
    """A command of ours in a process of its own."""
    command = [sys.executable, "-m", "dpfl_audit.cli", *map(str, arguments), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="keeps, front, speed; all where none is named")
    parser.add_argument("--quick", action="store_true", help="two small studies, a grid of six")
    parser.add_argument("--work", type=Path, help="a folder that keeps finished studies")
    given = parser.parse_args(arguments)
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(given.work or Path(scratch), REPETITIONS, FRESH, LEVELS, OPTIONS)
        if given.quick:
            quick = replace(OPTIONS, trials=6, seeds=2, minutes=0.1)
            bench = replace(bench, repetitions=2, fresh=2, levels=(3, 2), options=quick)
        for name, part in (("keeps", keeps), ("front", front), ("speed", speed)):
            if not given.parts or name in given.parts:
                print(f"## {name}\n", flush=True)
                part(bench)


if __name__ == "__main__":
    main()
