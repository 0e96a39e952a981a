"""What a config says and what is done about it, where the two differ: a sentence each, before and after a training."""

from __future__ import annotations

import json
from pathlib import Path

from ...defenses.engine import stacks
from ...defenses.schedule import rounds_planned
from ...defenses.slices import SLICED, sliceable
from ..errors import BadInput
from .capture import planned_bytes
from .experiment import Experiment
from .promise import promise

LARGE = 2**30  # bytes of a setup, above which it is said


def remarks(experiment: Experiment, engine: str = "batched") -> list[str]:
    """What will be trained otherwise than it may seem, by the engine that is asked for."""
    config, data = experiment.config, experiment.data
    most, told = max(len(rows) for rows in experiment.clients), []
    if config.local.batch_size > most:
        told.append(
            f"[local] batch_size = {config.local.batch_size}: no client has more than {most} records, so every batch is"
            f" all that a client has; batch_size = {most} says so."
        )
    shown = 1 + max(int(t.max()) for t in (data.targets, data.test_targets, data.auxiliary_targets) if len(t))
    if shown < data.classes and not data.target_shape:
        told.append(
            f"[data] classes = {data.classes}: the targets show {shown} (0 to {shown - 1}), and the model gets"
            f" {data.classes} outputs; unless the others are only missing here, say classes = {shown}."
        )
    if data.classes == 1:
        told.append(
            "[data] all targets are of one class, so every model is right about all of them and accuracy says nothing."
        )
    if read_as := data.description.get("read_as"):
        told.append(f"[data] {data.name} was read so: {read_as}.")
    told += [f"[data] {remark}." for remark in data.remarks]
    told += [f"[audit] {sentence}" for sentence in promise(config.audit.delta, len(experiment.clients))]
    if engine == SLICED and not sliceable(experiment.scheme):
        told.append(
            "--engine sliced: the hub of this scheme looks at single values, or there is none, so no cohort is sliced;"
            " it is trained in this process, as without --ray."
        )
    plan = planned_bytes(experiment)
    if plan["bytes"] > LARGE:
        told.append(
            f"[capture] writes {plan['bytes'] / 2**30:.1f} GiB: {plan['uploads'] + plan['broadcasts']} messages of"
            f" {plan['parameters']:,} numbers each; fewer rounds or clients, or a smaller [model], make it less."
        )
    if not stacks(experiment.module, data.input_shape):
        told.append(
            f"[model] {config.model.name}: torch cannot compute several clients' weights of it as one stack, so clients"
            " are trained one after the other (--engine looped), which takes longer."
        )
    return told


def ending(folder: Path, experiment: Experiment) -> str | None:
    """How the training in `folder` ended, in a sentence, where it did otherwise than planned.

    Raises:
        BadInput: no round ended finite, so there is nothing to attack and nothing to report.
    """
    manifest = json.loads((folder / "setup.json").read_text())
    rounds, planned = manifest["rounds"], rounds_planned(experiment.scheme.schedule)
    if manifest["status"] == "diverged":
        if rounds == 0:
            raise BadInput(
                f"{folder}: training became non-finite in its first round, so there is nothing to attack; lower"
                f" [local] lr = {experiment.config.local.lr:g} or the noise, and train with --force"
            )
        return (
            f"Training became non-finite in round {rounds} and stopped; the {rounds} finite rounds before it are kept."
        )
    if rounds < planned:
        why = "the scheme's own rule stopped it"
        if experiment.scheme.budget:
            why = "the budget is spent"
        return f"Training ended after {rounds} of {planned} rounds: {why}."
    return None
