"""Images behind BatchNorm in training, from one gradient, by what its running statistics tell beside it.

    python benchmarks/batch_statistics.py [--images 8] [--seeds 80 81 …] [--epochs 5] [--objective cosine] [--weight .1]
                                          [--told nothing running batch …] [--iterations 300] [--softened 6]
                                          [--local-epochs 1 --batch 4 --optimiser sgd --lr .05]

Photographs of ten classes, known labels. A network of three convolutions (16, 32, 32 channels, ReLU), each with a
BatchNorm, is trained on 200 of them; then a client sends the gradient of photographs that it was not trained on,
without noise. `nothing`: the attack reads no statistics; `running`: those of the model before the step; `batch`: those
of the batch itself, as the model after the step tells them. With `--local-epochs` the client takes several local steps
on the photographs instead, and sends its update: `batch` is then the mean over its batches. PSNR in dB and
re-identification, means over seeds, each a network and a batch of its own; gains within each seed, 95 % by Student's t
over seeds. The control is the best of grey, the means and the attack's start.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import over_seeds, scored
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.softened import TIMES
from dpfl_audit.attacks.inversion.read.mode import as_run
from dpfl_audit.attacks.inversion.read.statistics import (
    STATISTICS,
    Statistics,
    batch_moments,
    batchnorms,
    running_moments,
)
from dpfl_audit.attacks.inversion.read.target import Target, target_of
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.models import Normalise
from dpfl_audit.defenses.randomness import generator
from one_gradient import batch_of, gradient_of
from strong_noise import Column
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, CLASSES = (3, 32, 32), 10
TOLD = ("nothing", "running", "batch")
OPTIMISERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@dataclass(frozen=True)
class Local:
    """A client's local training: whole epochs of shuffled batches."""

    epochs: int
    batch: int
    optimiser: str
    lr: float


def trained(data: Dataset, epochs: int, seed: int) -> nn.Module:
    """The network after so many epochs of SGD (.05, momentum .9, batches of 20), in training mode."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [Normalise(data.mean, data.std, SHAPE)]
    for stride, inputs, outputs in ((1, 3, 16), (2, 16, 32), (2, 32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * 32, CLASSES)).train()
    optimiser, draw = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9), generator(seed, "benchmark training")
    for _ in range(epochs):
        for rows in torch.randperm(len(data.inputs), generator=draw).split(20):
            optimiser.zero_grad()
            F.cross_entropy(module(data.inputs[rows]), data.targets[rows]).backward()
            optimiser.step()
    return module


def update_of_client(module: nn.Module, images: Tensor, labels: Tensor, local: Local, seed: int) -> Target:
    """What a client in training mode sends, as the attack reads it; the module is left trained."""
    layout, draw = Layout.of(module), generator(seed, "benchmark order")
    before = _flat(module, layout)
    optimiser = OPTIMISERS[local.optimiser](module.parameters(), lr=local.lr)
    for _ in range(local.epochs):
        for rows in torch.randperm(len(images), generator=draw).split(local.batch):
            optimiser.zero_grad()
            F.cross_entropy(module(images[rows]), labels[rows]).backward()
            optimiser.step()
    update = _flat(module, layout) - before
    facts = PublicFacts("b", "update", local.optimiser, local.lr, local.batch, local.epochs, None, noise_std=0.0)
    sent = Seen("benchmark", 0, "client", ("server",), "update", len(images), lambda: update, False)
    return target_of(sent, update, before, facts, Knowledge({sent.id: labels}, torch.zeros(0), torch.zeros(0)))


def _flat(module: nn.Module, layout: Layout) -> Tensor:
    return layout.join({name: p.detach().clone() for name, p in module.named_parameters()})


def measure(
    seed: int, count: int, epochs: int, settings: Inversion, columns: Mapping[str, Column], local: Local | None = None
) -> None:
    """Adds one batch to every column."""
    data = photos.load(classes=CLASSES, samples=200, seed=seed)
    module = trained(data, epochs, seed)
    rows, images, labels = batch_of(data.test_inputs, data.test_targets, count, seed)
    before = {name: value.clone() for name, value in module.named_buffers()}
    client = copy.deepcopy(module)
    if local is None:
        target = gradient_of(as_run(module, "train"), images, labels, 0.0, seed)
        client(images)
    else:
        target = update_of_client(client, images, labels, local, seed)
    layers = batchnorms(module)
    known = running_moments(layers, before)
    told = {
        "nothing": None,
        "running": Statistics(known, {}),
        "batch": Statistics(known, *batch_moments(layers, before, dict(client.named_buffers()))),
    }
    others = torch.ones(len(data.test_inputs), dtype=torch.bool)
    others[rows] = False
    for name, column in columns.items():
        begin = time.process_time()
        (found,) = solve(module, [replace(target, statistics=told[name])], SHAPE, settings, seed)
        column.seconds.append(time.process_time() - begin)
        scores = scored(
            images,
            labels,
            found,
            data,
            distractors=data.test_inputs[others],
            distractor_labels=data.test_targets[others],
        )
        column.psnr.append(scores["psnr"])
        column.picked.append(scores["reidentified"])
        column.control.append(max(float(of["psnr"]) for of in scores["controls"].values()))
        said = f"{column.psnr[-1]:.2f} dB (control {column.control[-1]:.2f}), {column.picked[-1]:.1%}"
        print(f"  seed {seed}, {name}: {said}, {column.seconds[-1]:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(80, 86)))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--objective", default="cosine")
    parser.add_argument("--weight", type=float, default=STATISTICS)
    parser.add_argument("--told", nargs="+", choices=TOLD, default=list(TOLD))
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--softened", type=int, default=TIMES)
    parser.add_argument("--local-epochs", type=int, default=0, help="of a client's own training; 0: one gradient")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--optimiser", choices=list(OPTIMISERS), default="sgd")
    parser.add_argument("--lr", type=float, default=0.05)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = Inversion(
        objective=asked.objective,
        iterations=asked.iterations,
        tv="noise-aware",
        features=FEATURES,
        softened=asked.softened,
        batch_statistics=asked.weight,
        running_statistics=asked.weight,
    )
    local = Local(asked.local_epochs, asked.batch, asked.optimiser, asked.lr) if asked.local_epochs else None
    columns = {name: Column() for name in asked.told}
    for seed in asked.seeds:
        measure(seed, asked.images, asked.epochs, settings, columns, local)
    first = next(iter(columns.values()))
    print(f"| told | PSNR | over {asked.told[0]} | above the control | re-identified | over {asked.told[0]} | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name, own in columns.items():
        gain, margin = ([a - b for a, b in zip(own.psnr, of)] for of in (first.psnr, own.control))
        picked = [100 * (a - b) for a, b in zip(own.picked, first.picked)]
        print(
            f"| {name} | {fmean(own.psnr):.1f} | {over_seeds(gain)} | {over_seeds(margin)} | {fmean(own.picked):.0%} |"
            f" {over_seeds(picked)} | {fmean(own.seconds):.0f} |"
        )


if __name__ == "__main__":
    main()
