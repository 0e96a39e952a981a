"""The zoo: parameter counts by hand, seeded, batchable, and strangers' code only with the user's word."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.defenses import models

IMAGE = {"input_shape": (3, 32, 32), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.3), "seed": 0}
GREY = {"input_shape": (1, 28, 28), "mean": (0.3,), "std": (0.3,), "seed": 0}

# name, options, inputs, classes, number of parameters counted by hand
COUNTS = [
    ("mlp", {}, IMAGE, 100, 3072 * 1024 + 1024 + 2 * (1024 * 1024 + 1024) + 1024 * 100 + 100),
    ("mlp", {"widths": [200, 200]}, GREY, 10, 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10),
    ("logistic", {}, GREY, 10, 7850),
    ("lenet", {}, IMAGE, 100, (75 + 1) * 12 + 2 * (300 + 1) * 12 + (768 + 1) * 100),
    ("cnn", {}, GREY, 10, (25 + 1) * 32 + (800 + 1) * 64 + (3136 + 1) * 10),
    # ITER's FEMNIST network, as the paper states
    ("cnn", {"kernels": [7, 3], "paddings": [3, 1]}, GREY, 62, 214_590),
    (
        "cnn6",
        {},
        IMAGE,
        10,
        (48 + 1) * 12 + (108 + 1) * 36 + 2 * (324 + 1) * 36 + (324 + 1) * 64 + (576 + 1) * 128 + (3200 + 1) * 10,
    ),
    ("svm", {}, {"input_shape": (104,), "mean": (0.0,) * 104, "std": (1.0,) * 104, "seed": 0}, 2, 104),
    ("linear", {}, {"input_shape": (10,), "mean": (0.0,) * 10, "std": (1.0,) * 10, "seed": 0}, 0, 11),
]


@pytest.mark.parametrize(("name", "options", "inputs", "classes", "count"), COUNTS)
def test_parameters_counted_by_hand(name, options, inputs, classes, count):
    module = models.build(name, classes=classes, **inputs, **options)
    assert sum(p.numel() for p in module.parameters()) == count
    assert module(torch.rand(2, *inputs["input_shape"])).shape == (2, 1 if name == "svm" else max(1, classes))


def test_the_seed_decides_and_the_global_state_is_left_alone():
    before = torch.random.get_rng_state()
    first, again, other = (models.build("logistic", classes=10, **{**GREY, "seed": s}) for s in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    weights = [next(m.parameters()) for m in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_normalisation_is_the_first_layer_and_has_no_parameters():
    module = models.build("logistic", classes=10, **IMAGE)
    x = torch.rand(2, 3, 32, 32)
    shifted = (x - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.2, 0.2, 0.3]).view(3, 1, 1)
    assert (
        torch.allclose(module[0](x), shifted, atol=1e-6)
        and set(module.state_dict()) == dict(module.named_parameters()).keys()
    )


@pytest.mark.parametrize(
    ("name", "options", "inputs", "words"),
    [
        ("mpl", {}, GREY, "unknown model"),
        ("mlp", {"width": 3}, GREY, "no option 'width'"),
        ("mlp", {"widths": []}, GREY, "widths"),
        ("mlp", {"activation": "gelu"}, GREY, "activation"),
        ("lenet", {}, {"input_shape": (30,), "mean": (0.0,), "std": (1.0,), "seed": 0}, "takes images"),
        ("cnn6", {}, {"input_shape": (1, 0, 0), "mean": (0.0,), "std": (1.0,), "seed": 0}, "too small"),
        ("cnn", {"kernels": [5]}, GREY, "same length"),
        ("cnn", {"channels": [], "kernels": [], "paddings": []}, GREY, "same length"),
        ("svm", {}, GREY, "two classes"),
        ("logistic", {}, {**GREY, "mean": (0.3, 0.3, 0.3)}, "mean and std have 3 and 1 numbers"),
        ("logistic", {}, {**GREY, "std": (0.0,)}, "above 0"),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(name, options, inputs, words):
    with pytest.raises(ValueError, match=words):
        models.build(name, classes=10, **inputs, **options)


def test_a_stack_of_torchs_layers_is_built_by_name():
    stack = [["Flatten", {}], ["Linear", {"in_features": 784, "out_features": 10, "bias": False}], ["ReLU", {}]]
    module = models.build("layers", classes=10, layers=stack, **GREY)
    linear, relu = list(module)[2:]
    assert linear.weight.shape == (10, 784) and linear.bias is None and isinstance(relu, torch.nn.ReLU)
    for wrong in ([["Lambda", {}]], [["Linear", {"in": 3}]], [["ReLU"]], [], [["Flatten", {}]]):
        with pytest.raises(ValueError, match="layer"):
            models.build("layers", classes=10, layers=wrong, **GREY)
