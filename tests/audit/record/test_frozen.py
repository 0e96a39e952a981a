"""Networks that are not trained whole: what is trained is what is sent and priced, and the base stands once."""

from __future__ import annotations

import importlib
from math import inf, sqrt

import numpy as np
import pytest
import torch
from dp_accounting import get_epsilon_gaussian
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.dump import import_dump
from dpfl_audit.audit.record.mechanism import Gaussian, Sampling
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.terms import Observer
from safetensors.torch import load_file, save_file
from torch import nn

NOISE = Gaussian(clip=1.0, noise_std=0.5)
TWO_ROUNDS = get_epsilon_gaussian(0.5 / sqrt(2), 1e-5)  # 15.46
NETS = """
from torch import nn
import torch

class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(64, 10).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, 64)), nn.Parameter(torch.zeros(10, 2))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T
"""


@pytest.fixture
def adapted(tmp_path, monkeypatch):
    (tmp_path / "nets_of_adapters.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return importlib.import_module("nets_of_adapters").Adapted()


def proven(folder) -> float:
    rows = table(folder).rows
    return next(r.proven for r in rows if (r.observer, r.unit, r.adjacency) == ("server", "client", "zero_out"))


def contradicted(folder) -> dict[str, str]:
    return {row.what: row.why for row in check_setup(folder)[1].declared if row.status == "contradicted"}


@pytest.mark.parametrize(("down", "up"), [("adapters", "list"), ("whole", "adapters"), ("whole", "whole")])
def test_what_is_trained_is_recorded_and_the_base_stands_once(adapted, down, up, tmp_path):
    state = adapted.state_dict()
    sent = {n: p.detach() for n, p in adapted.named_parameters() if p.requires_grad}
    still = {n: torch.zeros_like(v) for n, v in state.items() if n not in sent}
    with Recorder("s", adapted, mechanism=NOISE, data={"input_shape": (64,), "classes": 10}) as rec:
        for t in range(2):
            rec.broadcast(t, sent if down == "adapters" else state)
            noisy = {n: 0.5 * torch.randn(v.shape) for n, v in sent.items()}
            rec.upload(t, 0, {"adapters": noisy, "list": [*noisy.values()], "whole": noisy | still}[up], 5)
    setup, _ = check_setup(tmp_path / "s")
    assert proven(tmp_path / "s") == pytest.approx(TWO_ROUNDS) == pytest.approx(15.46, abs=0.01)
    assert contradicted(tmp_path / "s") == {}
    assert (setup.manifest.model.parameters, setup.manifest.model.frozen) == (148, 650)
    assert {n.rpartition("/")[2] for n in load_file("s/tensors/round-0001.safetensors")} == {"1.a", "1.b"}
    module = setup.module("nets_of_adapters:Adapted")
    assert torch.equal(module[1].base.weight, state["base.weight"]) and not module[1].base.weight.requires_grad


def test_whoever_attacks_has_the_base(tmp_path):
    """A frozen layer in front of what is trained: the record comes back only through the base's own numbers."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 3))
    net[1].requires_grad_(False)
    record, target = torch.rand(1, 1, 2, 4), torch.tensor([1])
    loss = nn.functional.cross_entropy(net(record), target)
    trained = [p for p in net.parameters() if p.requires_grad]
    with Recorder(tmp_path / "s", net, share="gradient") as rec:
        rec.broadcast(0, net)
        rec.upload(0, 0, list(torch.autograd.grad(loss, trained)), 1, records=(record, target))
    view = check_setup(tmp_path / "s")[0].view(Observer.parse("server"))
    knowledge = check_setup(tmp_path / "s")[0].knowledge()
    attack = Inversion(objective="euclidean", tv=0.0, iterations=250)
    found = attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0)
    assert found.assumed.count(*view.base_known) == 1 and "360" in view.base_known[0].split()
    assert float((found.images - record).abs().max()) < 1e-3


def test_a_base_that_moves_is_named(adapted, tmp_path):
    sent = {n: p.detach() for n, p in adapted.named_parameters() if p.requires_grad}
    state = {n: v.clone() for n, v in adapted.state_dict().items()}
    with Recorder("s", adapted, mechanism=NOISE) as rec:
        rec.broadcast(0, state)
        rec.upload(0, 0, {n: 0.5 * torch.randn(v.shape) for n, v in sent.items()}, 5)
        state["base.bias"] += 1
        rec.broadcast(1, state)
    found = contradicted(tmp_path / "s")["frozen parameters"]
    assert found.startswith("it did in the broadcast of round 1") and proven(tmp_path / "s") == inf


def test_another_base_is_another_recording(adapted, tmp_path):
    sent = {n: p.detach() for n, p in adapted.named_parameters() if p.requires_grad}
    rec = Recorder("s", adapted, mechanism=NOISE)
    rec.broadcast(0, sent)
    rec.upload(0, 0, sent, 5)
    rec.broadcast(1, sent)
    rec.abandon()
    Recorder("s", adapted, mechanism=NOISE).abandon()
    with torch.no_grad():
        adapted.base.bias += 1
    with pytest.raises(BadInput, match="with another network"):
        Recorder("s", adapted, mechanism=NOISE)


def updates(net, moved):
    return {n: 0.01 * torch.randn(v.shape) * (n in moved) for n, v in net.state_dict().items()}


EVERY = ("0.weight", "0.bias", "2.weight", "2.bias")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("moved", "inside", "still", "status"),
    [
        ((), True, "'0.weight' and 3 more", "contradicted"),
        ((), False, "'0.weight' and 3 more", "defect"),
        (EVERY[1:], True, "'0.weight'", "contradicted"),
        (EVERY[1:], False, "", ""),
        (EVERY, True, "", ""),
    ],
)
def test_parameters_that_training_does_not_move_are_named(moved, inside, still, status, tmp_path):
    """opacus#820: noise on every gradient moves all that it is on, so what stands still was not trained."""
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    lot = Sampling("poisson", 20, 5, unit="record")
    said = Gaussian(1.0, 1.0, of="record", steps=4, sampling=lot) if inside else None
    with Recorder(tmp_path / "s", net, mechanism=said) as rec:
        for t in range(2):
            rec.broadcast(t, net)
            rec.upload(t, 0, updates(net, moved), 20)
    found = [(d.status, d.why) for d in check_setup(tmp_path / "s")[1].declared if d.what == "what is trained"]
    assert [name for name, _ in found] == [status] * bool(status)
    assert all(why.startswith(f"{still} moved in none of 2 uploads") for _, why in found)
    assert (proven(tmp_path / "s") < inf) == (inside and not still)


def test_a_dump_of_adapters_names_the_file_of_its_base(adapted, tmp_path):
    rng, sent = np.random.default_rng(0), {"a": (2, 64), "b": (10, 2)}
    (tmp_path / "dump").mkdir()
    for t in range(2):
        arrays = {f"{who}/{n}": rng.normal(0, 0.5, s) for who in ("broadcast", "client-0") for n, s in sent.items()}
        np.savez(tmp_path / "dump" / f"round-{t}.npz", **arrays)
    save_file({n: v for n, v in adapted.state_dict().items() if n.startswith("base")}, tmp_path / "base.safetensors")
    (tmp_path / "said.toml").write_text(
        'num_examples = 5\n[mechanism]\nclip = 1\nnoise_std = 0.5\n[model]\nname = "nets_of_adapters:Adapted"\n'
        'base = "base.safetensors"\n[data]\ninput_shape = [64]\nclasses = 10\n'
    )
    import_dump(tmp_path / "dump", tmp_path / "s", declared=tmp_path / "said.toml")
    setup = check_setup(tmp_path / "s")[0]
    module = setup.module("nets_of_adapters:Adapted")
    assert torch.equal(module[1].base.bias, adapted.base.bias) and setup.layout.dim == 148
    assert proven(tmp_path / "s") == pytest.approx(TWO_ROUNDS)


def test_a_network_of_which_nothing_is_trained_is_named_when_the_recorder_opens(tmp_path):
    """Such as a copy for evaluation: all of it is taken as trained and sent."""
    net = nn.Linear(3, 2).requires_grad_(False)
    with pytest.warns(UserWarning, match="requires_grad"), Recorder(tmp_path / "s", net, mechanism=NOISE) as rec:
        rec.broadcast(0, net.state_dict())
        rec.upload(0, 0, {name: torch.randn(value.shape) for name, value in net.state_dict().items()}, num_examples=5)
    assert 0 < proven(tmp_path / "s") < inf


class WithHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh()), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.features(x))


@pytest.mark.parametrize(
    ("frozen", "sent"),
    [
        ("before", "all"),
        ("after it opened", "head alone, by its own names"),
        ("after it opened", "all that is trained"),
    ],
)
def test_a_head_is_what_is_trained_whenever_the_rest_was_frozen(frozen, sent, tmp_path):
    """Two uploads of 27 numbers at a multiplier of 1/2; the rest stands once beside them."""
    net = WithHead()
    held = {
        "head alone, by its own names": net.head.state_dict(),
        "all that is trained": {f"head.{n}": v for n, v in net.head.state_dict().items()},
        "all": net.state_dict(),
    }[sent]
    net.features.requires_grad_(frozen != "before")
    with Recorder(tmp_path / "s", net, mechanism=NOISE, strict=True) as rec:
        net.features.requires_grad_(False)
        for t in range(2):
            rec.broadcast(t, held)
            rec.upload(
                t, 0, {n: 0.5 * torch.randn(v.shape) * ("features" not in n) for n, v in held.items()}, num_examples=5
            )
    setup, _ = check_setup(tmp_path / "s")
    assert (setup.manifest.model.parameters, setup.manifest.model.frozen) == (27, 520)
    assert proven(tmp_path / "s") == pytest.approx(TWO_ROUNDS)
