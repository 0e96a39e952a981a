"""Inversions on a GPU: what can be told of them without one, by a stand-in too; and the kernels of torch that they ask
for.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.inversion import solve as solving
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.optimise import Descent
from dpfl_audit.attacks.inversion.match.softened import Softly
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.search import PixelDescent
from dpfl_audit.attacks.inversion.strategies.strategy import Found
from dpfl_audit.audit.devices import device_named
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.reproduce.tables import reproduce
from dpfl_audit.audit.run import evidence
from dpfl_audit.defenses import models
from messages import target_of
from second_device import compiler
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

SHAPE, N = (1, 8, 8), 2


def lenet() -> tuple[nn.Module, Target]:
    module = models.build("lenet", input_shape=SHAPE, classes=4, mean=[0.5], std=[0.25], seed=0).eval()
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    return module, Target("t", weights, torch.ones_like(weights), torch.tensor([0, 1]), N)


@pytest.mark.full
def test_on_a_second_device_all_is_as_on_the_cpu() -> None:
    if not torch.cuda.is_available() and compiler() is None:
        pytest.skip("neither CUDA nor a C++ compiler, which makes a stand-in, is here")
    tests = Path(__file__).with_name("on_a_second_device.py")
    done = subprocess.run([sys.executable, "-m", "pytest", str(tests)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " skipped" not in done.stdout


class Waits(TorchDispatchMode):
    """Counts how often Python asks for a number, for which a GPU has to be waited for."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        return func(*args, **(kwargs or {}))


def test_an_iteration_waits_for_a_gpu_once_and_a_softened_relu_not_at_all() -> None:
    descent = Descent.begin(torch.rand(3, N, *SHAPE, generator=torch.Generator().manual_seed(0)))
    with Waits() as waits:
        descent.go(lambda images: (images.square().sum((1, 2, 3, 4)), 2 * images), 5, 0.1)
    assert waits.count == 5
    with Waits() as waits, Softly(0.1):
        torch.relu(torch.linspace(-1, 1, 5))
    assert waits.count == 0


class Attention(nn.Module):
    """Four patches that attend to each other: by products where their weights are asked for, else torch's fast way."""

    def __init__(self, by_products: bool) -> None:
        super().__init__()
        self.patches, self.end = nn.Conv2d(1, 8, 4, stride=4), nn.Linear(8, 4)
        self.attention, self.by_products = nn.MultiheadAttention(8, 2, batch_first=True), by_products

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        return self.end(self.attention(x, x, x, need_weights=self.by_products)[0].mean(1))


def attending(by_products: bool) -> tuple[nn.Module, Target]:
    torch.manual_seed(0)
    module, labels = Attention(by_products).eval(), torch.tensor([0, 1])
    images = torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(1))
    return module, target_of(module, images, labels)


def test_attention_is_differentiated_twice() -> None:
    """torch's fast kernels of attention have no second derivative."""
    settings = Inversion(objective="euclidean", iterations=8, tv=0.0)
    fast, slow = (
        solve(module, [target], SHAPE, settings, 0)[0] for module, target in (attending(False), attending(True))
    )
    assert fast.loss == pytest.approx(slow.loss, rel=1e-3)


def test_convolutions_are_of_whole_float32_and_what_a_caller_chose_comes_back(monkeypatch) -> None:
    """By default cuDNN takes ten bits of every number: a gradient would be told to 1e-3, not 1e-7."""
    cudnn, seen = torch.backends.cudnn, []

    def read(self, cases, found, work) -> list[Found]:
        seen.append((cudnn.allow_tf32, cudnn.deterministic))
        return search(self, cases, found, work)

    search = PixelDescent.solve
    monkeypatch.setattr(PixelDescent, "solve", read)
    module, target = attending(True)
    for chosen in (True, False):
        with cudnn.flags(enabled=True, deterministic=chosen, allow_tf32=chosen):
            solve(module, [target], SHAPE, Inversion(iterations=1), 0)
            assert (cudnn.allow_tf32, cudnn.deterministic) == (chosen, chosen)
    assert seen == [(False, True), (False, False)]


class Met(Exception):
    """The spy below was called."""


@pytest.mark.parametrize(("spied", "labels"), [("infer_together", "inferred"), ("weighed", "known")])
def test_labels_and_drift_are_read_where_the_messages_are(spied: str, labels: str, monkeypatch) -> None:
    """They run the messages' weights through the network, so it must not be on the device already."""

    def spy(module: nn.Module, *_: object) -> None:
        assert {value.device.type for value in module.state_dict().values()} == {"cpu"}
        raise Met

    module, target = lenet()
    monkeypatch.setattr(solving, spied, spy)
    with pytest.raises(Met):
        solve(module, [target], SHAPE, Inversion(labels=labels, device="meta"), 0)


# --- audit run ---


def test_a_gpu_that_is_not_there_is_one_sentence(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_named("auto") == device_named("cpu") == "cpu"
    with pytest.raises(BadInput, match="--device cuda: no CUDA device is available here; use --device cpu"):
        device_named("cuda")
    with pytest.raises(BadInput, match="no CUDA device is available here"):
        reproduce("thesis-4.3", quick=True, device="cuda")


def test_a_gpu_that_is_too_small_is_one_sentence() -> None:
    class Full:
        cells = ()

        def run(self, *_: object) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    with pytest.raises(BadInput, match="the GPU has too little memory for this attack; use --device cpu"):
        evidence._attempted([Full()], None, seed=0)
