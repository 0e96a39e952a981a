"""The ledger a training would leave, without training: what `audit epsilon` prices of a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ...defenses.engine import local_bound
from ...defenses.federation import Federation, run_many, start_state
from ...defenses.local import LocalJob, LocalResult
from ...defenses.schedule import Schedule
from ...defenses.wire import Message, Release, Wire, ancestry
from .config import MOST_ROUNDS
from .experiment import Experiment
from .ledger import Ledger, LedgerMessage, ModelVersion


def rounds_planned(schedule: Schedule) -> int:
    """How many rounds a schedule plans while it knows of no round's outcome, `MOST_ROUNDS` at most."""
    return next((round for round in range(MOST_ROUNDS) if schedule.plan(round, {}) is None), MOST_ROUNDS)


def planned_ledger(experiment: Experiment) -> Ledger:
    """The ledger a training run would leave, without training: the real round loop over a stand-in model with one
    number a tensor.

    Bounds, noise and who takes part do not depend on the weights; where they do, the ledger says that nothing can be
    proven.
    """
    module = nn.Module()
    for i in range(len(experiment.layout.names)):
        module.register_parameter(f"p{i}", nn.Parameter(torch.zeros(1)))
    messages: list[Message] = []
    federation = Federation(
        experiment.scheme,
        module,
        experiment.data,
        experiment.clients,
        experiment.config.seed,
        Wire(messages.append),
        evaluate=False,
    )
    state = start_state(federation)
    state.history = history = _Unread()
    run_many([federation], _no_training, [state])
    versions = ancestry(version for m in messages for version in m.inherits)
    sets = [m.releases for m in messages] + [version.releases for version in versions]
    releases: dict[str, Release] = {r.id: r for releases in sets for r in releases}
    if history.asked:
        releases = {i: replace(r, problem=r.problem or UNPLANNED) for i, r in releases.items()}
    models = {
        v.id: ModelVersion(tuple(sorted(r.id for r in v.releases)), tuple(parent.id for parent in v.parents))
        for v in versions
    }
    sent = {m.id: LedgerMessage.of(m, experiment.scheme.share) for m in messages}
    # in the order a setup's JSON has them
    return Ledger(releases, sent, models, dict(sorted(experiment.observer_parties.items())))


UNPLANNED = "the rounds and their noise follow the test loss, which only training tells: train, and price the setup"


class _Unread(dict[str, list[float]]):
    """A history without entries, that remembers whether the schedule asked for one."""

    asked = False

    def get(self, key: str, default: Any = None) -> Any:
        self.asked = True
        return super().get(key, default)


def _no_training(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    return [
        LocalResult(torch.zeros_like(j.start), torch.zeros_like(j.start), j.start.clone(), local_bound(j)) for j in jobs
    ]
