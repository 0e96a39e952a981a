"""Images behind convolutions from one gradient at initial weights, with and without the classifier's features.

    python benchmarks/conv_inversion.py [--models lenet cnn cnn6] [--images 8] [--seeds 4 5 6] [--noise 0 .1]
                                        [--iterations 300] [--objective cosine]

Photographs of ten classes, known labels; noise in multiples of the gradient's norm. PSNR and its margin over the best
control (grey, mean, the labels' mean, the attack's start) over all images of all seeds, 95 % by bootstrap; CPU seconds
for a batch. Settings were picked on seeds 0 to 3, 10 and 11.
"""

from __future__ import annotations

import argparse
import time

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import scored
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.solution import Solution
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.metrics.intervals import bootstrap_interval
from one_gradient import batch_of, gradient_of
from torch import Tensor

SHAPE, CLASSES = (3, 32, 32), 10


def attacked(
    name: str, count: int, seed: int, noise: float, settings: Inversion
) -> tuple[Solution, Tensor, Tensor, Dataset]:
    """A batch's solution, its images, their labels, and the data they are of."""
    data = photos.load(classes=CLASSES, samples=200, seed=seed)
    module = models.build(name, input_shape=SHAPE, classes=CLASSES, mean=data.mean, std=data.std, seed=seed)
    _, images, labels = batch_of(data.inputs, data.targets, count, seed)
    target = gradient_of(module, images, labels, noise, seed)
    return solve(module, [target], SHAPE, settings, seed)[0], images, labels, data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["lenet", "cnn", "cnn6"])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--seeds", nargs="+", type=int, default=[4, 5, 6])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--objective", default="cosine")
    options = parser.parse_args()
    print("| network, noise | features | PSNR | above the best control | CPU s |")
    print("|---|---|---|---|---|")
    for name in options.models:
        for noise in options.noise:
            for weight in (0.0, FEATURES):
                settings = Inversion(
                    objective=options.objective, iterations=options.iterations, tv="noise-aware", features=weight
                )
                pairs, controls, seconds = [], [], 0.0
                for seed in options.seeds:
                    begin = time.process_time()
                    found, images, labels, data = attacked(name, options.images, seed, noise, settings)
                    seconds += time.process_time() - begin
                    scores = scored(images, labels, found, data)
                    pairs += [pair["psnr"] for pair in scores["pairs"]]
                    best = max(float(of["psnr"]) for of in scores["controls"].values())
                    controls += [best] * options.images
                own = torch.tensor(pairs, dtype=torch.float64)
                margin = own - torch.tensor(controls, dtype=torch.float64)
                cells = []
                for values in (own, margin):
                    low, high = bootstrap_interval(values, seed=0) or (float("nan"), float("nan"))
                    cells.append(f"{values.mean():.1f} dB ({low:.1f} to {high:.1f})")
                each = seconds / len(options.seeds)
                print(f"| {name}, {noise:g} | {weight:g} | {cells[0]} | {cells[1]} | {each:.0f} |", flush=True)


if __name__ == "__main__":
    main()
