"""A GPU computes what the CPU computes: objective and gradient within 1e-4 at equal points, for every evaluator."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.inversion import solve as solving
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.denoiser import Denoiser
from dpfl_audit.attacks.inversion.evaluate import evaluator
from dpfl_audit.attacks.inversion.presets import PRESETS
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.target import Target
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N = (3, 16, 16), 2


def residual(shape: tuple[int, ...], classes: int) -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
            self.way, self.end = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.tanh(self.norm(self.first(x)))
            return self.end((x + torch.tanh(self.way(x))).mean((2, 3)))

    torch.manual_seed(0)
    return nn.Sequential(models.Normalise([0.5] * 3, [0.25] * 3, SHAPE), Net())


def network(name: str) -> nn.Module:
    if name == "residual":
        return residual(SHAPE, 4).eval()
    options = {"activation": "tanh"} if name in ("mlp", "cnn") else {}
    sides = {"input_shape": SHAPE, "classes": 4, "mean": [0.5] * 3, "std": [0.25] * 3, "seed": 0}
    return models.build(name, **sides, **options).eval()


@pytest.mark.parametrize("name", ("mlp", "lenet", "cnn", "residual"))
@pytest.mark.parametrize("objective", ("cosine", "euclidean", "absolute"))
def test_objective_and_gradient_are_equal(name: str, objective: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is available here")
    module = network(name)
    layout, labels = Layout.of(module), torch.tensor([[0, 1]])
    images = torch.rand(2, N, *SHAPE, generator=torch.Generator().manual_seed(1))
    gradient = torch.autograd.grad(F.cross_entropy(module(images[0].flip(3)), labels[0]), list(module.parameters()))
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    target = Target("t", weights, torch.cat([g.flatten() for g in gradient]), labels[0], N)
    found = {}
    for device in ("cpu", "cuda"):
        at = replace(target, weights=weights.to(device), gradient=target.gradient.to(device))
        own = copy.deepcopy(module).to(device)
        made = evaluator(own, layout, [at], labels.to(device), 2, objective, SHAPE)
        found[device] = [part.cpu() for part in made(images.to(device))]
    for here, there in zip(found["cpu"], found["cuda"]):
        assert (here - there).norm() <= 1e-4 * here.norm()


def test_a_whole_attack_runs_on_the_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is available here")
    module, labels = network("lenet"), torch.tensor([0, 1])
    images = torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(1))
    gradient = torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    target = Target("t", weights, torch.cat([g.flatten() for g in gradient]), labels, N)
    settings = Inversion(iterations=100, restarts=2, halving=True)
    here, there = (solve(module, [target], SHAPE, replace(settings, device=d), 0)[0] for d in ("cpu", "cuda"))
    assert abs(here.loss - there.loss) < 0.2 * here.loss


class Met(Exception):
    """The spy below was called."""


@pytest.mark.parametrize(("spied", "labels"), [("infer_together", "inferred"), ("weighed", "known")])
def test_labels_and_drift_are_read_where_the_messages_are(spied: str, labels: str, monkeypatch) -> None:
    """They run the messages' weights through the network, so it must not be on the device already. Without a GPU the
    meta device stands for one.
    """

    def spy(module: nn.Module, *_: object) -> None:
        assert {value.device.type for value in module.state_dict().values()} == {"cpu"}
        raise Met

    module = network("lenet")
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    target = Target("t", weights, torch.ones_like(weights), torch.tensor([0, 1]), N)
    monkeypatch.setattr(solving, spied, spy)
    with pytest.raises(Met):
        solve(module, [target], SHAPE, Inversion(labels=labels, device="meta"), 0)


@pytest.mark.parametrize("widths", [(), (4,)], ids=["filter alone", "network"])
def test_a_prior_goes_where_the_network_is_and_stays_where_it_was(widths: tuple[int, ...], monkeypatch) -> None:
    """The default run tries one under strong noise. Without a GPU the meta device stands for one."""

    def spy(network: nn.Module, layout: Layout, target: Target, labels: Tensor, denoiser: Denoiser, *_: object) -> None:
        assert {value.device.type for value in network.state_dict().values()} == {"meta"}
        assert {value.device.type for value in denoiser.buffers()} == {"meta"}
        assert {value.device.type for value in denoiser.parameters()} <= {"meta"}
        raise Met

    module, prior = network("lenet"), Denoiser(SHAPE, widths)
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    target = Target("t", weights, torch.ones_like(weights), torch.tensor([0, 1]), N, noise_std=1.0)
    monkeypatch.setattr(solving, "solve_with_prior", spy)
    with pytest.raises(Met):
        solve(
            module,
            [target],
            SHAPE,
            replace(PRESETS["spectrum-prior"].settings, device="meta"),
            0,
            denoisers=[prior],
        )
    assert {value.device.type for value in prior.state_dict().values()} == {"cpu"}


def test_a_learned_prior_gives_the_same_on_the_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is available here")
    module, labels = network("lenet"), torch.tensor([0, 1])
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    noise = torch.randn(len(weights), generator=torch.Generator().manual_seed(1))
    target = Target("t", weights, noise, labels, N, noise_std=1.0)
    settings = replace(PRESETS["spectrum-prior"].settings, iterations=5)
    here, there = (
        solve(module, [target], SHAPE, replace(settings, device=d), 0, denoisers=[Denoiser(SHAPE, ())])[0]
        for d in ("cpu", "cuda")
    )
    assert (here.images - there.images).abs().max() < 0.01 and (here.start - there.start).abs().max() < 0.01
