"""This tool's own schemes under replay: what noise is added to moves by its bound at most, and nothing else that leaves
to whom something is proven moves. Of a scheme of which nothing is proven, what it does is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from dpfl_audit.audit.replay.outcome import Replay
from dpfl_audit.audit.replay.records import NeighbourPair, ReplayRecords
from dpfl_audit.audit.replay.replay import AskedReplay, replay_pairs
from dpfl_audit.defenses import engine as engines
from dpfl_audit.defenses.data.dataset import make
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.releases import ResponseLaw
from dpfl_audit.defenses.steps import adapt, components, discrete, perturb, quantile, respond
from dpfl_audit.defenses.wire import SERVER, Message, Parcel, Wire
from sklearn.datasets import load_digits
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
try:
    from test_schemes import CASES, Case, clients, net, scheme_of
finally:
    sys.path.remove(str(Path(__file__).parent))

CHANGED = 3  # the client whose data differ; client 0 has as many records


def records() -> list[tuple[Tensor, Tensor]]:
    """Of each client its inputs and targets."""
    x, y = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(x / 16, dtype=torch.float64), torch.tensor(y)
    return [(inputs[rows], targets[rows]) for rows in clients()]


def neighbours(unit: str) -> dict[str, tuple[Tensor, Tensor]]:
    """What stands in the place of the client: others' data, or its own but for one record; each of extreme values."""
    (x, y), (others, labels) = records()[CHANGED], records()[0]
    whole = {
        "another": (others, labels),
        "mislabelled": (x, (y + 1) % 10),
        "blank": (torch.zeros_like(x), y),
        "opposite": (-x, y),
        **{str(fill): (torch.full_like(x, fill), y) for fill in (1e4, 1e30)},
    }
    if unit == "client":
        return whole
    first = torch.arange(len(x)) == 0
    return {name: (torch.where(first[:, None], a, x), torch.where(first, b, y)) for name, (a, b) in whole.items()}


def taps(tap: Any, unit: str, multiplier: float) -> list[Any]:
    """Of each place that draws noise: tells of the value, its bound and its scale, and goes on with what was released.
    Noise hangs on the key alone, so that what was released differs as the values do.

    unit: whose values differ. multiplier: of the noise on records' gradients, over the clip.
    """

    def told(name: str, parcel: Parcel, made: Parcel, context: Any) -> Parcel:
        (fact,) = [r for r in made.releases if r not in parcel.releases and r not in parcel.told] or [None]
        if fact is None or fact.problem or (fact.bound_norm is None and not isinstance(fact.law, ResponseLaw)):
            return replace(made, vector=tap.public(f"{name} without a bound", made.vector))
        tap.public(f"{name}'s scale", float(fact.noise_std))
        if isinstance(fact.law, ResponseLaw):  # any two values may take each other's place
            return replace(made, vector=tap.release(name, made.vector))
        mine = context.subjects is None or CHANGED in context.subjects
        tap.query(
            name, made.vector.double(), 2 * fact.bound_norm if mine else 0.0, "l1" if fact.bound_order == 1 else "l2"
        )
        return replace(made, vector=tap.release(name, made.vector))

    def wrapped(name: str, real: Callable[..., Parcel]) -> Callable[..., Parcel]:
        def call(parcel: Parcel, *given: Any, **more: Any) -> Parcel:
            context = next(one for one in (*given, *more.values()) if hasattr(one, "subjects"))
            return told(f"{name} of {context.party} in {context.round}", parcel, real(parcel, *given, **more), context)

        return call

    gradient = engines._one_dp_gradient

    def step(job: Any, weights: Tensor, rows: Tensor, *more: Any) -> Tensor:
        rule = job.training.per_example
        made = gradient(job, weights, rows, *more)
        if rule.scale == "clip":
            bound = 2 * rule.clip_norm * len(rule.parts(job.layout)) ** 0.5 / job.training.batch_size
            made = tap.query("a step's gradients", made, bound * (1 + 1e-6))  # the grid's steps
        else:
            made = tap.public("a step's gradients, whose noise follows them", made)
        return tap.release("a step", made)

    def count(vector: Tensor, noise: Tensor, grid: float, bounded: bool) -> Tensor:
        return tap.release("count", tap.query("count", perturb.noisy(vector, noise, grid, bounded), 1.0 + grid))

    stds: list[float] = []

    def drawn(law: Any, std: float, *more: Any) -> Tensor:
        stds.append(tap.public("scale of the norms' noise", std))
        return perturb.draw(law, std, *more)

    def norms(vector: Tensor, noise: Tensor, grid: float, bounded: bool) -> Tensor:
        """A sum of clipped norms: a record's is from 0 to the clip."""
        made = perturb.noisy(vector, noise, grid, bounded)
        return tap.release("norms", tap.query("norms", made, stds[-1] / multiplier + grid))

    release = wrapped("release", perturb.release)
    respond_ = wrapped("response", perturb.respond)
    discretely = wrapped("discrete release", perturb.release_discrete)
    return [
        *(patch.object(module, "release", release) for module in (perturb, components, quantile)),
        patch.object(respond, "respond", respond_),
        patch.object(discrete, "release_discrete", discretely),
        patch.object(engines, "_one_dp_gradient", step),
        patch.object(quantile, "noisy", count),
        patch.object(adapt, "draw", drawn),
        patch.object(adapt, "noisy", norms),
    ]


def replayed(case: Case, *kinds: str) -> Replay:
    """With another client, or another record of a client's, in the place of one: of these kinds, or of all."""
    scheme = scheme_of(case)
    rule = scheme.local.per_example
    unit, multiplier = ("client", 1.0) if rule is None else ("record", rule.noise_multiplier)

    def train(data: ReplayRecords, tap: Any) -> list[Any]:
        held = [data[i] for i in range(len(data))]
        rows = list(torch.arange(sum(len(y) for _, y in held)).split([len(y) for _, y in held]))
        first = torch.cat([x for x, _ in held]), torch.cat([y for _, y in held])
        dataset = make("digits", first, _digits(900, 1300), _digits(1300, 1797), 10, {})
        sent: list[Message] = []
        with ExitStack() as patches:
            for one in taps(tap, unit, multiplier):
                patches.enter_context(one)
            run_many([Federation(scheme, net(torch.float64), dataset, rows, 3, Wire(sent.append))], engines.looped)
        for m in sent:
            if m.sender_party == SERVER or case.proven != ("downlink",):  # to whom nothing is promised may see it
                content = (m.id, m.kind, m.receivers, m.num_examples, dict(m.side), m.vector)
                tap.public(f"what {m.sender} sends in round {m.round}", content)
        return []

    tried = []
    every = neighbours(unit)
    for name, value in ((kind, every[kind]) for kind in kinds or every):
        data, changed = records(), records()
        changed[CHANGED] = value
        one, other = (ReplayRecords(values, range(len(values)), CHANGED) for values in (data, changed))
        tried.append(NeighbourPair(f"{name} {unit}", one, other))
    return replay_pairs(train, tried, AskedReplay(str(case), "replace_one", unit))


def _digits(first: int, last: int) -> tuple[Tensor, Tensor]:
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x[first:last] / 16, dtype=torch.float64), torch.tensor(y[first:last])


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_scheme_passes_replay_exactly_where_it_proves_something(case):
    found = replayed(case)
    assert bool(found.violations) != bool(case.proven), [str(violation) for violation in found.violations]


def test_a_value_twice_as_long_as_its_bound_is_named(monkeypatch):
    """In `make test`: one scheme as it is, and with what it clips doubled before its noise, for one neighbour."""
    case = next(case for case in CASES if case.preset == "local-gaussian")
    assert not replayed(case, "opposite").violations
    real = perturb.release
    monkeypatch.setattr(perturb, "release", lambda p, *a, **k: real(replace(p, vector=2 * p.vector), *a, **k))
    assert {violation.kind for violation in replayed(case, "opposite").violations} == {"sensitivity"}
