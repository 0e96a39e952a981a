"""Images from gradients under strong noise: the auxiliary records' spectrum for a prior, beside the total variation.

    python benchmarks/strong_noise.py [--models mlp lenet cnn cnn6] [--images 8] [--seeds 60 …] [--noise 1 3 9]
                                      [--rounds 1]

Photographs of ten classes, known labels, one gradient at initial weights (mlp: 256-256); the norm of the noise in
multiples of the gradient's. Of several rounds, one gradient of the same images in each, attacked together; between two
the weights take a step of SGD (.1) on 64 other records. PSNR in dB and re-identification, means over seeds, each a
batch and a network of its own; the gain is over the best of the others within each seed, 95 % by Student's t over
seeds. Beside several rounds stands what the spectrum makes of the first alone. The control is the best of grey, the
means, and what the spectrum makes of noise alone.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import over_seeds, scored
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import TV
from dpfl_audit.attacks.inversion.match.case import Auxiliary
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.softened import TIMES
from dpfl_audit.attacks.inversion.match.wiener import filter_of
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from dpfl_audit.defenses.randomness import generator
from one_gradient import batch_of, gradient_of
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, CLASSES = (3, 32, 32), 10
VARIATION = Inversion(tv="noise-aware", exact=True, features=FEATURES, softened=TIMES)
ATTACKS = {
    "cosine": VARIATION,
    "fixed": replace(VARIATION, tv=TV, features=0.0),
    "euclidean": replace(VARIATION, objective="euclidean"),
    "spectrum": PRESETS["spectrum-prior"].settings,
}
ALONE = "spectrum, one round"
RATE, OTHERS = 0.1, 64  # of the steps between rounds


@dataclass
class Column:
    """Of one attack, by seed: PSNR (dB), share re-identified, the best control's PSNR, CPU seconds."""

    psnr: list[float] = field(default_factory=list)
    picked: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{fmean(self.psnr):.1f}, {fmean(self.picked):.0%}"


def rounds_of(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    others: Tensor,
    other_labels: Tensor,
    noise: float,
    seed: int,
    rounds: int,
) -> list[Target]:
    """A message of the same images in each round."""
    module = copy.deepcopy(module)
    found, optimiser = [], torch.optim.SGD(module.parameters(), lr=RATE)
    for round in range(rounds):
        found.append(gradient_of(module, images, labels, noise, seed, round))
        rows = torch.randperm(len(others), generator=generator(seed, "others", round))[:OTHERS]
        optimiser.zero_grad()
        F.cross_entropy(module(others[rows]), other_labels[rows]).backward()
        optimiser.step()
    return found


def measure(name: str, noise: float, seed: int, count: int, rounds: int, columns: dict[str, Column]) -> None:
    """Adds one batch to every attack's column."""
    data = photos.load(classes=CLASSES, samples=400, seed=seed)
    options: dict[str, Any] = {"widths": [256, 256]} if name == "mlp" else {}
    options |= {"input_shape": SHAPE, "classes": CLASSES, "mean": data.mean, "std": data.std, "seed": seed}
    module = models.build(name, **options).eval()
    rows, images, labels = batch_of(data.inputs, data.targets, count, seed)
    others = torch.ones(len(data.inputs), dtype=torch.bool)
    others[rows] = False
    first, *more = rounds_of(module, images, labels, data.inputs[others], data.targets[others], noise, seed, rounds)
    prior = Auxiliary(filter_of(data.auxiliary_inputs))
    for attack in columns:
        settings, begin = ATTACKS.get(attack, ATTACKS["spectrum"]), time.process_time()
        target = first if attack == ALONE else replace(first, others=tuple(more))
        (found,) = solve(module, [target], SHAPE, settings, seed, auxiliary=[prior])
        columns[attack].seconds.append(time.process_time() - begin)
        scores = scored(
            images,
            labels,
            found,
            data,
            distractors=data.inputs[others],
            distractor_labels=data.targets[others],
            of_nothing=settings.learned,
        )
        columns[attack].psnr.append(scores["psnr"])
        columns[attack].picked.append(scores["reidentified"])
        columns[attack].control.append(max(float(of["psnr"]) for of in scores["controls"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["mlp", "lenet", "cnn", "cnn6"])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(60, 66)))
    parser.add_argument("--noise", nargs="+", type=float, default=[1.0, 3.0, 9.0])
    parser.add_argument("--rounds", nargs="+", type=int, default=[1])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    names = [*ATTACKS, ALONE]
    print(f"| network, noise, rounds | {' | '.join(names)} | gain | re-identified more | best control | CPU s |")
    print(f"|{'---|' * (len(names) + 5)}")
    for name, rounds, noise in itertools.product(asked.models, asked.rounds, asked.noise):
        columns = {attack: Column() for attack in [*ATTACKS, *[ALONE] * (rounds > 1)]}
        for seed in asked.seeds:
            measure(name, noise, seed, asked.images, rounds, columns)
        spectrum, rivals = columns["spectrum"], [column for attack, column in columns.items() if attack != "spectrum"]
        gains = [own - max(others) for own, *others in zip(spectrum.psnr, *(one.psnr for one in rivals))]
        more = [100 * (own - max(others)) for own, *others in zip(spectrum.picked, *(one.picked for one in rivals))]
        spent = ", ".join(f"{fmean(one.seconds):.0f}" for one in columns.values())
        print(
            f"| {name}, {noise:g}, {rounds} | {' | '.join(str(columns.get(one, '')) for one in names)}"
            f" | {over_seeds(gains)} | {over_seeds(more)} | {fmean(spectrum.control):.1f} | {spent} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
