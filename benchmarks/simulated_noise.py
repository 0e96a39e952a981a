"""What simulating local training gains under known noise: `--attack auto` behind convolutions, with and without it.

    python benchmarks/simulated_noise.py --data-root DIR [--seeds 70 71 …] [--shares .01 .1 .5]

Dimitrov et al.'s CNN (arXiv:2206.12395) at its initial weights, Fashion-MNIST's test images, labels known, five epochs
of SGD .004 in batches of 5; noise of known size that is so much of the update's energy. PSNR in dB of each training;
the gain's 95 % interval by Student's t over trainings. Nothing softened, for time.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import quiet  # noqa: F401 - before torch
import torch
from by_pixels import over_seeds
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.presets.automatic import SIMULATED
from dpfl_audit.attacks.inversion.settings import Name
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.audit.reproduce.fedavg_dimitrov import network
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.randomness import generator
from known_order import SHAPE, psnr_of, trained

IMAGES, EPOCHS = 10, 5
OBJECTIVES: tuple[Name, ...] = ("cosine", "euclidean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[70, 71, 72, 73])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.1, 0.5])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| seed, noise | " + " | ".join(f"{o}, simulated" for o in OBJECTIVES) + " |\n|---|---|---|")
    gains: dict[tuple[str, float], list[float]] = {}
    for seed in asked.seeds:
        data = load("fashion_mnist", root=asked.data_root, seed=seed)
        rows = torch.randperm(len(data.test_inputs), generator=generator(seed, "benchmark"))[:IMAGES]
        labels, order = data.test_targets[rows].sort(stable=True)
        images, about = data.test_inputs[rows][order], {"mean": data.mean, "std": data.std, "seed": seed}
        module = models.build("layers", input_shape=SHAPE, classes=10, layers=network(1, 28, 10), **about).eval()
        sent, _ = trained(module, images, labels, EPOCHS, seed)
        assert sent.update is not None and sent.recipe is not None
        for share in asked.shares:
            std = (share / (1 - share) / len(sent.update)) ** 0.5 * float(sent.update.norm())
            update = sent.update + std * torch.randn(len(sent.update), generator=generator(seed, "noise", share))
            scale = sent.recipe.scale
            target = replace(sent, update=update, gradient=-update / scale, noise_std=std / scale)
            cells = []
            for objective in OBJECTIVES:
                without = Inversion(objective=objective, tv="noise-aware", exact=True, features=FEATURES)
                alone, with_it = (
                    float(psnr_of(solve(module, [target], SHAPE, settings, seed)[0].images, images, labels).mean())
                    for settings in (without, replace(without, **SIMULATED))
                )
                gains.setdefault((objective, share), []).append(with_it - alone)
                cells.append(f"{alone:.1f} → {with_it:.1f}")
            print(f"| {seed}, {share:g} | " + " | ".join(cells) + " |", flush=True)
    print()
    for (name, share), own in gains.items():
        print(f"{name}, {share:g}: {over_seeds(own)} dB")


if __name__ == "__main__":
    main()
