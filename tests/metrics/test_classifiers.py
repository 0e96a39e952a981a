"""The reference classifiers: small, independent of the batch, reproducible, and as good as they say."""

from __future__ import annotations

import json

import pytest
import torch
from dpfl_audit.defenses.data import load as load_data
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.data.dataset import digest
from dpfl_audit.metrics.classifiers import WEIGHTS, Reference, load_reference, train_reference
from dpfl_audit.metrics.families import FAMILIES, build
from dpfl_audit.metrics.utility import accuracy
from sklearn.datasets import load_digits
from torch.nn.functional import avg_pool2d


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8)])
def test_each_family_is_small_and_takes_every_image(family, shape):
    state = torch.get_rng_state()
    model = build(family, shape, 10, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert sum(p.numel() for p in model.parameters()) < 100_000
    batch = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    outputs = model(batch)
    assert outputs.shape == (3, 10)
    assert torch.allclose(model(batch[:1]), outputs[:1], atol=1e-5)  # no image changes another's output
    assert torch.equal(build(family, shape, 10, seed=0)(batch), outputs)


@pytest.mark.full
def test_training_learns_digits():
    x, y = digits()
    seen = []
    trained = train_reference(
        x[:500], y[:500], 10, seed=0, steps=30, batch_size=32, progress=lambda *at: seen.append(at)
    )
    assert seen[-1] == (150, 150) and [name for name, _ in trained.members] == list(FAMILIES)
    outputs = trained.averaged_outputs(x[500:900])
    assert torch.allclose(outputs.sum(1), torch.ones(400)) and not outputs.requires_grad
    assert trained.accuracy > 0.85 and accuracy(outputs, y[500:900]) > 0.75


def test_training_repeats_itself():
    x, y = digits()
    first, again, other = (
        train_reference(x[:100], y[:100], 10, seed, steps=1, batch_size=8, flip=True).averaged_outputs(x[:20])
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_average_is_the_mean_of_the_members_probabilities():
    members = (
        ("always 0", lambda x: torch.tensor([50.0, 0.0]).expand(len(x), 2)),
        ("unsure", lambda x: torch.zeros(len(x), 2)),
    )
    reference = Reference(members, None, "test")
    assert torch.allclose(
        reference.averaged_outputs(torch.rand(300, 1, 4, 4)), torch.tensor([0.75, 0.25]).expand(300, 2)
    )


def test_shipped_photos_classifiers_are_as_accurate_as_stated():
    facts = json.loads((WEIGHTS / "photos.json").read_text())
    room = photos.capacity(facts["classes"])
    data = load_data("photos", classes=facts["classes"], test_samples=room["test"], auxiliary_samples=room["auxiliary"])
    again = "run benchmarks/train_photos_classifiers.py"
    assert digest(data.auxiliary_inputs, data.auxiliary_targets) == facts["trained_on"]["sha256"], (
        f"photos has changed: {again}"
    )
    reference = load_reference("photos")
    some = slice(0, 150)
    measured = accuracy(reference.averaged_outputs(data.test_inputs[some]), data.test_targets[some])
    assert measured == pytest.approx(facts["test_accuracy"]["average"], abs=0.1)
    assert reference.accuracy == facts["test_accuracy"]["average"] > 0.6
    assert (WEIGHTS / "photos.safetensors").stat().st_size < 1.5e6


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'imagenet'"):
        load_reference("imagenet")
    with pytest.raises(ValueError, match="10 or more"):
        train_reference(torch.rand(4, 1, 8, 8), torch.zeros(4), 2, 0)
    with pytest.raises(ValueError, match="10 or more"):
        train_reference(torch.rand(9, 1, 8, 8), torch.arange(9) % 2, 2, 0)
    with pytest.raises(ValueError, match="0 … 1"):
        train_reference(torch.rand(10, 1, 8, 8), torch.arange(10), 2, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_of_a_large_image_the_means_of_squares_are_seen(family):
    large = torch.rand(2, 3, 130, 131, generator=torch.Generator().manual_seed(0))
    seen, small = (build(family, shape, 10, 0) for shape in ((3, 130, 131), (3, 32, 32)))
    with torch.no_grad():
        assert torch.equal(seen(large), small(avg_pool2d(large, 4)))
