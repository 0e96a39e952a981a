"""The test loss where parties keep their own models: the plain mean, each distinct model evaluated once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from dpfl_audit.defenses import federation as federations
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.data.text import told_by_next_words
from dpfl_audit.defenses.data.vocabulary import vocabulary_of
from dpfl_audit.defenses.federation import Federation, State, evaluate, run_many, start_state
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining, decision
from dpfl_audit.defenses.losses import loss_of
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.wire import Parcel
from torch.func import functional_call

CLIENTS = 8


def test_a_decision_is_the_largest_score_or_the_sign_of_the_only_one():
    assert decision(torch.tensor([[1.0, 3.0, 2.0]])).tolist() == [1]
    assert decision(torch.tensor([[1.0, 3.0], [2.0, -1.0]])).tolist() == [1, 0]
    assert decision(torch.tensor([[0.2], [-0.1], [0.0]])).tolist() == [1, 0, 0]
    assert decision(torch.tensor([[0.2]])).tolist() == [1]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


def federation_of(data: Dataset, name: str, **parameters) -> Federation:
    module = models.build(
        "mlp", input_shape=data.input_shape, classes=data.classes, mean=data.mean, std=data.std, seed=1, widths=[8]
    )
    clients = list(torch.arange(20 * CLIENTS).split(20))
    preset = PRESETS[name]
    chosen = preset.parameters(**{"rounds": 3, **parameters})
    scheme = preset.scheme(
        chosen, LocalTraining(optimiser="sgd", lr=0.5, batch_size=20), Population((20,) * CLIENTS, Layout.of(module))
    )
    return Federation(scheme, module, data, clients, seed=2)


def slow(federation: Federation, vectors: Sequence[torch.Tensor]) -> dict[str, float]:
    """One party after the other."""
    data, losses, hits = federation.data, [], []
    for vector in vectors:
        outputs = functional_call(federation.module, federation.layout.split(vector), (data.test_inputs,))
        losses.append(loss_of(federation.scheme.local.loss).values(outputs, data.test_targets).mean().item())
        hits.append((outputs.argmax(1) == data.test_targets).double().mean().item())
    return {"test_loss": sum(losses) / len(losses), "test_accuracy": sum(hits) / len(hits)}


@pytest.mark.parametrize(
    ("name", "parameters"), [("anonymous-leader", {}), ("anonymous-gossip", {"neighbours": 2}), ("fedavg", {})]
)
def test_the_figures_are_the_mean_over_parties_and_no_model_is_run_twice(name, parameters, digits, monkeypatch):
    calls: list[int] = []

    def counted(module, named, inputs):
        calls.append(1)
        return functional_call(module, named, inputs)

    monkeypatch.setattr(federations, "functional_call", counted)
    federation, shared = federation_of(digits, name, **parameters), []

    def check(_: int, record) -> None:
        vectors = [parcel.vector for parcel in record.state.models.values()]
        distinct = len({id(vector) for vector in vectors})
        assert len(calls) == distinct
        calls.clear()
        shared.append(len(vectors) - distinct)
        expected = slow(federation, vectors)
        # To the last bit: the sum goes over parties in their order.
        assert {k: record.figures[k] for k in expected} == expected

    run_many([federation], on_round=check)
    # A leader's receivers hold its very model.
    assert len(shared) == 3 and (min(shared) >= CLIENTS // 2) == (name == "anonymous-leader")


def test_a_decoder_is_tested_some_texts_at_a_time(monkeypatch):
    """Its outputs are as many as words, at each place of each text."""
    data, shapes = told_by_next_words(load("notes", seed=5)), []
    words = len(vocabulary_of(data.description))
    about = {"input_shape": data.input_shape, "classes": data.classes, "mean": (), "std": (), "seed": 1}
    small = {"width": 8, "heads": 2, "layers": 1, "causal": True, "target_shape": data.target_shape}
    module = models.build("transformer", vocabulary=words, **about, **small)
    training = LocalTraining(batch_size=5, loss="next_token")
    scheme = PRESETS["fedavg"].scheme(
        PRESETS["fedavg"].parameters(rounds=1), training, Population((5,), Layout.of(module))
    )
    federation = Federation(scheme, module, data, [torch.arange(5)], seed=2)
    expected = loss_of("next_token").values(module(data.test_inputs), data.test_targets).mean().item()

    def counted(module, named, inputs):
        shapes.append(len(inputs[0]))
        return functional_call(module, named, inputs)

    monkeypatch.setattr(federations, "functional_call", counted)
    found = evaluate(federation, start_state(federation))
    assert found == {"test_loss": pytest.approx(expected, rel=1e-5)}
    assert max(shapes) <= federations.TEXTS < len(data.test_inputs) == sum(shapes)


def test_a_model_that_many_hold_weighs_as_many(digits):
    federation = federation_of(digits, "anonymous-leader")
    start = start_state(federation).models[0].vector
    often, once = (
        Parcel(start),
        Parcel(start + 0.3 * torch.randn(start.shape, generator=torch.Generator().manual_seed(0))),
    )
    state = State(0, {party: once if party == 5 else often for party in range(CLIENTS)})
    few, many = slow(federation, [once.vector]), slow(federation, [often.vector])
    assert few["test_loss"] != pytest.approx(many["test_loss"], rel=0.05)
    for name, value in evaluate(federation, state).items():
        assert value == pytest.approx((few[name] + (CLIENTS - 1) * many[name]) / CLIENTS, rel=1e-12)
