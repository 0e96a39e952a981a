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
from ...defenses.wire import Message, Release, Wire
from .capture import is_upload
from .experiment import Experiment
from .ledger import Ledger


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
    releases: dict[str, Release] = {r.id: r for m in messages for r in m.releases}
    if history.asked:
        releases = {i: replace(r, problem=r.problem or UNPLANNED) for i, r in releases.items()}
    facts = {
        m.id: {
            "sender": m.sender_party,
            "receivers": list(m.receiver_parties),
            "round": m.round,
            "kind": m.kind,
            "releases": [r.id for r in m.releases],
            "captured": False,
            "upload": is_upload(m, experiment),
        }
        for m in messages
    }
    return Ledger(
        releases, facts, dict(sorted(experiment.observer_parties.items()))
    )  # in the order a setup's JSON has them


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
