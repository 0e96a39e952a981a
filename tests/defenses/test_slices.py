"""A cohort trained slice by slice is the cohort trained as one: the same noise, ledger, messages and sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.defenses import models, slices
from dpfl_audit.defenses.aggregate import Mean
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.federation import Federation, State, run_many
from dpfl_audit.defenses.grid import partial_sum, total, whole_sum
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.participation import Poisson, Uniform
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Scheme
from dpfl_audit.defenses.slices import Keep, run_sliced, sliceable
from dpfl_audit.defenses.steps.clip import Clip, MedianClip
from dpfl_audit.defenses.steps.discrete import PerturbDiscrete, RoundToSteps
from dpfl_audit.defenses.steps.momentum import Momentum
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.wire import SERVER, Message, Wire

LOCAL = LocalTraining(optimiser="sgd", lr=0.3, batch_size=10, epochs=2)


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def federation(digits, sent: list[Message], **changes) -> Federation:
    """Twenty clients of unequal size, of which seven take part in each of three rounds."""
    scheme = Scheme(
        name="sliced",
        source="",
        local=LOCAL,
        client=(MedianClip(), Momentum(0.5), Clip(0.5), Perturb(noise_multiplier=0.5)),
        aggregate=Mean(weighted=True),
        participation=Uniform(7),
        schedule=FixedRounds(3),
    )
    module = models.build("mlp", input_shape=(1, 8, 8), classes=10, mean=(0.0,), std=(1.0,), seed=1, widths=[6])
    clients = [torch.arange(40 * i, 40 * i + 25 + i % 5) for i in range(20)]
    return Federation(replace(scheme, **changes), module, digits, clients, 3, Wire(sent.append), key="k")


def same(one: State, other: State) -> None:
    assert torch.allclose(one.models[SERVER].vector, other.models[SERVER].vector, atol=1e-6, rtol=0)
    assert one.round == other.round and one.participations == other.participations
    assert {p: m for p, m in one.memory.items() if m}.keys() == {p: m for p, m in other.memory.items() if m}.keys()
    for party, kept in one.kept.items():
        for name, value in kept.items():
            assert torch.allclose(value, other.kept[party][name], atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share": "gradient"},
        {"share": "weights"},
        {"client": ()},
        {"client": (Clip(0.5), RoundToSteps(2.0**-8, 0.6), PerturbDiscrete(0.125, 2**9)), "aggregate": Mean()},
        {"participation": Poisson(0.02), "client": (Clip(0.5), Perturb(noise_multiplier=1.0)), "aggregate": Mean()},
    ],
)
def test_slices_of_three_are_the_cohort_as_one(digits, monkeypatch, changes) -> None:
    """Noise, ids, releases and what clients remember too; a Poisson cohort of 20 · 2 % is mostly empty."""
    monkeypatch.setattr(slices, "SLICE_CLIENTS", 3)
    sent: list[Message] = []
    parts: list[Message] = []
    vectors: dict[str, torch.Tensor] = {}
    (whole,) = run_many([federation(digits, sent, **changes)])
    keep = Keep(lambda round: frozenset(range(20)), vectors.__setitem__)
    same(whole, run_sliced(federation(digits, parts, **changes), keep=keep))
    assert [m.id for m in sent] == [m.id for m in parts]
    for one, other in zip(sent, parts):
        assert {r.id: r for r in one.releases}.keys() == {r.id: r for r in other.releases}.keys()
        assert (one.num_examples, one.sender_party, one.receivers) == (
            other.num_examples,
            other.sender_party,
            other.receivers,
        )
        vector = other.vector if one.sender_party == SERVER else vectors[other.id]
        assert torch.allclose(one.vector, vector, atol=1e-6) and one.vector.dtype == vector.dtype
        if one.sender_party != SERVER:
            assert len(other.vector) == 0  # nobody carries it back


def test_a_run_goes_on_from_a_round_in_the_middle(digits, monkeypatch) -> None:
    monkeypatch.setattr(slices, "SLICE_CLIENTS", 3)
    through = run_sliced(federation(digits, []))
    half = run_sliced(federation(digits, [], schedule=FixedRounds(1)))
    assert torch.equal(run_sliced(federation(digits, []), half).models[SERVER].vector, through.models[SERVER].vector)


@pytest.mark.parametrize(
    "steps", [[2.0**-30] * 6, [2.0**-30, 2.0**-28, 2.0**-31, 2.0**-30, 2.0**-26, 2.0**-29], [0.0] * 6]
)
def test_parts_of_a_sum_add_up_to_the_last_bit(steps) -> None:
    """On grids; off them to float64's rounding."""
    rng = torch.Generator().manual_seed(0)
    counts = [3, 1, 4, 1, 5, 9]
    vectors = []
    for step in steps:
        value = torch.randn(1000, generator=rng, dtype=torch.float64) * 1e3
        vectors.append((value / step).round() * step if step else value)
    parts = [partial_sum(vectors[a:b], counts[a:b], steps[a:b]) for a, b in ((0, 2), (2, 3), (3, 6))]
    summed, whole = whole_sum(parts), total(vectors, counts, steps)
    assert torch.equal(summed, whole) if steps[0] else torch.allclose(summed, whole, rtol=1e-14)


def test_only_a_hub_that_needs_a_sum_can_be_served_by_slices() -> None:
    module = models.build("linear", input_shape=(4,), classes=2, mean=(0.0,) * 4, std=(1.0,) * 4, seed=0)
    population = Population((5,) * 6, Layout.of(module))
    able = {
        name: sliceable(PRESETS[name].scheme(PRESETS[name].parameters(**given), LOCAL, population))
        for name, given in {
            "fedavg": {"rounds": 1},
            "ldp": {"clip": 1.0, "sigma": 1.0, "rounds": 1},
            "cdp": {"sigma": 1.0, "rounds": 1, "participants": 2},
        }.items()
    }
    assert able == {"fedavg": True, "ldp": True, "cdp": False}
