"""Adapters: what they compute, what is frozen, and that both engines train and clip them alike."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.vocabulary import vocabulary_of
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.layout import Layout, frozen_of
from dpfl_audit.defenses.local import LocalJob, LocalTraining, PerExample

LORA = {"rank": 2, "targets": ["query", "value"], "alpha": 6}


def network(data, **options):
    words = len(vocabulary_of(data.description))
    about = {"input_shape": data.input_shape, "classes": data.classes, "mean": (), "std": (), "seed": 1}
    return models.build("transformer", vocabulary=words, width=8, heads=2, layers=1, **about, **options).double()


def test_an_adapter_adds_a_product_of_low_rank(notes):
    plain, adapted = network(notes), network(notes, lora=LORA)
    assert torch.equal(plain(notes.inputs[:3]), adapted(notes.inputs[:3]))  # B is 0
    layer = adapted.get_submodule("1.blocks.0.query")
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        b.normal_()
    x = torch.randn(5, 8, dtype=torch.float64)
    assert torch.allclose(layer(x), layer.base_layer(x) + 3 * x @ a.T @ b.T)
    names = {"lora_A.default.weight": (2, 8), "lora_B.default.weight": (8, 2)}
    wanted = {f"1.blocks.0.{at}.{name}": shape for at in ("query", "value") for name, shape in names.items()}
    assert dict(zip(Layout.of(adapted).names, Layout.of(adapted).shapes)) == {
        **wanted, "1.head.weight": (4, 8), "1.head.bias": (4,)
    }  # fmt: skip
    assert sum(v.numel() for v in frozen_of(adapted).values()) + 32 == sum(p.numel() for p in plain.parameters()) - 4


@pytest.mark.parametrize("rule", [None, PerExample(0.5, 1.0)], ids=["sgd", "dpsgd"])
def test_engines_train_adapters_alike(rule, notes):
    module = network(notes, lora=LORA)
    layout = Layout.of(module)
    start = layout.join(dict(module.named_parameters())).detach()
    training = LocalTraining(lr=0.1, batch_size=3, per_example=rule)
    jobs = [
        LocalJob(module, layout, training, start, notes.inputs, notes.targets, rows, "update", 0.1, 7, num_examples=6)
        for rows in (torch.tensor([[0, 1, 2], [3, 4, -1]]), torch.tensor([[7, 8, 9], [10, 11, 12]]))
    ]
    for a, b in zip(batched(jobs), looped(jobs), strict=True):
        assert float(a.value.norm()) > 0.01 and torch.allclose(a.value, b.value, atol=1e-9)


@pytest.mark.parametrize(
    ("lora", "words"),
    [
        ({"rank": 2}, "expected {rank = 8"),
        ({"rank": 0, "targets": ["query"]}, "expected {rank = 8"),
        ({"rank": 2, "targets": ["querry"]}, "called 'querry'; there are query, key, value"),
        ("8", "expected {rank = 8"),
        ({"rank": 2, "targets": ["query"], "dropout": 0.1}, "expected {rank = 8"),
    ],
)
def test_what_is_refused(notes, lora, words):
    with pytest.raises(ValueError, match=words):
        network(notes, lora=lora)
