"""Whole trainings with and without the canary, judged by the final model alone.

Slow; no step of the pipeline is taken on trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from ....attacks.canary.secret import below_alternatives, mean_exposure
from ....defenses.engine import Engine, batched
from ....defenses.federation import Federation, run_many
from ....defenses.layout import Layout
from ....defenses.local import LocalJob, LocalResult
from ....defenses.losses import loss_of
from ....defenses.progress import Progress
from ....defenses.randomness import stream
from ....defenses.wire import SERVER, Wire
from ....defenses.workers import HERE, Workers
from ...two_worlds.draws import MechanismAudit, audit_scores
from ...two_worlds.estimators.separate import Separate
from ...two_worlds.sequential import BoundRule
from .client_round import Moment, World, constants_apart

BATCH = 64  # federations trained together
TOLD = 1e9  # added where the mean and std that come with the final model are those of the world with the canary


@dataclass(frozen=True, eq=False)
class TrainedWorlds:
    """What is trained in either world.

    federation: it evaluates its models where its schedule follows the test loss. moment: a round of the audited client.
    worlds: what differs between the worlds in that round, and so in all rounds of the client. row: the canary's number
    among the client's records, None for a canary update. secrets: a planted secret's text, then the same with
    each of its alternatives, and their targets, (R, length) each; None of another canary.
    """

    federation: Federation
    moment: Moment
    worlds: tuple[World, World]
    row: int | None
    secrets: tuple[Tensor, Tensor] | None = None


def end_to_end(
    trained: TrainedWorlds,
    replicas: int,
    rule: BoundRule,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> MechanismAudit:
    """Trains 1¼ × `replicas` federations a world: same data, same start, noise, batches and cohorts of their own.

    A quarter of the replicas fixes the threshold. The score is −loss of the canary record at the final model, of a
    planted secret beside its alternatives', or the final model's total change along the canary update. A mean and std
    that are a world's own come before it.

    Args:
        trained: what is trained.
        replicas: tested trainings a world.
        rule: of the bounds.
        seed: of the replicas' own seeds.
        progress: called with the trainings done and their number. workers: who trains the batches.
    """
    spare = max(replicas // 4, 20)
    scores, bits = {}, {}
    for world in (0, 1):
        changed = _in_world(trained.federation, trained.moment, trained.worlds[world], trained.row)
        federation = replace(trained.federation, module=trained.worlds[world].job.module, wire=Wire())
        seeds = [stream(seed, "replica", world, i) for i in range(spare + replicas)]
        finals = list[Tensor]()
        batches = (seeds[first : first + BATCH] for first in range(0, len(seeds), BATCH))
        for some in workers.map(partial(_finals, federation, changed), batches):
            finals += some
            if progress is not None:
                progress(world * len(seeds) + len(finals), 2 * len(seeds))
        told = 0.0
        if constants_apart(trained.worlds) is not None:
            told = TOLD
        if trained.secrets is None:
            scores[world] = _scores(finals, trained.moment, trained.worlds, trained.row) + world * told
        else:
            losses = _losses(finals, trained.moment, *trained.secrets).double()
            scores[world] = below_alternatives(losses).numpy() + world * told
            bits[world] = mean_exposure(losses)
    audit = audit_scores(
        scores[1][spare:],
        scores[0][spare:],
        Separate(scores[1][:spare], scores[0][:spare]),
        delta=rule.delta,
        confidence=rule.confidence,
        shift=float("nan"),
        gaussian=rule.gaussian,
    )
    return replace(audit, exposure=(bits[1], bits[0]) if bits else None)


def _finals(federation: Federation, engine: Engine, seeds: Sequence[int], _: Progress | None) -> list[Tensor]:
    """The final models of trainings with these seeds, together."""
    many = [replace(federation, seed=seed) for seed in seeds]
    return [state.models[SERVER].vector for state in run_many(many, engine)]


def _in_world(federation: Federation, moment: Moment, world: World, row: int | None) -> Engine:
    """The batched engine, with the audited client's training as it is in this world."""
    rows = federation.clients[moment.client]
    mine = torch.zeros(len(federation.data.inputs), dtype=torch.bool)
    mine[rows] = True
    inputs, targets = federation.data.inputs, federation.data.targets
    if not (torch.equal(world.job.inputs, inputs[rows]) and torch.equal(world.job.targets, targets[rows])):
        inputs, targets = inputs.clone(), targets.clone()
        inputs[rows], targets[rows] = world.job.inputs, world.job.targets
    muted = tuple(int(rows[i]) for i in world.job.muted)
    planted = tuple((int(rows[i]), gradient) for i, gradient in world.job.planted)

    def belongs(job: LocalJob) -> bool:
        used = job.batches[job.batches >= 0]
        return len(used) > 0 and bool(mine[used[0]])

    def run(jobs: Sequence[LocalJob]) -> list[LocalResult]:
        own = [belongs(job) for job in jobs]
        results = batched(
            [
                replace(job, inputs=inputs, targets=targets, muted=muted, planted=planted) if o else job
                for job, o in zip(jobs, own)
            ]
        )
        return [world.result(result, job.start) if o else result for job, result, o in zip(jobs, results, own)]

    return run


def _scores(
    finals: Sequence[Tensor], moment: Moment, worlds: tuple[World, World], row: int | None
) -> NDArray[np.float64]:
    job, start = worlds[1].job, moment.job.start
    if worlds[1].update is not None or job.planted:
        if worlds[1].update is not None:
            direction = worlds[1].update
        else:
            direction = -job.planted[0][1]
        if worlds[0].update is not None and worlds[1].update is not None:
            direction = worlds[1].update - worlds[0].update
        assert direction is not None
        return np.array([float((final - start).double() @ direction.double()) for final in finals])
    kept = slice(None) if row is None else slice(row, row + 1)
    return -_losses(finals, moment, job.inputs[kept], job.targets[kept]).mean(1).double().numpy()


def _losses(finals: Sequence[Tensor], moment: Moment, inputs: Tensor, targets: Tensor) -> Tensor:
    """(m, n), of n records at m final models."""
    module, layout = moment.federation.module, Layout.of(moment.federation.module)
    loss = loss_of(moment.job.training.loss)
    with torch.no_grad():
        return torch.stack(
            [
                loss.values(functional_call(module, layout.split(final), (inputs.to(final.dtype),)), targets)
                for final in finals
            ]
        )
