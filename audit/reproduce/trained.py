"""Cells whose figures are those of the trained model: all of a trial's federations are trained in lock-step, nothing is
captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...defenses.engine import batched
from ...defenses.federation import RoundRecord, evaluate, run_many
from ...defenses.progress import Progress
from ...defenses.schedule import rounds_planned
from .federations import StandIn, Tables, experiments_of, training_name
from .trial_table import Measure, TableCell, TrialPlan, without_root

LOSS, ACCURACY = Measure("test_loss", "test loss", 3, least=0), Measure("test_accuracy", "accuracy", 3, least=0, most=1)
BLOWN_UP = 1e30  # the loss of a training that noise has made non-finite


def training_plan(base: Tables, setting: str, data: StandIn, notes: Sequence[str] = ()) -> TrialPlan:
    """A plan whose work trains every cell to its end and tests the global model.

    Args:
        base: the config that cells change. data: what it is of. setting, notes: as of `TrialPlan`.
    """

    def work(
        cells: Sequence[TableCell], seed: int, folder: Path, progress: Progress | None
    ) -> Mapping[str, Mapping[str, float]]:
        del folder
        experiments = experiments_of(base, cells, seed)
        federations = [replace(made.federation(), evaluate=False) for made in experiments.values()]
        planned, done, broken = sum(rounds_planned(f.scheme.schedule) for f in federations), 0, set[int]()

        def on_round(i: int, record: RoundRecord) -> None:
            nonlocal done
            done += 1
            if not record.finite:
                broken.add(i)
            if progress is not None:
                progress(done, planned, "training rounds")

        lasts = run_many(federations, batched, on_round=on_round)
        figures = {}
        for i, (name, federation, last) in enumerate(zip(experiments, federations, lasts)):
            measured = {} if i in broken else evaluate(federation, last)
            loss = measured.get("test_loss", BLOWN_UP)
            figures[name] = {**measured, "test_loss": loss if loss < BLOWN_UP else BLOWN_UP}  # a NaN is not less
            if federation.data.classes:
                figures[name].setdefault("test_accuracy", 1 / federation.data.classes)
        return {cell.name: figures[training_name(cell)] for cell in cells}

    return TrialPlan(setting, data.shown, [without_root(base), data.files], work, notes)
