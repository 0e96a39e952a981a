"""On a device that is not the CPU inversions come to what they come to on the CPU: on CUDA where there is one, else on
a stand-in under CUDA's rules. `test_inversion_devices.py` runs this in a process of its own, for `second_device.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.case import Auxiliary
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.wiener import WienerFilter
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.local_steps import LocalSteps
from dpfl_audit.attacks.inversion.read.local_training import Recipe, undone
from dpfl_audit.attacks.inversion.read.mode import as_run
from dpfl_audit.attacks.inversion.read.sparse import Sparse
from dpfl_audit.attacks.inversion.read.statistics import Statistics, batchnorms
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.attacks.inversion.strategies.simulated import orders
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.reproduce.federations import StandIn
from dpfl_audit.audit.reproduce.reconstructed import inversion_plan, reads
from dpfl_audit.audit.reproduce.table import Request
from dpfl_audit.audit.reproduce.trial_table import TableCell
from dpfl_audit.audit.run import RunOptions, run, variants
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from second_device import second_device
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N, CLASSES = (3, 12, 12), 2, 4
SIDES = {"input_shape": SHAPE, "classes": CLASSES, "mean": [0.5] * 3, "std": [0.25] * 3, "seed": 0}


@pytest.fixture(scope="session", autouse=True)
def device() -> str:
    return second_device()


class Residual(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module], bend: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.norm, self.bend = nn.Conv2d(3, 8, 3, padding=1, stride=2), norm(8), bend
        self.way, self.end = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bend(self.norm(self.first(x)))
        return self.end((x + self.bend(self.way(x))).mean((2, 3)))


def layers(*channels: tuple[int, int, int, int]) -> nn.Module:
    """Leaky convolutions of (outputs, kernel, stride, padding), and a classifier."""
    found, before, side = [], SHAPE[0], SHAPE[1]
    for after, kernel, stride, padding in channels:
        sizes = {"kernel_size": kernel, "stride": stride, "padding": padding}
        found.append(["Conv2d", {"in_channels": before, "out_channels": after, **sizes}])
        found.append(["LeakyReLU", {"negative_slope": 0.2}])
        before, side = after, (side + 2 * padding - kernel) // stride + 1
    found += [["Flatten", {}], ["Linear", {"in_features": before * side * side, "out_features": CLASSES}]]
    return models.build("layers", layers=found, **SIDES)


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "leaky":
        return layers((10, 4, 2, 2), (16, 3, 2, 1), (24, 3, 1, 1)).eval()
    if name.startswith("residual"):
        norm = nn.BatchNorm2d if "BatchNorm" in name else lambda channels: nn.GroupNorm(2, channels)
        body = Residual(norm, torch.relu if "ReLU" in name or "BatchNorm" in name else torch.tanh)
        module = nn.Sequential(models.Normalise([0.5] * 3, [0.25] * 3, SHAPE), body).train()
        module(torch.rand(5, *SHAPE))
        return module.eval()
    if name == "mlp":
        return models.build("mlp", widths=[32], **SIDES).eval()
    return models.build(name.split()[0], **({"activation": "tanh"} if "tanh" in name else {}), **SIDES).eval()


RNG = torch.Generator().manual_seed(1)
IMAGES = F.interpolate(torch.rand(N, 3, 3, 3, generator=RNG), SHAPE[1:], mode="bilinear")
LABELS = torch.tensor([0, 1])


def gradient(module: nn.Module, weights: Tensor, images: Tensor = IMAGES, labels: Tensor = LABELS) -> Tensor:
    at = {name: w.clone().requires_grad_() for name, w in Layout.of(module).split(weights).items()}
    loss = F.cross_entropy(torch.func.functional_call(as_run(module, "train"), at, (images,)), labels)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(at.values()))])


def plain(module: nn.Module) -> Target:
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    return Target("t", weights, gradient(module, weights), LABELS, N)


def noisy(module: nn.Module) -> Target:
    target = plain(module)
    noise = torch.randn(len(target.gradient), generator=torch.Generator().manual_seed(2))
    std = 0.3 * float(target.gradient.norm()) / len(noise) ** 0.5
    return replace(target, gradient=target.gradient + std * noise, noise_std=std)


def trained(recipe: Recipe) -> Callable[[nn.Module], Target]:
    def made(module: nn.Module) -> Target:
        target = plain(module)
        walk = LocalSteps(recipe, target.weights)
        for rows in orders(3, "client", recipe.epochs or 1, N).flatten().split(list(recipe.sizes)):
            walk.forward(gradient(module, walk.weights, IMAGES[rows], LABELS[rows]))
        update = walk.weights - target.weights
        read = -update / recipe.scale if recipe.linear else undone(recipe, update, target.weights, 0.0, True)
        return replace(target, gradient=read, recipe=recipe, update=update)

    return made


SGD = trained(Recipe("sgd", 0.1, (1, 1), 1))


def cut_short(module: nn.Module) -> Target:
    """An update clipped to half its length."""
    target = SGD(module)
    assert target.recipe is not None and target.update is not None
    norm = 0.5 * float(target.update.norm()) / target.recipe.scale
    return replace(target, gradient=target.gradient / 2, update=target.update / 2, clip_norm=norm)


def sparse(module: nn.Module) -> Target:
    target = plain(module)
    sent = torch.rand(len(target.gradient), generator=torch.Generator().manual_seed(3)) < 0.5
    return replace(target, gradient=target.gradient * sent, sparse=Sparse(sent, float("inf")))


def rounds(module: nn.Module) -> Target:
    one, other = noisy(module), SGD(module)
    return replace(one, others=(replace(other, key="u"),))


def told(module: nn.Module) -> Target:
    moments = {
        name: (layer.running_mean.double(), layer.running_var.double()) for name, layer in batchnorms(module).items()
    }
    return replace(plain(module), statistics=Statistics(moments, moments))


FEW = Inversion(iterations=4, tv=0.001)
EVERYTHING = replace(FEW, exact=True, features=FEATURES, softened=1)
WHOLE: dict[str, tuple[str, Callable[[nn.Module], Target], Inversion]] = {
    "restarts": ("lenet", plain, replace(FEW, restarts=2)),
    "starts drawn to each other": (
        "lenet",
        lambda m: replace(plain(m), labels=0 * LABELS),
        replace(PRESETS["gradinversion"].settings, iterations=4, restarts=2, labels="known"),
    ),
    "L-BFGS": ("lenet", plain, replace(PRESETS["dlg"].settings, iterations=3)),
    "the first layer exact": ("mlp", plain, EVERYTHING),
    "features, followed to the end": ("cnn tanh", plain, EVERYTHING),
    "leaky convolutions": ("leaky", plain, EVERYTHING),
    "ReLUs softened": ("residual, ReLU", noisy, replace(EVERYTHING, restarts=2, tv="noise-aware")),
    "statistics told": ("residual, BatchNorm", told, replace(FEW, batch_statistics=0.1)),
    "sparse": ("lenet", sparse, replace(FEW, objective="euclidean")),
    "several rounds": ("mlp", rounds, EVERYTHING),
    "labels inferred": ("lenet", plain, replace(FEW, labels="inferred")),
    "a place learned": ("lenet", SGD, replace(FEW, along=0.5, along_rate=1e-3)),
    "training simulated": ("lenet", SGD, replace(FEW, along=0.5, simulated=3, reorder=True, span=1.0)),
    "an update made as long again": ("lenet", cut_short, replace(FEW, along=0.5, simulated=2, reorder=True)),
    "of epochs apart": (
        "mlp",
        trained(Recipe("sgd", 0.1, (1, 1, 1, 1), 2)),
        replace(FEW, objective="absolute", simulated=3),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_attack_comes_to_the_same(name: str, device: str) -> None:
    which, message, settings = WHOLE[name]
    module = network(which)
    target = message(module)
    here, there = (solve(module, [target], SHAPE, replace(settings, device=d), 0)[0] for d in ("cpu", device))
    assert {value.device.type for value in (there.images, there.start, there.labels)} == {"cpu"}
    assert {value.device.type for value in module.state_dict().values()} == {"cpu"}
    assert there.loss == pytest.approx(here.loss, rel=0.02, abs=1e-5) and there.features_by == here.features_by
    assert (there.determined, there.by_step, there.labels_by) == (here.determined, here.by_step, here.labels_by)
    assert (there.images - here.images).abs().mean() < 0.02 and (there.longer is None) == (here.longer is None)


def test_a_learned_prior_gives_the_same(device: str) -> None:
    module, prior = network("lenet"), WienerFilter.learned(torch.rand(20, *SHAPE))
    target = noisy(module)
    settings = replace(PRESETS["spectrum-prior"].settings, iterations=5)
    here, there = (
        solve(module, [target], SHAPE, replace(settings, device=d), 0, auxiliary=[Auxiliary(prior)])[0]
        for d in ("cpu", device)
    )
    assert (here.images - there.images).abs().max() < 0.01 and (here.start - there.start).abs().max() < 0.01
    assert prior.mean.device.type == "cpu"


REFUSED: dict[str, Callable[[Tensor], object]] = {
    "a sum with the CPU's": lambda x: x + torch.ones(3, 3),
    "a product with the CPU's": lambda x: x @ torch.ones(3, 3),
    "side by side with the CPU's": lambda x: torch.cat([x, torch.ones(3, 3)]),
    "its number among the CPU's": lambda x: torch.stack([x.sum(), torch.tensor(1.0)]),
    "into the CPU's": lambda x: torch.ones(3, 3).add_(x),
    "rows by the CPU's places": lambda x: x.index_select(0, torch.tensor([0])),
    "the CPU's by its places": lambda x: torch.ones(3)[x[0].long()],
    "numpy": lambda x: x.numpy(),
    "products of whole numbers": lambda x: x.long() @ x.long(),
    "a draw of the CPU's": lambda x: torch.randn(3, generator=torch.Generator(), device=x.device),
    "gelsd": lambda x: torch.linalg.lstsq(x, x, driver="gelsd"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_device_refuses_what_cuda_refuses(what: str, device: str) -> None:
    """So that the tests above are worth something where a stand-in runs them."""
    x = torch.eye(3).to(device)
    with pytest.raises((RuntimeError, TypeError)):
        REFUSED[what](x)
    assert (x + torch.tensor(1.0))[torch.tensor([0, 2])].cpu().tolist() == [[2, 1, 1], [1, 1, 2]]  # nor more than that


# --- audit run ---

RAW: dict[str, Any] = {
    "seed": 4,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 4},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4},
    "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 0.01, "rounds": 1, "share": "gradient"},
    "capture": {"clients": [0, 1]},
    "attack": {"inversion": {"iterations": 4}},
}
OPTIONS = RunOptions(attacks=("inversion",), device="cpu", pixels_only=True)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    return train(build(parse_config(RAW), folder), folder / "setup")


def test_a_published_table_s_inversions_are_computed_there(tmp_path: Path, device: str) -> None:
    data, made, cells = StandIn("digits", RAW["data"], "digits"), {}, [TableCell("a", {}, {}, reads=reads())]
    base = {name: table for name, table in RAW.items() if name not in ("seed", "attack")}
    for where in ("cpu", device):
        plan = inversion_plan(Request(device=where), base, RAW["attack"]["inversion"], "", data, judged=False)
        made[where] = plan, plan.work(cells, 3, tmp_path / where, None)["a"]["psnr"]
    assert made[device][1] == pytest.approx(made["cpu"][1], abs=0.5)
    assert [*made["cpu"][0].content, device] == made[device][0].content  # kept cells are not mixed
    named = f"{torch.cuda.get_device_name()}" if device == "cuda" else ""
    assert (named in str(made[device][0].notes)) and len(made[device][0].notes) == len(made["cpu"][0].notes) + bool(
        named
    )


def test_the_same_is_found_the_results_say_where_and_another_device_is_another_run(
    setup: Path, tmp_path: Path, device: str, monkeypatch
) -> None:
    here = run(setup, tmp_path / "cpu", OPTIONS)
    with monkeypatch.context() as patched:
        patched.setattr(variants, "device_named", lambda _: device)
        there = run(setup, tmp_path / "there", OPTIONS)
    for one, other in zip(here.attacks, there.attacks, strict=True):
        assert (one.attack, one.n) == (other.attack, other.n)
        assert other.settings == {**one.settings, "device": device} and "device" not in one.settings
        assert other.metrics.psnr == pytest.approx(one.metrics.psnr, abs=0.5)
    page = tmp_path / "report.html"
    render([tmp_path / "there"], page)
    assert f"device = {device}" in page.read_text()
    with pytest.raises(BadInput, match="holds other results"):
        run(setup, tmp_path / "there", OPTIONS)
    (tmp_path / "begun" / ".work").mkdir(parents=True)
    (tmp_path / "begun" / ".work" / "digest").write_text(there.digest)
    with pytest.raises(BadInput, match=r"another unfinished run .*device.*finish it as it was begun"):
        run(setup, tmp_path / "begun", OPTIONS)
