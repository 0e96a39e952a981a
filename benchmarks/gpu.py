"""What inversions are on a GPU: how long THESIS table 4.3 takes there, and whether they come to what a CPU's come to.

    python benchmarks/gpu.py [--device cuda] [--data-root DIR] [--iterations 2500] [--beside 100] [--trials 1]

Three parts. The grid: all 27 cells of table 4.3 (MLP 3×1024, batches of 25 of CIFAR's images or of the bundled photos)
trained, attacked together and scored as `audit reproduce thesis-4.3` does, by the clock; twice, as a device's first run
loads its kernels. Equal points: objective and gradient of an MLP 3×1024, LeNet and CNN6 on random images, as far from
the CPU's as the larger of both says. Equal ends: the grid of `--beside` iterations there and on the CPU from the same
starts, PSNR by cell, their difference's mean with 95 % by Student's t over cells. `--device cpu` tries the script.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.inversion.match.evaluate import evaluator
from dpfl_audit.attacks.inversion.read.mode import as_run
from dpfl_audit.audit.devices import device_named, model_of
from dpfl_audit.audit.reproduce.reconstructed import ClientScale, single_end
from dpfl_audit.audit.reproduce.table import Request
from dpfl_audit.audit.reproduce.thesis_4_3 import noise_grid_cells
from dpfl_audit.audit.reproduce.trends import student
from dpfl_audit.defenses import models
from dpfl_audit.defenses.layout import Layout
from one_gradient import gradient_of

SHAPE, CLASSES, IMAGES, CANDIDATES = (3, 32, 32), 10, 8, 4
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLP 3×1024": ("mlp", {"widths": [1024] * 3}),
    "LeNet": ("lenet", {}),
    "CNN6": ("cnn6", {}),
}


class Watch:
    """The clock at each sign of progress. A plan's training is the first fifth of it, then come the attacks."""

    def __init__(self) -> None:
        self.begun, self.attack, self.end = time.perf_counter(), 0.0, 0.0

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        now = time.perf_counter()
        if done <= 0.2 * total:
            self.attack = now
        self.end = now


def grid(device: str, data_root: Path | None, iterations: int, seed: int, width: int) -> dict[str, float]:
    """PSNR by cell. Prints the seconds."""
    plan = single_end(Request(data_root=data_root, device=device), scale=ClientScale(width, 25, iterations, 0.01))
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch()
        figures = plan.work(noise_grid_cells(), seed, Path(folder), watch)
        whole = time.perf_counter() - watch.begun
    print(
        f"  {device}, {len(figures)} cells, {iterations:,} iterations, on {plan.data}: attacks"
        f" {watch.end - watch.attack:.1f} s, with training and scores {whole:.1f} s",
        flush=True,
    )
    return {name: float(cell["psnr"]) for name, cell in figures.items()}


def at_equal_points(device: str) -> Mapping[str, float]:
    """By network and objective the distance of what the device gives from what the CPU does, over its size."""
    apart = {}
    for shown, (name, options) in NETWORKS.items():
        torch.manual_seed(0)
        module = as_run(
            models.build(name, input_shape=SHAPE, classes=CLASSES, mean=[0.5] * 3, std=[0.25] * 3, seed=0, **options),
            "train",
        )
        rng = torch.Generator().manual_seed(1)
        labels, images = torch.arange(IMAGES) % CLASSES, torch.rand(CANDIDATES, IMAGES, *SHAPE, generator=rng)
        target = gradient_of(module, torch.rand(IMAGES, *SHAPE, generator=rng), labels, 0.1, 0)
        for objective in ("cosine", "euclidean"):
            found = {}
            for where in ("cpu", device):
                own = copy.deepcopy(module).to(where)
                moved = replace(target, weights=target.weights.to(where), gradient=target.gradient.to(where))
                made = evaluator(own, Layout.of(module), [moved], labels[None].to(where), CANDIDATES, objective, SHAPE)
                found[where] = [part.double().cpu() for part in made(images.to(where))]
            for what, here, there in zip(("objective", "gradient"), found["cpu"], found[device]):
                apart[f"{shown}, {objective}, {what}"] = float((here - there).norm() / here.norm())
    return apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--iterations", type=int, default=2500)
    parser.add_argument("--beside", type=int, default=100, help="iterations of the grid that the CPU does too; 0: none")
    parser.add_argument("--trials", type=int, default=1, help="grids that are compared with the CPU's")
    parser.add_argument("--width", type=int, default=1024, help="of the MLP's layers; smaller only to try the script")
    args = parser.parse_args()
    torch.set_flush_denormal(True)
    device = device_named(args.device)
    print(f"device: {model_of(device) or 'CPU'}; torch {torch.__version__}\n")

    print("Table 4.3's grid:")
    for _ in range(2):
        cells = grid(device, args.data_root, args.iterations, 0, args.width)
    print("  PSNR: " + ", ".join(f"{name} {value:.1f}" for name, value in cells.items()), flush=True)

    print("\nAt equal points, the distance from the CPU's over its size:")
    for name, value in at_equal_points(device).items():
        print(f"  {name}: {value:.1e}", flush=True)

    if args.beside:
        print("\nThe same grid there and on the CPU:")
        differences = []
        for trial in range(1, args.trials + 1):
            there, here = (grid(d, args.data_root, args.beside, trial, args.width) for d in (device, "cpu"))
            differences += [there[name] - here[name] for name in here]
        middle, low, high = student(differences)
        print(f"  PSNR there less here: {middle:.3f} dB ({low:.3f} to {high:.3f}), at most", end=" ")
        print(f"{max(map(abs, differences)):.2f} in a cell")


if __name__ == "__main__":
    main()
