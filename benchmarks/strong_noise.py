"""Images from one gradient under strong noise: the auxiliary records' spectrum for a prior, beside the total variation.

    python benchmarks/strong_noise.py [--models mlp lenet cnn cnn6] [--images 8] [--seeds 60 …] [--noise 1 3 9]

Photographs of ten classes, known labels, one gradient at initial weights (mlp: 256-256); the norm of the noise in
multiples of the gradient's. PSNR in dB and re-identification, means over seeds, each a batch and a network of its own;
the gain is over the better of both total variations within each seed, 95 % by Student's t over seeds. The control is
the best of grey, the means, and what the spectrum makes of noise alone.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import scored
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.features import FEATURES
from dpfl_audit.attacks.inversion.kept_denoiser import filter_of
from dpfl_audit.attacks.inversion.presets import PRESETS
from dpfl_audit.attacks.inversion.softened import TIMES
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import photos
from learned_prior import over_seeds
from one_gradient import batch_of, gradient_of

SHAPE, CLASSES = (3, 32, 32), 10
VARIATION = Inversion(tv="noise-aware", exact=True, features=FEATURES, softened=TIMES)
ATTACKS = {
    "cosine": VARIATION,
    "euclidean": replace(VARIATION, objective="euclidean"),
    "spectrum": PRESETS["spectrum-prior"].settings,
}


@dataclass
class Column:
    """Of one attack, by seed: PSNR (dB), share re-identified, the best control's PSNR, CPU seconds."""

    psnr: list[float] = field(default_factory=list)
    picked: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{fmean(self.psnr):.1f}, {fmean(self.picked):.0%}"


def measure(name: str, noise: float, seed: int, count: int, columns: dict[str, Column]) -> None:
    """Adds one batch to every attack's column."""
    data = photos.load(classes=CLASSES, samples=400, seed=seed)
    options: dict[str, Any] = {"widths": [256, 256]} if name == "mlp" else {}
    options |= {"input_shape": SHAPE, "classes": CLASSES, "mean": data.mean, "std": data.std, "seed": seed}
    module = models.build(name, **options).eval()
    rows, images, labels = batch_of(data.inputs, data.targets, count, seed)
    target = gradient_of(module, images, labels, noise, seed)
    prior = [filter_of(data.auxiliary_inputs).denoiser]
    others = torch.ones(len(data.inputs), dtype=torch.bool)
    others[rows] = False
    for attack, settings in ATTACKS.items():
        begin = time.process_time()
        (found,) = solve(module, [target], SHAPE, settings, seed, None, prior if settings.learned else None)
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
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| network, noise | cosine | Euclidean | spectrum | gain over the better one | best control | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in asked.models:
        for noise in asked.noise:
            columns = {attack: Column() for attack in ATTACKS}
            for seed in asked.seeds:
                measure(name, noise, seed, asked.images, columns)
            cosine, euclidean, spectrum = columns.values()
            gains = [own - max(a, b) for own, a, b in zip(spectrum.psnr, cosine.psnr, euclidean.psnr)]
            spent = ", ".join(f"{fmean(one.seconds):.0f}" for one in columns.values())
            print(
                f"| {name}, {noise:g} | {cosine} | {euclidean} | {spectrum} | {over_seeds(gains)}"
                f" | {fmean(spectrum.control):.1f} | {spent} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
