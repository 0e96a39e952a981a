"""The rows of the three-number table: claimed and proven ε by observer, unit and adjacency (a run adds the demonstrated ones)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..defenses.engine import local_bound
from ..defenses.federation import Federation, run_many, start_state
from ..defenses.local import LocalJob, LocalResult
from ..defenses.scheme import Claim
from ..defenses.wire import Message, Release, Unit, Wire
from .accounting import Adjacency, worst
from .capture import is_upload
from .errors import BadInput
from .experiment import Experiment
from .files import number
from .ledger import Ledger
from .observers import NEED_SERVER, OWN_PARTIES

UNITS: tuple[Unit, ...] = ("client", "record")
ADJACENCIES: tuple[Adjacency, ...] = ("zero_out", "replace_one")


def rows(
    ledger: Ledger,
    claim: Claim | None,
    delta: float,
    observers: Sequence[str] | None = None,
    units: Sequence[Unit] = UNITS,
    adjacencies: Sequence[Adjacency] = ADJACENCIES,
) -> list[dict[str, Any]]:
    """One row per observer, unit and adjacency at `delta`, about the client who is worst off.

    `claimed` stands only in the row of the claim's own observer, unit and adjacency; `demonstrated` is null: not measured.
    """
    table = []
    if not ledger.participations():
        raise BadInput("no client sent anything in a round that ended finite, so nothing was released and there is nothing to price")
    missing = [o for o in observers or () if o in OWN_PARTIES and o not in ledger.observers]
    if missing:
        raise BadInput(f"observer {missing[0]!r}: this federation has a server and no such party")
    absent = [o for o in observers or () if ledger.observers and o in NEED_SERVER]
    if absent:
        raise BadInput(f"observer {absent[0]!r}: this federation has no server; its observers are {', '.join(ledger.observers)} and uplink")
    own, rounds = max(ledger.participations().values(), default=0), len(ledger.rounds)
    for observer in observers or ledger.default_observers:
        cases = ledger.cases(observer)
        for unit in units:
            for adjacency in adjacencies:
                prices = [worst(seen, subjects, unit=unit, adjacency=adjacency, delta=delta) for seen, subjects in cases]
                price = max(prices, key=lambda p: p.epsilon)
                claimed, notes = None, list(price.reasons)
                if claim is not None and (claim.observer, claim.unit, claim.adjacency) == (observer, unit, adjacency):
                    counted, words = (rounds, "rounds") if claim.counts == "rounds" else (own, "releases of one client")
                    claimed = claim.epsilon(counted, delta)
                    notes.insert(0, f"Claimed: {claim.sentence}; {counted} {words}.")
                table.append({
                    "observer": observer, "unit": unit, "adjacency": adjacency, "delta": delta, "claimed": number(claimed),
                    "proven": number(price.epsilon), "accountant": price.accountant, "multiplier": price.multiplier, "releases": price.releases,
                    "demonstrated": None, "confidence": None, "ceiling": None, "notes": notes,
                })      # fmt: skip
    return table


def planned_ledger(experiment: Experiment) -> Ledger:
    """The ledger a training run would leave, without training: the real round loop over a stand-in model with one number a tensor.

    Bounds, noise and who takes part do not depend on the weights; where they do, the ledger says that nothing can be proven.
    """
    module = nn.Module()
    for i in range(len(experiment.layout.names)):
        module.register_parameter(f"p{i}", nn.Parameter(torch.zeros(1)))
    messages: list[Message] = []
    federation = Federation(
        experiment.scheme, module, experiment.data, experiment.clients, experiment.config.seed, Wire(messages.append), evaluate=False
    )
    state = start_state(federation)
    state.history = history = _Unread()
    run_many([federation], _no_training, [state])
    releases: dict[str, Release] = {r.id: r for m in messages for r in m.releases}
    if history.asked:
        releases = {i: replace(r, problem=r.problem or UNPLANNED) for i, r in releases.items()}
    facts = {
        m.id: {"sender": m.sender_party, "receivers": list(m.receiver_parties), "round": m.round, "kind": m.kind,
               "releases": [r.id for r in m.releases], "captured": False, "upload": is_upload(m, experiment)}
        for m in messages
    }      # fmt: skip
    return Ledger(releases, facts, dict(sorted(experiment.observer_parties.items())))      # in the order a setup's JSON has them


UNPLANNED = "the rounds and their noise follow the test loss, which only training tells: train, and price the setup"


class _Unread(dict[str, list[float]]):
    """A history without entries, that remembers whether the schedule asked for one."""

    asked = False

    def get(self, key: str, default: Any = None) -> Any:
        self.asked = True
        return super().get(key, default)


def _no_training(jobs: Sequence[LocalJob]) -> list[LocalResult]:
    return [LocalResult(torch.zeros_like(j.start), torch.zeros_like(j.start), j.start.clone(), local_bound(j)) for j in jobs]
