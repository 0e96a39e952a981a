"""Networks of one's own: imported with one's word, refused in one sentence, trained whatever layers they have."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from dpfl_audit.defenses import engine, models
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining
from tiers import quick
from torch import nn

NETS = '''
import torch
from torch import nn

class Lstm(nn.Module):
    """Reads an image line by line."""
    def __init__(self, shape, classes):
        super().__init__()
        self.lstm, self.last = nn.LSTM(shape[2], 5, batch_first=True), nn.Linear(5, classes)
    def forward(self, x):
        return self.last(self.lstm(x[:, 0])[0][:, -1])

class Drawing(nn.Linear):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x.flatten(1)), 0.5)

class Mixing(nn.Linear):
    def forward(self, x):
        return super().forward((x - x.mean(0)).flatten(1))

class Idle(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.spare = nn.Linear(2, 2)
    def forward(self, x):
        return super().forward(x.flatten(1))

def lstm(input_shape, classes):
    return Lstm(input_shape, classes)

def resnet(input_shape, classes):
    from torchvision.models import resnet18
    return resnet18(num_classes=classes)

def norm(input_shape, classes, affine=True):
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6, affine=affine), nn.Flatten(), nn.Linear(216, classes))

def one_less(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes - 1))

def only_shape(input_shape):
    return nn.Flatten()

def raising(input_shape, classes):
    raise RuntimeError("no\\nluck")

def narrow(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))

def pair(input_shape, classes):
    return nn.LSTM(8, classes)

def bare(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(classes))

def drawing(input_shape, classes):
    return Drawing(64, classes)

def idle(input_shape, classes):
    return Idle(64, classes)

def scorer(input_shape, classes, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))

def number(input_shape, classes):
    return 3

def dropping(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes), nn.Dropout(0.5))

def fixed(input_shape, classes):
    return with_width(input_shape, classes).requires_grad_(False)

def mixing(input_shape, classes):
    return Mixing(64, classes)

def shrunk(input_shape, classes):
    norm = nn.BatchNorm2d(16)
    return nn.Sequential(nn.Conv2d(1, 16, 8), norm, nn.ReLU(), nn.Flatten(), nn.Linear(16, classes))

def with_width(input_shape, classes, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, classes))
'''
SHAPE = {"input_shape": (1, 8, 8), "mean": (0.5,), "std": (0.5,), "seed": 0}


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """A module of a name of its own in the working folder, which is not on Python's path."""
    name = f"nets_{abs(hash(tmp_path)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    return name


def build(nets, function, classes=10, shape=SHAPE, **options):
    return models.build(f"{nets}:{function}", classes=classes, allow=f"{nets}:{function}", **shape, **options)


def test_the_working_folder_is_looked_in_and_the_path_is_left_alone(nets):
    before = list(sys.path)
    assert build(nets, "with_width", width=3)(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert sys.path == before
    with pytest.raises(ValueError, match="--allow-model"):
        models.build(f"{nets}:lstm", classes=10, **SHAPE)


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        ("nothing", {}, "cannot be imported"),
        ("one_less", {}, r"shape \(2, 9\) for 2 records; expected \(2, 10\), a number for each class"),
        ("only_shape", {}, r"function\(input_shape, classes, \*\*options\)"),
        ("with_width", {"depth": 3}, r"signature does not allow .*depth"),
        ("raising", {}, "raised RuntimeError: no luck"),
        ("narrow", {}, r"cannot take two records, an input of shape \(2, 1, 8, 8\)"),
        ("pair", {}, "cannot take two records|gives outputs a tuple"),
        ("bare", {}, "has no parameters"),
        ("drawing", {}, "nobody could replay"),
        ("dropping", {}, "Dropout"),
        ("number", {}, "returned a int"),
        ("fixed", {}, "has no parameters with requires_grad; every parameter with requires_grad is trained and sent"),
        ("mixing", {}, "for a record beside others than for it alone"),
        ("idle", {}, "does not use its parameter '1.spare.weight'"),
        ("norm", {}, 'BatchNorm, which mixes records; .model. batchnorm = "group"'),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(nets, function, options, words):
    with pytest.raises(ValueError, match=words) as error:
        build(nets, function, **options)
    assert "\n" not in str(error.value)


def test_a_regression_needs_one_output(nets):
    """classes = 0 says regression."""
    assert build(nets, "scorer", classes=0, outputs=1)(torch.rand(3, 1, 8, 8)).shape == (3, 1)
    with pytest.raises(ValueError, match=r"\(2, 2\) for 2 records; expected \(2, 1\), one number a record"):
        build(nets, "scorer", classes=0, outputs=2)


def jobs(module, count=3, **training):
    layout = Layout.of(module)
    rng = torch.Generator().manual_seed(1)
    inputs, targets = torch.rand(12, 1, 8, 8, generator=rng), torch.arange(12) % 10
    start = layout.join({name: value.detach() for name, value in module.named_parameters()})
    return [
        LocalJob(
            module=module,
            layout=layout,
            start=start + 0.01 * k,
            inputs=inputs,
            targets=targets,
            batches=torch.arange(4 * k, 4 * k + 4).view(2, 2),
            num_examples=4,
            training=LocalTraining(optimiser="sgd", batch_size=2, epochs=1, **training),
            share="update",
            lr=0.1,
            noise_seed=k,
        )
        for k in range(count)
    ]


def test_an_lstm_is_trained_by_the_looped_engine(nets):
    """torch has no batching rule for it; one client after the other gives what the oracle gives, bit for bit."""
    module = build(nets, "lstm")
    assert not engine.stacks(module, (1, 8, 8)) and engine.stacks(build(nets, "with_width"), (1, 8, 8))
    together, oracle = engine.batched(jobs(module)), engine.looped(jobs(module))
    assert all(torch.equal(a.value, b.value) and a.value.norm() > 0 for a, b in zip(together, oracle))


@pytest.mark.parametrize("instead", ["group", "frozen"])
def test_a_record_is_normalised_without_the_others(nets, instead):
    """The outputs for a record are the same alone and beside any others, in training too."""
    module = build(nets, "norm", batchnorm=instead).train()
    x = torch.rand(4, 1, 8, 8)
    beside = module(x)
    assert torch.allclose(torch.cat([module(one[None]) for one in x]), beside, atol=1e-6)
    assert set(module.state_dict()) == dict(module.named_parameters()).keys()
    assert sum(p.numel() for p in module.parameters()) == 6 * 9 + 6 + 2 * 6 + 216 * 10 + 10


@pytest.mark.parametrize(("channels", "groups"), [(2, 1), (7, 1), (8, 1), (64, 4), (512, 32)])
def test_a_vector_is_normalised_over_several_numbers(channels, groups):
    """One number less its own mean is 0, so a group of one channel would forget the record."""
    module = nn.Sequential(nn.BatchNorm1d(channels))
    models._replace_batchnorm(module, "group")
    assert module[0].num_groups == groups
    x = torch.randn(1, channels)
    assert module(x).abs().min() > 0
    parts = x.reshape(groups, -1)
    by_hand = (parts - parts.mean(1, keepdim=True)) / (parts.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(module(x), by_hand.reshape(1, -1), atol=1e-5)


def test_maps_of_one_pixel_cannot_be_normalised_by_channel(nets):
    with pytest.raises(ValueError, match=r"layer '1.1' is a GroupNorm of one number a group.*batchnorm = .frozen"):
        build(nets, "shrunk", batchnorm="group")
    assert build(nets, "shrunk", batchnorm="frozen")(torch.rand(1, 1, 8, 8)).abs().sum() > 0


def test_a_single_channel_cannot_be_a_group():
    module = nn.Sequential(nn.Linear(7, 1), nn.BatchNorm1d(1))
    with pytest.raises(ValueError, match=r"layer .1. is a BatchNorm1d of one channel"):
        models._replace_batchnorm(module, "group")


def test_frozen_statistics_are_a_batchnorm_in_evaluation():
    norm = nn.BatchNorm2d(3)
    with torch.no_grad():
        for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            value.copy_(torch.tensor([0.5, 1.0, 2.0]))
    x = torch.rand(2, 3, 4, 4)
    assert torch.allclose(models.FrozenBatchNorm(norm).train()(x), norm.eval()(x), atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("instead", quick(["group", "frozen"], 0))
def test_torchvisions_resnet_trains_in_both_engines(nets, instead):
    shape = {"input_shape": (3, 8, 8), "mean": (0.5,) * 3, "std": (0.5,) * 3, "seed": 0}
    module = build(nets, "resnet", shape=shape, batchnorm=instead)
    assert (
        sum(p.numel() for p in module.parameters()) == 11_689_512 - 513_000 + 5_130
    )  # torchvision's count, 10 classes
    several = jobs(module, 2)
    colour = several[0].inputs.expand(-1, 3, -1, -1).contiguous()
    several = [replace(job, inputs=colour, start=several[0].start, lr=1e-3) for job in several]
    assert engine.stacks(module, (3, 8, 8))
    for a, b in zip(engine.batched(several), engine.looped(several)):
        assert a.value.norm() > 0 and (a.value - b.value).norm() < 1e-3 * b.value.norm()
