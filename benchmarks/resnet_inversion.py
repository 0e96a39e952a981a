"""CIFAR-10 test images behind a small ResNet from one gradient at its initial weights, with kinks and without.

    python benchmarks/resnet_inversion.py DATA [--norms frozen groups8 group batch] [--images 1] [--seeds 0 1 2 3 4 5]
                                          [--softened 6] [--restarts 1] [--objective cosine] [--noise 0]

DATA holds cifar-10-batches-py/. Nine convolutions (16, 32, 64 channels, ReLU), a network and a batch of test images a
seed, labels known, noise in multiples of the gradient's norm. `frozen` and `group` are `[model] batchnorm`, the groups
of 1 and 2 channels here; `groups8` has 8 groups; `batch` is a BatchNorm in training. PSNR and its margin over the
best control of each batch (grey, mean, the labels' means of other images, the attack's start), 95 % by bootstrap over
images; CPU seconds for a batch. `--softened 0` is the search without softening. Settings were picked on seeds 100 to
103.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import scored
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.softened import TIMES
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.read.mode import as_run
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import data, models
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.metrics.intervals import bootstrap_interval
from one_gradient import batch_of, gradient_of
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Basic block of He et al. 2015 (arXiv:1512.03385)."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first, self.second = conv(inputs, outputs, 3, stride, groups), conv(outputs, outputs, 3, 1, groups)
        self.shortcut = nn.Identity() if inputs == outputs else conv(inputs, outputs, 1, stride, groups)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def conv(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> nn.Sequential:
    norm = nn.GroupNorm(groups, outputs) if groups else nn.BatchNorm2d(outputs)
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), norm)


def resnet(shape: tuple[int, ...], classes: int, *, groups: int = 0) -> nn.Sequential:
    """Nine convolutions, two of them on shortcuts. groups: of each normalisation, 0 for a BatchNorm."""
    blocks = Block(16, 16, 1, groups), Block(16, 32, 2, groups), Block(32, 64, 2, groups)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)
    return nn.Sequential(conv(shape[0], 16, 3, 1, groups), nn.ReLU(), *blocks, *head)


def attacked(
    of: Dataset, norm: str, count: int, seed: int, noise: float, settings: Inversion
) -> tuple[Solution, Tensor, Tensor]:
    """A batch's solution, its images and their labels."""
    module = models.build(
        "resnet_inversion:resnet",
        input_shape=of.input_shape,
        classes=of.classes,
        mean=of.mean,
        std=of.std,
        seed=seed,
        allow="resnet_inversion:resnet",
        batchnorm=norm if norm in ("group", "frozen") else None,  # type: ignore[arg-type]
        trained_elsewhere=norm == "batch",
        groups=8 if norm == "groups8" else 0,
    )
    run = as_run(module, "train")
    _, images, labels = batch_of(of.test_inputs, of.test_targets, count, seed)
    target = gradient_of(run, images, labels, noise, seed)
    return solve(module, [target], of.input_shape, settings, seed)[0], images, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="the folder that holds cifar-10-batches-py/")
    parser.add_argument("--norms", nargs="+", default=["frozen", "groups8", "group", "batch"])
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--softened", nargs="+", type=int, default=[TIMES])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--objective", default="cosine")
    parser.add_argument("--noise", type=float, default=0.0)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # where models.build finds this network
    of = data.load("cifar10", root=options.data, seed=0)
    print("| normalisation | softened | PSNR | best control | margin | CPU s |")
    print("|---|---|---|---|---|---|")
    for norm in options.norms:
        for softened in options.softened:
            settings = Inversion(
                objective=options.objective,
                iterations=options.iterations,
                restarts=options.restarts,
                tv="noise-aware",
                features=FEATURES,
                softened=softened,
            )
            pairs, controls, seconds = [], [], 0.0
            for seed in options.seeds:
                begin = time.process_time()
                found, images, labels = attacked(of, norm, options.images, seed, options.noise, settings)
                seconds += time.process_time() - begin
                scores = scored(images, labels, found, of)
                pairs += [pair["psnr"] for pair in scores["pairs"]]
                best = max(float(control["psnr"]) for control in scores["controls"].values())
                controls += [best] * options.images
                print(
                    f"  seed {seed}: {scores['psnr']:.1f} dB, best control {best:.1f}, objective {found.loss:.3g}",
                    file=sys.stderr,
                    flush=True,
                )
            own, of_controls = (torch.tensor(values, dtype=torch.float64) for values in (pairs, controls))
            margin = own - of_controls
            low, high = bootstrap_interval(margin, seed=0) or (float("nan"), float("nan"))
            print(
                f"| {norm} | {softened} | {own.mean():.1f} | {of_controls.mean():.1f} |"
                f" {margin.mean():.1f} ({low:.1f} to {high:.1f}) | {seconds / len(options.seeds):.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
