"""How many images a gradient gives back exactly with no guess, in how many CPU seconds, and how noise ends it.

    python benchmarks/exact_inversion.py batches [--images 8 32 64 100] [--widths 1024 1024 1024]
    python benchmarks/exact_inversion.py noise [--images 8] [--widths 1024 1024 1024]

Bundled photographs of 10 classes, one gradient at a network's initial weights. `noise`: clipped to norm 1, then
Gaussian noise in each component; beside it the same attack with exact = false. One thread, one run each.
"""

from __future__ import annotations

import argparse
import time

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.exact.first_layer import FirstLayer
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.layout import Layout
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = (3, 32, 32)
NOISE = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def workload(images: int, widths: list[int], noise_std: float = 0.0, clip: float | None = None):
    """The network, one gradient of its first images, clipped and noised, and the images."""
    data = photos.load(classes=10, samples=max(20, images), seed=0)
    module = models.build(
        "mlp", input_shape=SHAPE, classes=10, mean=data.mean, std=data.std, seed=0, widths=widths
    ).eval()
    inputs, labels = data.inputs[:images], data.targets[:images]
    found = torch.autograd.grad(F.cross_entropy(module(inputs), labels), list(module.parameters()))
    gradient = torch.cat([g.flatten() for g in found])
    if clip is not None:
        gradient *= min(1.0, clip / gradient.norm().item())
    gradient += noise_std * torch.randn(len(gradient), generator=torch.Generator().manual_seed(9))
    weights = Layout.of(module).join({name: p.detach() for name, p in module.named_parameters()})
    return module, Target("benchmark", weights, gradient, labels, images, clip, noise_std=noise_std), inputs


def psnr(found: Tensor, images: Tensor) -> Tensor:
    """(n,) PSNR in dB (peak 1, at most 100), matched to the true images by the largest sum."""
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2).clamp_min(1e-10)
    decibels = -10 * errors.log10()
    return decibels[linear_sum_assignment(decibels.numpy(), maximize=True)]


def batch(images: int, widths: list[int]) -> None:
    module, target, truth = workload(images, widths)
    begin = time.process_time()
    found = without_guess(module, target)
    seconds = time.process_time() - begin
    told = "not all found" if found is None else f"PSNR mean {psnr(found, truth).mean():.1f}"
    if found is not None:
        told += f", least {psnr(found, truth).min():.1f} dB"
    print(f"{images:4d} images, widths {widths}: {told}, {seconds:.1f} s of CPU", flush=True)


def without_guess(module: nn.Module, target: Target) -> Tensor | None:
    layer = FirstLayer.of(module, target)
    assert layer is not None and target.labels is not None
    return layer.without_guess(layer.blind_columns(0), target.labels, SHAPE)


def noisy(images: int, widths: list[int]) -> None:
    for std in NOISE:
        module, target, truth = workload(images, widths, std, clip=1.0)
        layer, row = FirstLayer.of(module, target), []
        clear = "the span is hidden" if layer is None else f"clearness {layer.span.clearness:.3g}"
        for exact in (False, True):
            begin = time.process_time()
            settings = Inversion(objective="euclidean", tv="noise-aware", exact=exact)
            (solution,) = solve(module, [target], SHAPE, settings, 0)
            row.append(f"{psnr(solution.images, truth).mean():.1f} dB ({time.process_time() - begin:.1f} s of CPU)")
        print(f"noise std {std:g}: {clear}; optimised {row[0]}, exact = true {row[1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("batches", "noise"))
    parser.add_argument("--images", type=int, nargs="+")
    parser.add_argument("--widths", type=int, nargs="+", default=[1024, 1024, 1024])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for images in options.images or ([8] if options.part == "noise" else [8, 32, 64, 100]):
        (noisy if options.part == "noise" else batch)(images, options.widths)


if __name__ == "__main__":
    main()
