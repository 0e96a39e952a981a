"""How long a run takes: what scoring costs beside the attacks, and one time left for all of a run's work.

Costs are counted from shapes, as those of attacks are (attacks/cost.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from torch import nn

from ...attacks.canary import CraftedStart
from ...attacks.cost import A_MINUTE, CALL, forward_operations, minutes
from ...attacks.membership import ShadowFactory
from ...defenses.progress import Progress
from ...metrics import classifiers, families
from ..scoring.judges import why_untrained
from ..setup.folder import Setup
from ..timetable import PlannedStage, Timetable, WorkKind
from ..worlds.federation.plan import CanarySettings
from .choice import DEFAULT_MINUTES, canary_operations
from .evidence import Plan
from .job import Job
from .options import RunOptions

THIRD = 1 / 3  # of the minutes, of which attacks need most
TRAINED = 3  # a training step's cost over that of a forward pass
A_RECORD = 2 * CALL  # of comparing one record with its controls
TEST = 2 * 10**5  # of each number of a record, to test whether it is closer than records of others

# How a run's progress begins to tell of its attacks, reference classifiers, scores with prices, and canaries.
BEGINS = {
    "attacks": ("attacking",),
    "classifiers": ("training reference classifiers",),
    "scores": ("scoring", "pricing rows"),
    "canaries": ("canary",),
}
OF_RUNS = tuple(words for begins in BEGINS.values() for words in begins)


def scoring_operations(records: int, shape: tuple[int, ...], options: RunOptions) -> int:
    """About how many it takes to score a reconstruction of so many records."""
    return records * (A_RECORD + (0 if options.shares_only else TEST * prod(shape)))


def classifier_operations(setup: Setup, options: RunOptions) -> int:
    """About how many it takes to train the reference classifiers, 0 where none are."""
    data, knowledge = setup.manifest.data, setup.knowledge()
    if options.pixels_only or data.name in classifiers.shipped() or why_untrained(setup, knowledge):
        return 0
    records = classifiers.steps_of(len(knowledge.auxiliary_inputs)) * classifiers.BATCH_SIZE
    return TRAINED * records * _operations(tuple(data.input_shape), data.classes)


@cache
def _operations(shape: tuple[int, ...], classes: int) -> int:
    """Of the outputs of one classifier of each family for one record."""
    built = (families.build(family, shape, classes, seed=0) for family in families.FAMILIES)
    return sum(forward_operations(network, shape) for network in built)


def with_affordable_classifiers(setup: Setup, options: RunOptions) -> RunOptions:
    """Without reference classifiers where they take longer than what was asked for: beside quick attacks, and above a
    third of the minutes of a run whose attacks nobody named.
    """
    if options.attacks and not options.quick:
        return options
    allowed = 0 if options.quick else THIRD * (options.minutes or DEFAULT_MINUTES)
    if minutes(classifier_operations(setup, options)) > allowed:
        return replace(options, pixels_only=True)
    return options


def canary_work(setup: Setup, settings: CanarySettings, module: nn.Module) -> int:
    """About how many operations a canary audit of the setup's scheme takes. module: its network."""
    shape = tuple(setup.manifest.data.input_shape)
    federation = ShadowFactory(setup.scheme, module, tuple(setup.manifest.clients))
    crafting = CraftedStart().operations(module, shape, sum(setup.manifest.clients))
    return canary_operations(settings, federation.operations(shape, setup.manifest.rounds), crafting)


@dataclass(frozen=True, eq=False)
class RunTimes:
    """Of several runs: the attacks of all of them together, then the scoring and the prices of each.

    minutes: of two cores, planned. attacks: the stage of all attacks. scores: a stage for each run.
    """

    minutes: float
    attacks: PlannedStage
    scores: tuple[PlannedStage, ...]


def run_times(jobs: Sequence[Job], plans: Sequence[Plan], progress: Progress | None) -> RunTimes:
    """What runs take, and the progress of their stages as of one piece of work. progress: of the whole."""
    second = 60 / A_MINUTE  # of an operation
    table = Timetable(progress, {name: WorkKind(second, begins) for name, begins in BEGINS.items()})
    attacks = table.plan({"attacks": sum(cell.part.work for plan in plans for cell in plan.cells)})
    scores = tuple(table.plan(_scoring_work(job, plan)) for job, plan in zip(jobs, plans))
    return RunTimes(table.left / 60, attacks, scores)


def _scoring_work(job: Job, plan: Plan) -> dict[str, float]:
    """Operations after the attacks, by kind."""
    setup, options = job.setup, job.options
    records = sum(cell.part.records for cell in plan.cells)
    work: dict[str, float] = {
        "scores": CALL + scoring_operations(records, tuple(setup.manifest.data.input_shape), options)
    }
    if records:
        work["classifiers"] = classifier_operations(setup, options)
    if job.canaries is not None:
        work["canaries"] = canary_work(setup, job.canaries, setup.module(options.allow_model))
    return work
